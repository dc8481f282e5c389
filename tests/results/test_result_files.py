"""Files of results."""

import functools
import gc
import importlib.util
import json
import os
import random
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxbandit as jb
from jaxbandit import InitialDesign, InvalidArgument, RandomSearch
from jaxbandit.cli import main
from jaxbandit.report import html
from jaxbandit.results import files
from jaxbandit.results.files import seal_of
from jaxbandit.study import CannotWrite, Model, Study, grid, read_results, rerun, run_study, sweeps_without_effect, write_results
from tests.support import box_runs, synthetic_results
from tests.support.small_study import ONE_BLOCK, assert_same, in_python, one_block, written
from tests.support.synthetic_results import results, swept

ONLY_REPORT = ["--report", "--no-figure"]
LINE = "rpol reward_width=2.5"


@pytest.mark.full
@pytest.mark.parametrize("name", ["results.nc", "results.zarr"])
def test_what_is_written_is_what_is_read(name: str, tmp_path: Path) -> None:
    write_results(one_block(), tmp_path / name)
    write_results(one_block(), tmp_path / name)
    assert sorted(file.name for file in tmp_path.iterdir()) == [name, f"{name}.sha256"]
    for place in (tmp_path, tmp_path / name):
        found = read_results(place)
        assert_same(found, one_block())
        assert found.attrs["fingerprint"] == one_block().attrs["fingerprint"]
        assert found.algorithm.values.tolist() == one_block().algorithm.values.tolist()
    again = rerun(found, 4, label=LINE)
    assert again.regret.values[0, 0].tolist() == one_block().regret.sel(algorithm=LINE, trial=4).values.tolist()


@pytest.mark.full
def test_a_study_in_zarr_from_the_command_line(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert (
        main(
            ["run", str(written(tmp_path, ONE_BLOCK)), "--out", str(out), "--no-cache", "--segment", "5", "--format", "zarr", *ONLY_REPORT]
        )
        == 0
    )
    assert "report.html" in capsys.readouterr().out
    assert sorted(file.name for file in out.iterdir()) == ["report.html", "results.zarr", "results.zarr.sha256", "summary.csv"]
    (out / "report.html").unlink()
    assert main(["rerun", str(out), "--trial", "3"]) == 0 and "the same bits" in capsys.readouterr().out
    for file in (str(out), str(tmp_path / "small.toml")):
        assert main(["cite", file]) == 0 and "@article{guo2022,\n  author = {Guo, Hengquan" in capsys.readouterr().out
    assert main(["report", str(out)]) == 0 and (out / "report.html").stat().st_size > 10_000


@functools.cache
def by_hand() -> xr.Dataset:
    """Return results that no study has played."""
    return results(trials=4, rounds=8)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    for name in ("results.nc", "results.zarr"):
        write_results(by_hand(), folder / name)
    return folder


def refused(path: Path, named: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"^results: .* was damaged or altered since it was written; restore it") as caught:
        read_results(path, load=False)
    assert str(named) in str(caught.value)


@pytest.mark.full
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_damage_anywhere_in_a_file_is_noticed(sealed: Path, tmp_path_factory: Any, seed: int) -> None:
    rng, data = random.Random(seed), bytearray((sealed / "results.nc").read_bytes())
    damaged, length = tmp_path_factory.getbasetemp() / "results.nc", rng.choice([1, 4, 100, 4000])
    seal = bytearray(seal_of(sealed / "results.nc").read_bytes())
    other = data if rng.randrange(4) else seal
    begin = rng.choice([0, rng.randrange(len(data) if other is data else 64)])
    other[begin : begin + length] = bytes(byte ^ (rng.randrange(255) + 1) for byte in other[begin : begin + length])
    damaged.write_bytes(data[: rng.choice([len(data), len(data), rng.randrange(len(data))])])
    seal_of(damaged).write_bytes(seal)
    with pytest.raises(InvalidArgument, match=r"^results: .*results\.nc") as caught:
        read_results(damaged)
    assert "\n" not in str(caught.value)


def copied(sealed: Path, path: Path) -> Path:
    """Copy the Zarr directory with its seal, under another name."""
    seal_of(path).write_bytes(seal_of(sealed / "results.zarr").read_bytes())
    return shutil.copytree(sealed / "results.zarr", path)


def test_damage_in_a_directory_is_noticed(sealed: Path, tmp_path: Path) -> None:
    for number, damage in enumerate(
        (lambda file: file.write_bytes(b"0" + file.read_bytes()[1:]), Path.unlink, lambda file: (file.unlink(), file.mkdir()))
    ):
        path = copied(sealed, tmp_path / f"{number}.zarr")
        damage(path / "regret" / ".zarray")
        refused(path, path / "regret" / ".zarray")
    path = copied(sealed, tmp_path / "seal.zarr")
    seal_of(path).write_text("[")
    refused(path, path)


def outside(file: h5py.File, secret: Path) -> dict[str, Callable[[], object]]:
    """Yield ways of a file to refer to other files."""
    layout = h5py.VirtualLayout(shape=(4,), dtype="u1")
    layout[:] = h5py.VirtualSource(str(secret), "bytes", shape=(4,))
    return {
        "inside/external": lambda: file.create_dataset("inside/external", (4,), "u1", external=[(str(secret), 0, 4)]),
        "virtual": lambda: file.create_virtual_dataset("virtual", layout),
        "link": lambda: file.__setitem__("link", h5py.ExternalLink(str(secret), "/")),
        "inside/soft": lambda: file.create_group("inside").__setitem__("soft", h5py.SoftLink("/regret")),
    }


@pytest.mark.parametrize("name", ["inside/external", "virtual", "link", "inside/soft"])
def test_results_that_lead_to_other_files_are_not_read(name: str, tmp_path: Path, capsys: Any) -> None:
    by_hand().to_netcdf(tmp_path / "results.nc", engine="h5netcdf")
    (tmp_path / "secret").write_bytes(b"1234")
    with h5py.File(tmp_path / "results.nc", "a") as file:
        outside(file, tmp_path / "secret")[name]()
    for load in (True, False):
        with pytest.raises(InvalidArgument, match=rf"results: .*results\.nc is not read: '{name}' in it is a link, or takes"):
            read_results(tmp_path, load=load)
    assert main(["report", str(tmp_path)]) == 2 and main(["rerun", str(tmp_path), "--trial", "0"]) == 2
    assert capsys.readouterr().err.count("is not read") == 2


def test_a_directory_of_results_that_leads_to_other_files_is_not_read(sealed: Path, tmp_path: Path) -> None:
    path = shutil.copytree(sealed / "results.zarr", tmp_path / "results.zarr")
    (path / "regret" / "0.0.0").rename(tmp_path / "elsewhere")
    (path / "regret" / "0.0.0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument, match=r"results\.zarr is not read: '0\.0\.0' in it is a link"):
        read_results(tmp_path)


@pytest.mark.parametrize("name", ["results.nc", "results.zarr"])
def test_the_new_name_of_results_is_on_the_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that their directory is synced once they have their name."""
    synced: list[tuple[int, bool]] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: synced.append((os.fstat(file if isinstance(file, int) else file.fileno()).st_ino, (tmp_path / name).exists())),
    )
    write_results(by_hand(), tmp_path / name)
    assert synced[-1:] == [(tmp_path.stat().st_ino, True)]


def test_results_that_another_program_has_written_have_no_seal_which_is_said(
    sealed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = read_results(sealed / "results.nc").isel(trial=slice(0, 2))
    assert not caplog.messages
    changed.to_netcdf(tmp_path / "results.nc", engine="h5netcdf")
    assert_same(read_results(tmp_path), changed)
    (said,) = caplog.messages
    assert "has no results.nc.sha256 beside it" in said and "not noticed" in said


def test_a_damaged_file_without_a_seal_is_refused_without_a_traceback(tmp_path: Path, capsys: Any) -> None:
    """h5netcdf prints one when a file ends that it could not open."""
    by_hand().to_netcdf(tmp_path / "results.nc", engine="h5netcdf")
    data = bytearray((tmp_path / "results.nc").read_bytes())
    for place in (9, 60, 120):
        (tmp_path / "results.nc").write_bytes(data[:place] + b"\xff" * 4000 + data[place + 4000 :])
        assert main(["report", str(tmp_path)]) == 2 and main(["rerun", str(tmp_path), "--trial", "0"]) == 2
    gc.collect()
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 6 and said.count("error: results: cannot read") == 6


def test_results_for_which_there_is_no_room_are_not_begun(tmp_path: Path, monkeypatch: Any) -> None:
    """HDF5 would print tracebacks for a file without room."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**20, 0, 2**18))
    monkeypatch.setattr(files, "save", None)
    with pytest.raises(CannotWrite, match=r"results\.nc: No space left on device"):
        write_results(by_hand(), tmp_path / "results.nc")
    # Temporary files have another place, whose room does not matter.
    files.check_results(by_hand(), tmp_path / "results.nc")
    assert not list(tmp_path.iterdir())


def test_no_file_is_replaced_by_a_directory(tmp_path: Path) -> None:
    (tmp_path / "results.zarr").write_text("kept")
    with pytest.raises(CannotWrite, match="it is there and is no directory"):
        write_results(by_hand(), tmp_path / "results.zarr")
    assert (tmp_path / "results.zarr").read_text() == "kept"


def test_files_that_are_no_results(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(InvalidArgument, match="there is no"):
        read_results(tmp_path / "none.nc")
    with pytest.raises(InvalidArgument, match=r"holds no results\.nc or results\.zarr"):
        read_results(tmp_path)
    for name in ("results.zarr", "results.nc"):
        (tmp_path / name).write_text("no results")
        with pytest.raises(InvalidArgument, match="cannot read"):
            read_results(tmp_path / name)
    (tmp_path / "results.zarr").unlink()
    monkeypatch.setattr(xr.Dataset, "to_zarr", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(CannotWrite, match="No space left on device"):
        write_results(by_hand(), tmp_path / "results.zarr")
    assert not (tmp_path / "results.zarr").exists()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match="zarr is not installed"):
        write_results(by_hand(), tmp_path / "results.zarr")


def test_swept_values_that_change_nothing_are_named() -> None:
    """Runs that ended with equal bits in every trial count."""
    dataset = swept(widths=(1.0, 2.0, 4.0), costs=(0.5, 1.0))
    assert sweeps_without_effect(dataset) == []

    def alike(to: dict[int, int]) -> xr.Dataset:
        own = [to.get(a, a) for a in range(7)]
        return dataset.assign({name: (dataset[name].dims, dataset[name].values[own]) for name in dataset.data_vars})

    [line] = sweeps_without_effect(alike({5: 4}))
    assert line == "estimator.cost_width changed no number in any trial of RPOL-UCB w=4 c=0.5, RPOL-UCB w=4 c=1"
    [line] = sweeps_without_effect(alike({3: 2, 5: 4}))
    assert line.endswith("of RPOL-UCB w=2 c=0.5, RPOL-UCB w=2 c=1 (and of 1 more such groups)")
    assert sweeps_without_effect(alike({5: 2}))[0].startswith("estimator.reward_width and estimator.cost_width changed no number")
    almost = alike({5: 4})
    almost.regret.values[5, 3, -1] += 1e-9
    assert sweeps_without_effect(almost) == [], "one trial differs"


def test_a_study_whose_penalty_never_binds_says_so() -> None:
    """No point violates, so penalties have no effect."""
    domain = jb.domains.grid([0.0], [1.0], 9)
    problem = jb.problems.from_tables(domain, np.sin(9 * domain.points[:, 0]), np.full(9, -9.0), noise_variance=0.1)
    sweeps = {"rpol": {"penalty_growth": [0.5, 1.0], "estimator.reward_width": [0.1, 9.0]}}
    model = Model(kernel=jb.kernels.SquaredExponential(length_scale=0.3), noise_variance=0.1, prior_mean=(0.0, -9.0))
    runs = grid(problems={"safe": problem}, algorithms={"rpol": jb.Rpol()}, sweeps=sweeps, model=model, horizon=6)
    [line] = sweeps_without_effect(run_study(Study("safe", runs=runs, trials=2, horizon=6, metrics=("regret", "reward"))))
    assert line.startswith("penalty_growth changed no number in any trial of ") and line.endswith("(and of 1 more such groups)")


def test_a_run_is_labelled_with_points_and_measured_by_them() -> None:
    problem, initial = box_runs.valley(), jb.InitialDesign(random=2, counted=True)
    run = jb.simulate(problem, jb.RandomSearch(), box_runs.model(), horizon=5, key=jax.random.key(3), trials=2, initial=initial)
    dataset = run.to_xarray(problem)
    assert dataset.point.dims == ("algorithm", "trial", "round", "coordinate") and dataset.coordinate.values.tolist() == ["dose", "rate"]
    points = np.concatenate([run.initial_points, run.points], axis=1)
    np.testing.assert_array_equal(dataset.point.values[0], points)
    # The pool has no points to number.
    assert "index" not in dataset
    reward, cost = box_runs.values(points)
    best = np.maximum.accumulate(np.where(cost <= 0, reward, -np.inf), axis=1)
    np.testing.assert_allclose(dataset.best_feasible_value.values[0], np.where(np.isinf(best), np.nan, best), rtol=1e-5)
    np.testing.assert_allclose(dataset.hard_violation.values[0], np.cumsum(np.maximum(cost, 0), axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dataset.regret.values[0], np.cumsum(-0.28125 - reward, axis=1), rtol=1e-4, atol=1e-5)
    [row] = run.summary(problem).rows
    assert row["best feasible"] == pytest.approx(best[:, -1].mean() if np.isfinite(best[:, -1]).all() else np.nan, rel=1e-5, nan_ok=True)

    table = run.to_dataframe(problem)
    last = table[(table["trial"] == 1) & (table["round"] == 5)].iloc[0]
    np.testing.assert_array_equal([last["point.dose"], last["point.rate"]], points[1, -1])

    again = jb.metrics.curves(problem, run.scored_points)
    np.testing.assert_allclose(again.best_feasible_value, dataset.best_feasible_value.values[0], rtol=1e-5)
    for wrong, words in (
        (np.zeros((3, 4)), r"indices: expected shape \[\.\.\., T, 2\], one point for each round, got shape \[3, 4\]"),
        (np.zeros(2), r"got shape \[2\]"),
        (np.full((3, 2), np.nan), "indices: .*NaN"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            jb.metrics.curves(problem, wrong)


def test_the_best_feasible_value_on_a_finite_domain_is_undefined_before_a_feasible_point() -> None:
    problem = jb.problems.from_tables(jb.domains.arms(4), [3.0, 1.0, 2.0, 5.0], [[1.0, -1.0, -1.0, 1.0]])
    measured = jb.metrics.curves(problem, np.asarray([[0, 1, 2, 1, 3], [0, 3, 0, 0, 2]]))
    np.testing.assert_array_equal(measured.best_feasible_value, [[np.nan, 1, 2, 2, 2], [np.nan, np.nan, np.nan, np.nan, 2]])
    with pytest.raises(InvalidArgument, match="indices: must be whole numbers"):
        jb.metrics.curves(problem, np.zeros((3, 1)))


BROKEN: list[Any] = [
    "",
    "{",
    "[]",
    "{}",
    "3",
    "null",
    '"x"',
    "[1]",
    '[["a"]]',
    '{"a": 1}',
    "[[0, 0, 0, 0]]",
    "[[12, 1, 20, 24], [12, 1, 20, 12]]",
    "[[1, 1]]",
    3,
    -1.5,
    np.arange(3),
]


@functools.cache
def whole() -> xr.Dataset:
    """Undamaged results of three runs."""
    algorithms = {name: RandomSearch() for name in "abc"}
    return run_study(in_python(algorithms=algorithms, delays=None, initial=InitialDesign(), horizon=3, trials=2))


@pytest.mark.full
@pytest.mark.parametrize("name", ["table", "fingerprint", "batches"])
def test_broken_attributes_in_a_rerun(name: str) -> None:
    for value in [None, *BROKEN]:
        attributes = {key: held for key, held in whole().attrs.items() if key != name}
        damaged = whole().copy()
        damaged.attrs = attributes if value is None else attributes | {name: value}
        with pytest.raises(InvalidArgument) as caught:
            rerun(damaged, 0)
        assert "\n" not in str(caught.value) and str(caught.value).startswith(("results: ", "study: "))


@pytest.mark.full
def test_results_of_another_version_are_said_to_be_so() -> None:
    old = whole().copy()
    old.attrs = old.attrs | {"versions": json.dumps({"jaxbandit": "0.0.1"}), "fingerprint": "of old"}
    with pytest.raises(InvalidArgument, match=r"written by another version of jaxbandit \(0\.0\.1, this is"):
        rerun(old, 0)
    old.attrs = old.attrs | {"table": json.dumps(json.loads(old.attrs["table"]) | {"rounds": 3})}
    with pytest.raises(InvalidArgument, match=r"rounds: unknown field.*another version of jaxbandit \(0\.0\.1"):
        rerun(old, 0)


def good() -> xr.Dataset:
    return synthetic_results.results(labels=("a", "b"), trials=3, rounds=8)


def with_attribute(name: str, value: Any) -> Callable[[xr.Dataset], xr.Dataset]:
    return lambda dataset: dataset.assign_attrs({name: value})


DAMAGE: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
    "no rounds": lambda d: d.isel(round=slice(0, 0)),
    "no trials": lambda d: d.isel(trial=slice(0, 0)),
    "no status": lambda d: d.drop_vars("status"),
    "no labels": lambda d: d.drop_vars("algorithm"),
    "no numbers of rounds": lambda d: d.drop_vars("round"),
    "equal labels": lambda d: d.assign_coords(algorithm=["a", "a"]),
    "rounds in words": lambda d: d.assign_coords(round=list("abcdefgh")),
    "status in words": lambda d: d.assign(status=(("algorithm", "trial"), np.full((2, 3), "ok"))),
    "status of trials": lambda d: d.assign(status=d.status.isel(algorithm=0, drop=True)),
    "regret in words": lambda d: d.assign(regret=(("algorithm", "trial", "round"), np.full((2, 3, 8), "x"))),
    "regret of all runs": lambda d: d.assign(regret=d.regret.isel(algorithm=0, drop=True)),
    "problem of each trial": lambda d: d.assign_coords(problem=("trial", list("xyz"))),
    "arrivals without outputs": lambda d: d.assign(arrival=(("algorithm", "trial"), np.ones((2, 3), int))),
    **{f"counted_before {v!r}": with_attribute("counted_before", v) for v in ("x", [1, 2])},
    **{f"swept {v!r}": with_attribute("swept", v) for v in ("[", 3)},
}


@pytest.mark.full
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_report_of_damaged_results(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that what was damaged is named before anything is drawn."""
    monkeypatch.setattr(html, "read_results", lambda folder: DAMAGE[damage](good()))
    with pytest.raises(InvalidArgument) as caught:
        html.write_report(tmp_path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("directory: ")
    assert not list(tmp_path.iterdir())


def test_what_was_not_foreseen_in_results_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "read_results", lambda folder: good())
    monkeypatch.setattr(html.StudyPage, "curves", lambda self: self.dataset["unheard of"])
    with pytest.raises(InvalidArgument, match=r"of versions .*0\.1.*, cannot be shown by .* they are damaged or of another version"):
        html.write_report(tmp_path)
