"""Limits of memory, disk and output."""

import io
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import xarray as xr

import jaxbandit.study.files
from experiments import __main__ as experiments
from jaxbandit import InvalidArgument, cli, domains, enable_cache, kernels
from jaxbandit.cli import main
from jaxbandit.host import memory
from jaxbandit.study import CannotWrite, make_plan, play, prepare_directory, run_study, write_whole
from jaxbandit.study.files import Files
from jaxbandit.surrogates import features
from tests.support.small_study import ONE_BLOCK, TOML, assert_same, one_block, one_block_in_python, rpol_lines, written

# Memory and disk.


def test_the_container_bounds_what_is_planned(tmp_path, monkeypatch) -> None:
    own = memory.host_memory()
    container = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CONTAINER_LIMIT", container)
    container.write_text("max\n")
    assert memory.host_memory() >= own
    container.write_text("1000000\n")
    assert memory.host_memory() == 1_000_000


@pytest.mark.usefixtures("on_cpu")
def test_results_that_do_not_fit_memory_are_refused_unless_they_are_streamed() -> None:
    many = rpol_lines(trials=20_000, trajectories=False)
    plan = make_plan(many, memory="64MiB")
    most = plan.result_bytes + max(cell.batch_bytes for cell in plan.cells)
    assert plan.result_bytes > 2 * 20_000 * 22 * 4 * 4 and most <= 64 * 2**20
    with pytest.raises(InvalidArgument, match=r"memory: the results alone take .* MiB of the 8\.0 MiB allowed"):
        make_plan(many, memory="8MiB")
    assert make_plan(many, memory="8MiB", streamed=True).cells[0].batch_bytes <= 8 * 2**20


@pytest.mark.usefixtures("on_cpu")
def test_the_memory_of_a_batch_holds_what_its_trials_share() -> None:
    (planned,) = make_plan(rpol_lines()).cells
    assert planned.batch_bytes - max(planned.size, planned.room) * planned.trial_bytes >= memory.tree_bytes(planned.cell) > 4000


def test_grids_and_features_that_do_not_fit_the_machine(monkeypatch: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"points_per_axis: must make at most 10,000,000 points in all, got \[10000"):
        domains.grid([0.0] * 4, [1.0] * 4, 10_000)
    with pytest.raises(InvalidArgument, match="count: must be a whole number from 1 to 10000000, got 1000000000000"):
        domains.arms(10**12)
    monkeypatch.setattr(features, "host_memory", lambda: 3 * 8 * 50 * 10)
    points = domains.grid([0.0], [5.0], 50).points
    phi, residual = features.rotated(kernels.Matern12(), points, 1e-6, 50)
    # The rank is full and known to be insufficient.
    assert phi.shape == (50, 10) and residual > 1e-6


@pytest.mark.parametrize(
    ("size", "words"), [(5, "5 bytes"), (1536, "1.5 KiB"), (10 * 2**30, "10 GiB"), (10**30, "888,178,419,700,125 PiB")]
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert memory.in_units(size) == words


@pytest.mark.parametrize("error", [MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nof a device")])
def test_memory_that_is_exhausted_is_one_line(error: Exception, monkeypatch: Any, capsys: Any) -> None:
    def names(args: Any) -> None:
        raise error

    monkeypatch.setattr(cli, "print_names", names)
    assert main(["names", "delay"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: memory does not suffice (") and said.count("\n") == 1


# Output and surroundings.


def test_output_to_a_full_device_is_one_line(monkeypatch: Any, capsys: Any) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no full device here")
    for arguments in (["names", "delay"], ["--help"]):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert main(arguments) == 1
        said = capsys.readouterr().err
        assert said == "error: cannot read or write the output: No space left on device\n"


def test_letters_that_the_terminal_lacks(monkeypatch: Any) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))

    def names(args: Any) -> None:
        print("λ = 1")

    monkeypatch.setattr(cli, "print_names", names)
    assert main(["names", "delay"]) == 0 and buffer.getvalue() == b"\\u03bb = 1\n"


def test_a_user_without_a_home_keeps_no_programs(monkeypatch: Any) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert enable_cache() is None and jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize("name", ["../../evil", "/evil", "a/../../b", "..", ".", "a/.."])
def test_a_name_that_leaves_the_results(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = TOML.replace('name = "small"', f'name = "{name}"')
    assert main(["run", str(written(tmp_path, text)), "--no-cache", "--dry-run"]) == 2
    assert "error: name: results/NAME must lie in results" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_a_clock_that_stands_still(monkeypatch: Any) -> None:
    expected = one_block()
    monkeypatch.setattr(play.time, "perf_counter", lambda: 1.0)
    assert_same(run_study(one_block_in_python(), segment=5), expected)


def test_a_closed_output_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``>&-`` Python has no standard output."""
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["names"]) == 0 and experiments.main(["list"]) == 0


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device that is always full")
def test_the_output_of_an_experiment_to_a_full_device_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert experiments.main(["list"]) == 1
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "words"), [(KeyboardInterrupt(), 130, "interrupted; "), (MemoryError(), 1, "error: memory does")]
)
def test_how_an_experiment_ends_is_one_line(error: BaseException, status: int, words: str, monkeypatch: Any, capsys: Any) -> None:
    def end(argv: Any) -> None:
        raise error

    monkeypatch.setattr(experiments, "_command", end)
    assert experiments.main(["list"]) == status
    said = capsys.readouterr().err
    assert said.startswith(words) and said.count("\n") == 1


@pytest.mark.parametrize("name", ["file", "file/cache", "x" * 300, "\0"])
def test_a_cache_that_cannot_be_made_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match=r"^(cache|directory): must be .*, got") as caught:
        enable_cache(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="no device that never ends")
def test_a_device_that_never_ends_is_no_file(tmp_path: Path, capsys: Any) -> None:
    arms = written(
        tmp_path, TOML.replace('type = "sine"\npoints_per_axis = 9', 'type = "from_csv"\npath = "/dev/zero"\nobjective = "maximise y"')
    )
    for arguments in (
        ["run", "/dev/zero"],
        ["run", str(arms)],
        ["rerun", "/dev/zero", "--trial", "0"],
        ["session", "new", "/dev/zero", "--out", str(tmp_path / "session")],
    ):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert "cannot read '/dev/zero': it is a device" in said and said.count("\n") == 1


class FullDisk:
    """Disk that holds a few bytes while it is full."""

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))

    def empty(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture
def disk() -> Iterator[FullDisk]:
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        pytest.skip("the size of files is limited here already")
    disk = FullDisk()
    yield disk
    disk.empty()


@pytest.mark.full
def test_a_full_disk_ends_a_run_and_leaves_the_last_checkpoint(tmp_path: Path, disk: FullDisk) -> None:
    def fill_after_ten_rounds(progress: Any) -> None:
        if progress.round == 10:
            disk.fill()

    with pytest.raises(CannotWrite, match="File too large; what was there before is as it was") as caught:
        run_study(one_block_in_python(), tmp_path, segment=5, checkpoint_share=1.0, report=fill_after_ten_rounds)
    assert "\n" not in str(caught.value)
    disk.empty()
    store = Files(tmp_path)
    store.resume(json.loads((tmp_path / "study.json").read_text())["identity"])
    checkpoint = store.read("at-work.npz") or pytest.fail("no checkpoint")
    assert checkpoint["place"].tolist() == [0, 0, 6]
    said: list[str] = []
    assert_same(run_study(one_block_in_python(), tmp_path, resume=True, checkpoint_share=1.0, note=said.append), one_block())
    assert any("resumed at round 6" in line for line in said)


@pytest.mark.full
def test_results_that_cannot_be_written_can_be_had_later(tmp_path: Path, disk: FullDisk, monkeypatch: Any, capsys: Any) -> None:
    """The run is kept until its results are on disk."""
    study, out = str(written(tmp_path, ONE_BLOCK)), tmp_path / "out"
    real = jaxbandit.study.files.Files.write

    def last_part_fits(store: Files, name: str, part: Any) -> None:
        real(store, name, part)
        if name.startswith("parts"):
            disk.fill()

    monkeypatch.setattr(jaxbandit.study.files.Files, "write", last_part_fits)
    assert main(["run", study, "--out", str(out), "--no-cache", "--segment", "5"]) == 1
    disk.empty()
    assert "results.nc: " in capsys.readouterr().err and not (out / "results.nc").exists()
    assert main(["run", study, "--out", str(out), "--no-cache", "--no-figure", "--resume"]) == 0
    assert_same(xr.load_dataset(out / "results.nc", engine="h5netcdf"), one_block(), tolerance=1e-5)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, disk: FullDisk) -> None:
    path = tmp_path / "numbers.txt"
    write_whole(path, lambda temporary: temporary.write_text("old"))
    disk.fill()
    with pytest.raises(CannotWrite, match=r"numbers\.txt"):
        write_whole(path, lambda temporary: temporary.write_text("new" * 100))
    disk.empty()
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["numbers.txt"]
    with pytest.raises(CannotWrite, match="nowhere"):
        write_whole(tmp_path / "nowhere" / "numbers.txt", lambda temporary: temporary.write_text("new"))


def test_places_that_cannot_be_directories(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cannot make the directory"):
        prepare_directory(tmp_path / "file" / "out")
    assert main(["run", str(written(tmp_path)), "--out", str(tmp_path / "file"), "--no-cache"]) == 2
    assert "is a file, not a directory" in capsys.readouterr().err


def test_a_user_who_stops_a_run_is_told_how_to_go_on(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jaxbandit.study.files.Files, "write", stop)
    command = ["run", str(written(tmp_path, ONE_BLOCK)), "--out", str(tmp_path / "out"), "--no-cache", "--segment", "5"]
    assert main(command) == 130 and "--resume" in capsys.readouterr().err
    assert main(command) == 2
    said = capsys.readouterr().err
    assert 0 < said.index("--resume") < said.index("--force"), "which would throw away what was done"


def test_a_file_takes_the_place_of_no_device(tmp_path: Path) -> None:
    """Renamed over ``/dev/full``, a report would end the device."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotWrite, match="pipe: it is there and is no regular file"):
        write_whole(tmp_path / "pipe", lambda temporary: temporary.write_text("new"))
    assert (tmp_path / "pipe").is_fifo() and [path.name for path in tmp_path.iterdir()] == ["pipe"]
