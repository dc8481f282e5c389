"""Programs of earlier runs are found again."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jaxbandit
from jaxbandit import InvalidArgument
from jaxbandit.engine.programs import play_all
from jaxbandit.host.cache import USUAL_DIRECTORY, CacheChoice
from jaxbandit.study import Progress, Study, make_plan, run_study
from tests.support.counted import COMPILED, FOUND, Counted
from tests.support.small_study import one_cell_in_python


@pytest.fixture
def cache() -> Iterator[None]:
    """Leave JAX's cache as it was."""
    settings = jax.config.values
    names = [name for name in settings if name.startswith(("jax_compilation_cache", "jax_persistent_cache_min"))]
    before = {name: settings[name] for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def some(**changes: Any) -> Study:
    """Return this file's study without trajectories, so that programs are shared."""
    return one_cell_in_python(**{"trials": 30, "horizon": 4, "seed": 8, "trajectories": False, "metrics": ("regret",)} | changes)


@pytest.mark.full
def test_a_study_that_is_run_again_compiles_nothing_and_says_a_number_for_each_line() -> None:
    said: list[Progress] = []
    first = run_study(some(), report=said.append)
    notes: list[str] = []
    with Counted() as events:
        again = run_study(some(), note=notes.append)
    assert events[COMPILED] == 0 and not [line for line in notes if line.startswith("compil")]
    np.testing.assert_array_equal(first["regret"], again["regret"])
    labels = [str(label) for label in first.algorithm.values]
    shown = {label: value for progress in said for label, value in progress.lines.items()}
    assert list(shown) == labels
    np.testing.assert_allclose(list(shown.values()), first["regret"][:, :, -1].mean("trial"), rtol=1e-5)
    assert said[-1].done == said[-1].work and said[-1].left == 0


@pytest.mark.full
def test_another_number_of_trials_compiles_nothing() -> None:
    """Blocks have one size, and programs are told the number to play."""
    few, many = some(), some(trials=240)
    assert make_plan(many).cells[0].room < 2 * 240, "or else they are called once"
    first = run_study(few)
    assert not {"index", "observed", "arrival"} & set(first.data_vars)
    with Counted() as events:
        more = run_study(many)
    assert events[COMPILED] == 0
    for name in few.metrics:
        np.testing.assert_allclose(more[name].values[:, :30], first[name].values, rtol=1e-5, atol=1e-5)
    assert len(np.unique(more["regret"].values[0, :, -1])) > 200, "trials of all calls are their own"


@pytest.mark.full
def test_whole_runs_and_parts_of_as_many_rounds_have_programs_of_their_own() -> None:
    """Only programs of whole runs are told their number of blocks."""
    run_study(some())
    parts = run_study(some(horizon=8), segment=4)
    assert np.all(parts.status.values == 0) and len(parts["round"]) == 2 + 8


@pytest.mark.full
def test_a_cache_on_disk_serves_what_jax_has_forgotten(
    cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING, "jaxbandit"):
        own = jaxbandit.enable_cache()
        assert jaxbandit.enable_cache() == own and own is not None and own.parent == tmp_path / "jaxbandit"
        assert [place.stat().st_mode & 0o777 for place in (own, own.parent)] == [0o700, 0o700] and not list(own.iterdir())
    assert [line.split(",")[0] for line in caplog.messages] == [f"compiled programs are kept in {tmp_path / 'jaxbandit'}"]

    def run() -> Any:
        problem = jaxbandit.problems.sine(4)
        model = jaxbandit.surrogate(problem.domain, jaxbandit.kernels.SquaredExponential(), noise_variance=0.1, form="features")
        return jaxbandit.simulate(problem, jaxbandit.Rpol(), model, horizon=3, key=jax.random.key(0)).indices

    play_all.clear_cache()
    first = run()
    kept = {path.name for path in own.iterdir()}
    play_all.clear_cache()
    with Counted() as events:
        np.testing.assert_array_equal(run(), first)
    assert events[FOUND] > 0 and {path.name for path in own.iterdir()} == kept, "all of them were found"
    caplog.clear()
    other = jaxbandit.enable_cache(tmp_path / "jaxbandit")
    assert other == own and not caplog.messages, "said when it is made, and not again"
    with pytest.raises(InvalidArgument, match=r"^directory: must be"):
        jaxbandit.enable_cache(3)  # type: ignore[arg-type]


def directory_of_a_session() -> str | None:
    """Return JAX's folder of programs once a search has run."""
    jaxbandit.optimise(lambda x: -x, {"x": (0.0, 1.0)}, 1, algorithm=jaxbandit.RandomSearch())
    return jax.config.values["jax_compilation_cache_dir"]


def test_sessions_keep_their_programs_unless_somebody_has_chosen(
    cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(CacheChoice, "made", False)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert directory_of_a_session() == str(tmp_path / "own") and not (tmp_path / "home").exists(), "JAX was told"
    jax.config.update("jax_compilation_cache_dir", None)
    for _ in range(2):
        kept = directory_of_a_session()
        assert kept is not None and Path(kept).parent == tmp_path / "home" / "jaxbandit"
    assert [line.split(",")[0] for line in caplog.messages] == [f"compiled programs are kept in {tmp_path / 'home' / 'jaxbandit'}"]
    assert jaxbandit.enable_cache(None) is None and directory_of_a_session() is None, "turned off for good"
    caplog.clear()
    (tmp_path / "home").chmod(0o777)
    monkeypatch.setattr(CacheChoice, "made", False)
    assert directory_of_a_session() is None and "can be written to by others" in caplog.text, "the search goes on without"


def test_importing_the_package_keeps_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path(jaxbandit.__file__).parents[1])}
    script = "import jax, jaxbandit, jaxbandit.session; print(jax.config.jax_compilation_cache_dir)"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n" and not list(tmp_path.iterdir())


def is_refused(directory: Path, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """Check that no program of a folder is used, with a warning."""
    caplog.clear()
    assert jaxbandit.enable_cache(directory) is None and jax.config.values["jax_compilation_cache_dir"] is None
    (said,) = caplog.messages
    assert reason in said and "what others put there would be run" in said and "\n" not in said


def test_programs_that_others_may_have_planted_are_not_used(
    cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = jaxbandit.enable_cache(tmp_path / "cache")
    assert own is not None
    entry = own / "program-cache"
    entry.write_text("")
    entry.chmod(0o664)
    assert jaxbandit.enable_cache(own.parent) == own
    own.chmod(0o755)
    is_refused(own.parent, f"{entry} can be written to by others", caplog)
    entry.chmod(0o644)
    assert jaxbandit.enable_cache(own.parent) == own
    for place in (own, own.parent):
        for mode in (0o775, 0o1777):
            place.chmod(mode)
            is_refused(own.parent, f"{place} can be written to by others", caplog)
        place.chmod(0o755)
    assert jaxbandit.enable_cache(own.parent) == own
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    is_refused(USUAL_DIRECTORY, f"{own} belongs to another user", caplog)
    is_refused(own.parent, f"{own.parent} belongs to another user", caplog)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_one_file_of_another_user_is_enough(cache: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = jaxbandit.enable_cache(tmp_path / "cache")
    assert own is not None
    (own / "program-cache").write_text("")
    os.chown(own / "program-cache", 65534, -1)
    is_refused(own.parent, "program-cache belongs to another user", caplog)


def test_no_directory_is_used_in_whose_place_others_can_put_theirs(cache: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Members of a group can rename folders in its scratch folder."""
    group = tmp_path / "scratch" / "group"
    base = group / "mine" / "cache"
    base.parent.mkdir(parents=True)
    base.parent.chmod(0o700)
    own = jaxbandit.enable_cache(base)
    assert own is not None and jaxbandit.enable_cache(own.parent) == own
    for place in (base.parent, group, group.parent):
        before = place.stat().st_mode
        for mode in (0o770, 0o777, 0o702):
            place.chmod(mode)
            is_refused(base, f"{place} can be written to by others", caplog)
            jax.config.update("jax_compilation_cache_dir", str(own))
            is_refused(USUAL_DIRECTORY, f"{place} can be written to by others", caplog)
        place.chmod(0o1777)
        assert jaxbandit.enable_cache(base) == own, "nobody else can rename what lies in a sticky directory"
        place.chmod(before)
    jax.config.update("jax_compilation_cache_dir", None)
    group.chmod(0o777)
    is_refused(group / "further" / "cache", f"{group} can be written to by others", caplog)
    assert not (group / "further").exists(), "nothing is made where it would not be used"


def test_links_on_the_way_to_a_cache_are_followed_and_looked_at(cache: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    safe, shared = tmp_path / "safe", tmp_path / "shared"
    for place in (safe, shared):
        place.mkdir()
    (shared / "there").symlink_to(safe)
    (safe / "again").symlink_to(Path("..", "shared", "there"))
    direct, by_link = jaxbandit.enable_cache(safe / "cache"), jaxbandit.enable_cache(safe / "again" / "cache")
    assert direct is not None and by_link == direct and jax.config.values["jax_compilation_cache_dir"] == str(direct)
    shared.chmod(0o777)
    is_refused(safe / "again" / "cache", f"{shared} can be written to by others", caplog)
    is_refused(safe / ".." / "shared" / "there" / "cache", f"{shared} can be written to by others", caplog)
    assert jaxbandit.enable_cache(safe / "cache") == direct
    (safe / "circle").symlink_to(safe / "circle")
    with pytest.raises(InvalidArgument, match=r"^cache: must be a directory that can be made"):
        jaxbandit.enable_cache(safe / "circle")


def test_directories_on_the_way_to_a_cache_are_their_owners_alone(cache: None, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        own = jaxbandit.enable_cache(tmp_path / "a" / "b" / "cache")
    finally:
        os.umask(before)
    assert own is not None and all(place.stat().st_mode & 0o777 == 0o700 for place in (own, *own.parents[:3]))


def test_a_cache_told_to_jax_is_made_for_its_owner_alone(cache: None, tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "told" / "jax"))
    assert jaxbandit.enable_cache() == tmp_path / "told" / "jax"
    assert (tmp_path / "told" / "jax").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_one_directory_or_link_of_another_user_on_the_way_is_enough(cache: None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    assert jaxbandit.enable_cache(link / "cache") is not None
    os.chown(link, 65534, -1, follow_symlinks=False)
    is_refused(link / "cache", f"{link} belongs to another user", caplog)
    os.chown(home, 65534, -1)
    is_refused(home / "cache", f"{home} belongs to another user", caplog)


def test_a_cache_on_disk_is_bounded_and_survives_a_process_that_was_killed(
    cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxbandit.host.cache.MAX_SIZE", 10_000)
    own = jaxbandit.enable_cache(tmp_path / "cache")
    assert own is not None
    cut_off = own / "jit_killed-cache"
    cut_off.write_bytes(b"half of a program")

    def kept() -> list[Path]:
        return [path for path in own.glob("*-cache") if path != cut_off]

    with pytest.warns(UserWarning, match="jit_killed-atime"):
        jax.jit(lambda x: x + 0.5)(np.ones(3, np.float32))
    assert not kept()
    os.utime(cut_off, (0, 0))
    assert jaxbandit.enable_cache(tmp_path / "cache") == own and not cut_off.exists()
    made = set[Path]()
    for number in range(12):
        jax.jit(lambda x, number=number: x + float(number))(np.ones(3, np.float32))
        made |= set(kept())
    sizes = [path.stat().st_size for path in kept()]
    assert len(made) == 12 and 0 < len(sizes) < 12 and sum(sizes) <= 10_000
