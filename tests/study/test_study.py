"""Studies."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import jaxbandit
from jaxbandit import InvalidArgument
from jaxbandit.cli import main
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.delays import Poisson
from jaxbandit.kernels import SquaredExponential
from jaxbandit.study import (
    CheckpointMismatch,
    Keep,
    Model,
    Plan,
    flags_in_words,
    forget,
    from_table,
    from_toml,
    make_plan,
    rerun,
    run_study,
)
from tests.support.small_study import TOML, assert_same, in_python, rpol_lines, whole, written

# Tables and fingerprints.


def test_a_file_and_python_give_the_same_study(tmp_path: Path) -> None:
    study = from_toml(written(tmp_path))
    assert study.fingerprint() == in_python().fingerprint()
    assert [run.label for run in study.runs] == [run.label for run in in_python().runs]
    for one in (study, in_python()):
        again = from_table(json.loads(json.dumps(one.table())))
        assert again.fingerprint() == study.fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"horizon": 21},
        {"keep": Keep(every=2)},
        {"model": Model(kernel=SquaredExponential(length_scale=1.1))},
        {"delays": {"late": Poisson(mean=3.0)}},
        {"common_random_numbers": False},
        {"algorithms": {"rpol": jaxbandit.Rpol()}},
    ],
)
def test_the_fingerprint_tells_studies_apart(changes: dict[str, Any]) -> None:
    assert in_python(**changes).fingerprint() != in_python().fingerprint()
    assert in_python().fingerprint() == in_python().fingerprint()


def test_arrays_without_axes_have_the_fingerprint_of_their_number() -> None:
    def fingerprint(growth: Any) -> str:
        return in_python(algorithms={"rpol": jaxbandit.Rpol(penalty_growth=growth)}).fingerprint()

    assert fingerprint(np.asarray(0.25)) == fingerprint(jax.numpy.asarray(0.25)) == fingerprint(0.25) != fingerprint(np.asarray(0.75))


def test_lines_that_differ_in_numbers_share_a_cell() -> None:
    study = in_python(delays={"a": Poisson(mean=1.0), "b": Poisson(mean=4.0)})
    plan = make_plan(study)
    labels = [[run.label for run in cell.runs.values()] for cell in plan.cells]
    assert [len(cell) for cell in labels] == [4, 2] and all("rpol" in label for label in labels[0])
    many = in_python(algorithms={"rpol": jaxbandit.Rpol()}, sweeps={"rpol": {"estimator.reward_width": list(range(1, 65))}})
    assert [len(cell.runs) for cell in make_plan(many).cells] == [64]


def test_rounds_kept() -> None:
    assert Keep().rounds(5).tolist() == [1, 2, 3, 4, 5] and len(Keep().rounds(10_000)) == 1000
    assert Keep(every=4).rounds(10).tolist() == [4, 8, 10]
    assert Keep(every=2**30).rounds(10).tolist() == [10]
    spaced = Keep(log_spaced=5).rounds(10_000)
    assert spaced.tolist() == [1, 10, 100, 1000, 10_000]
    assert Keep(log_spaced=50).rounds(7).tolist()[-1] == 7


# Running one.


def test_golden_dataset(golden: Any) -> None:
    data, changing = whole(), ("batches", "devices", "versions", "created")
    golden("dataset").check("variables", {name: [list(item.dims), str(item.dtype)] for name, item in sorted(data.variables.items())})
    golden("dataset").check("attributes", {name: None if name in changing else text for name, text in sorted(data.attrs.items())})


def test_measures_are_those_of_the_points_kept() -> None:
    """The two points of the initial design count."""
    reward, cost = np.asarray(jaxbandit.problems.sine(9).means, np.float64)
    chosen = whole()["index"].values
    regret = np.cumsum(np.max(reward[cost <= 0]) - reward[chosen], axis=-1)
    # Values up to 100 in float32 have this error.
    np.testing.assert_allclose(whole().regret.values, regret, atol=1e-4)
    np.testing.assert_array_equal(whole().violating_rounds.values, np.cumsum(cost[chosen] > 0, axis=-1))


def test_lines_of_a_sweep_have_a_name_and_their_values() -> None:
    assert whole().base.values.tolist() == ["rpol", "rpol", "cbo"]
    assert whole()["round"].values[:3].tolist() == [-1, 0, 1] and whole().attrs["counted_before"] == 2
    assert sorted(set(whole()["estimator.reward_width"].values[:2])) == [1.0, 2.5]


def test_thinning_leaves_the_same_numbers() -> None:
    thin, same = run_study(rpol_lines(keep=Keep(every=3)), segment=5), whole().isel(algorithm=slice(0, 2))
    assert thin["round"].values.tolist() == [-1, 0, 3, 6, 9, 12, 15, 18, 20]
    thinned = list(in_python().metrics)
    assert_same(thin[thinned], same[thinned].sel(round=thin["round"]))
    # These are arrays of all rounds or of no round.
    every = [name for name in thin.data_vars if name not in (*thinned, "index")]
    assert_same(thin[every], same[every])
    np.testing.assert_array_equal(thin["index"].values, same["index"].values[..., 2:])


def test_the_size_of_results_is_what_they_take() -> None:
    measures = whole()[list(in_python().metrics)].isel(algorithm=[0, 1], round=[0, 1, 4, 7, 10, 13, 16, 19, 21])
    for study, held in ((in_python(), whole()), (rpol_lines(keep=Keep(every=3), trajectories=False), measures)):
        assert held.nbytes * 0.6 < make_plan(study).result_bytes < held.nbytes * 1.7


def counts(plan: Plan) -> tuple[int, ...]:
    return tuple(cell.count for cell in plan.cells)


def test_batches_and_parts_change_nothing() -> None:
    """Small batches are padded, and all share the programs of one."""
    plan = make_plan(in_python(), segment=5)
    notes: list[str] = []
    memory = plan.result_bytes + max(cell.shared_bytes for cell in plan.cells) + 10 * max(cell.trial_bytes for cell in plan.cells)
    assert counts(plan) == (1, 1)
    assert counts(make_plan(in_python(), memory=memory, segment=5)) == (3, 2)
    small = run_study(in_python(), memory=memory, segment=5, note=notes.append)
    assert_same(small, whole(), tolerance=1e-5)
    # Each cell has a program that plays. Two that measure serve both: in the first part more points count.
    assert len([note for note in notes if note.startswith("compiled")]) == len(plan.cells) + 2


def test_results_written_batch_by_batch_are_those_gathered_at_once(tmp_path: Path) -> None:
    plan = make_plan(in_python(), segment=5, streamed=True)
    memory = max(cell.shared_bytes for cell in plan.cells) + 10 * max(cell.trial_bytes for cell in plan.cells)
    assert counts(make_plan(in_python(), memory=memory, segment=5, streamed=True)) == (3, 2)
    file = tmp_path / "out" / "results.nc"
    data = run_study(in_python(), tmp_path / "out", memory=memory, segment=5, results=file, attributes={"command": "by hand"})
    assert data is not None
    with data:
        assert not data.regret._in_memory and data.attrs["command"] == "by hand"
        assert_same(data, whole(), tolerance=1e-5)
        assert {name: (v.dims, v.dtype) for name, v in data.variables.items()} == {
            name: (v.dims, v.dtype) for name, v in whole().variables.items()
        }
    forget(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.nc", "results.nc.sha256"]


class Stop(Exception):
    """An interruption."""


def stop_at(part: int) -> Callable[[Any], None]:
    """Return a report that interrupts the run at a part.

    The part is not yet in a checkpoint.
    """
    before = iter(range(1, part))

    def report(progress: Any) -> None:
        if next(before, None) is None:
            raise Stop

    return report


def test_it_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """The run stops in the first cell, and again in the second."""
    notes: list[str] = []
    with pytest.raises(Stop):
        run_study(in_python(), tmp_path, segment=5, checkpoint_share=1.0, report=stop_at(2), note=notes.append)
    with pytest.raises(Stop):
        run_study(in_python(), tmp_path, resume=True, checkpoint_share=1.0, report=stop_at(5), note=notes.append)
    resumed = run_study(in_python(), tmp_path, resume=True, checkpoint_share=1.0, note=notes.append)
    assert_same(resumed, whole())
    places = [note for note in notes if note.startswith("resumed")]
    assert places == ["resumed at round 6 of batch 1 of cell 1", "resumed at round 6 of batch 1 of cell 2"]
    assert_same(run_study(in_python(), tmp_path, resume=True), whole())
    forget(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="resume: needs the directory"):
        run_study(in_python(), resume=True)
    with pytest.raises(CheckpointMismatch, match="holds no run"):
        run_study(in_python(), tmp_path, resume=True)
    with pytest.raises(Stop):
        run_study(in_python(), tmp_path, segment=5, report=stop_at(1))
    with pytest.raises(CheckpointMismatch, match="another study"):
        run_study(in_python(seed=3), tmp_path, resume=True)
    with jax.enable_x64(True), pytest.raises(CheckpointMismatch, match="another precision"):
        run_study(in_python(), tmp_path, resume=True)
    path = tmp_path / "study.json"
    record = json.loads(path.read_text())
    versions = {"jaxbandit": "version of jaxbandit", "jax": "version of JAX", "jaxlib": "version of jaxlib"}
    for name, words in (versions | {"device": "kind of device"}).items():
        path.write_text(json.dumps(record | {"identity": record["identity"] | {name: "0.0"}}))
        with pytest.raises(CheckpointMismatch, match=words):
            run_study(in_python(), tmp_path, resume=True)


@jaxbandit.pytree
class Holed(jaxbandit.problems.Family):
    """``sine``, whose reward is NaN everywhere in a share of the trials."""

    inner: Any
    share: Any = 0.5
    name: str = jaxbandit.static(default="holed")

    @property
    def domain(self) -> Any:
        return self.inner.domain

    @property
    def noise(self) -> Any:
        return self.inner.noise

    @property
    def constraints(self) -> int:
        return 1

    def sample(self, key: Any) -> Any:
        bad = jax.random.bernoulli(key, self.share)
        means = jax.numpy.asarray(self.inner.means)
        return jaxbandit.replace(self.inner, means=jax.numpy.where(bad, jax.numpy.nan, means))

    def observe(self, index: Any, drawn: Any) -> Any:
        return self.inner.observe(index, drawn)

    def validate(self) -> None:
        """Nothing: a user's family may not know."""


@pytest.mark.full
def test_a_bad_trial_is_flagged_and_kills_no_other() -> None:
    """The user's function is NaN there, and other trials are unchanged."""
    plain = {"delays": {"none": {"type": "NoDelay"}}, "initial": jaxbandit.InitialDesign()}
    random: dict[str, Any] = {"algorithms": {"random": jaxbandit.RandomSearch()}, "metrics": ("regret",), **plain}
    holed, sound = (
        run_study(in_python(problems={"holed": Holed(inner=jaxbandit.problems.sine(9), share=share)}, **random)) for share in (0.5, 0.0)
    )
    bad = holed.status.values[0] != 0
    assert 0 < bad.sum() < 11 and np.all(holed.failed_round.values[0, bad] == 1)
    assert np.isfinite(holed.regret.values[0, ~bad]).all()
    np.testing.assert_array_equal(holed.regret.values[0, ~bad], sound.regret.values[0, ~bad])
    assert flags_in_words(holed)[0].startswith("random: ") and flags_in_words(sound) == []
    # A table cannot hold a user's class.
    with pytest.raises(InvalidArgument, match="do not hold the study"):
        rerun(holed, 0)


@functools.cache
def random_lines(common: bool) -> xr.Dataset:
    """Return two equal runs on random instances."""
    study = in_python(
        problems={"draws": {"type": "gp_draws"}},
        algorithms={"a": jaxbandit.RandomSearch(), "b": jaxbandit.RandomSearch()},
        model=Model(kernel=SquaredExponential(length_scale=1.0), noise_variance=0.0025, form="features"),
        delays={"none": {"type": "NoDelay"}},
        trials=3,
        metrics=("strong_regret",),
        trajectories=True,
        initial=jaxbandit.InitialDesign(),
        common_random_numbers=common,
    )
    return run_study(study, segment=None if common else 5)


@pytest.mark.full
def test_other_random_numbers_for_every_line() -> None:
    own, shared = (random_lines(common).observed.values for common in (False, True))
    np.testing.assert_array_equal(shared[0], shared[1])
    assert not np.any(own[0, :, 0] == own[1, :, 0])


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, None, 0))
def instance_of(family: Any, root: Any, trial: Any) -> Any:
    return family.sample(stream_key(trial_key(root, trial), Stream.PROBLEM))


@pytest.mark.full
@pytest.mark.parametrize("common", [True, False])
def test_strong_regret_of_random_instances(common: bool) -> None:
    """Each line has the best mixed policies of its own instances."""
    found, family = random_lines(common), jaxbandit.canonicalise(jaxbandit.problems.gp_draws())
    for line in range(2):
        root = jax.random.key(0) if common else jax.random.fold_in(jax.random.key(0), line + 1)
        instances = instance_of(family, root, np.arange(3))
        for trial in range(3):
            instance = jax.tree.map(lambda x, trial=trial: np.asarray(x)[trial], instances)
            value = jaxbandit.problems.best_mixed_policy(instance)[0]
            expected = np.cumsum(value - instance.means.astype(np.float64)[0][found["index"].values[line, trial]])
            np.testing.assert_allclose(found.strong_regret.values[line, trial], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_one_trial_again_of_several_blocks() -> None:
    """Its batch holds more trials than run side by side."""
    small = {"metrics": ("regret", "soft_violation"), "initial": jaxbandit.InitialDesign()}
    study = in_python(trials=25, horizon=6, algorithms={"rpol": jaxbandit.Rpol()}, delays={"none": {"type": "NoDelay"}}, **small)
    (cell,) = make_plan(study).cells
    assert cell.size > cell.cell.block
    data = run_study(study)
    again = rerun(data, 17)
    for name in study.metrics:
        np.testing.assert_array_equal(again[name].values[0, 0], data[name].values[0, 17])


@pytest.mark.full(but=("cbo",))
@pytest.mark.parametrize("label", ["rpol reward_width=2.5", "cbo"])
def test_one_trial_again(label: str) -> None:
    again = rerun(whole(), 4, label=label)
    for name in in_python().metrics:
        np.testing.assert_array_equal(again[name].values[0, 0], whole()[name].sel(algorithm=label, trial=4).values)
    assert again.observed.shape == (1, 1, 20, 2) and again.trial.values.tolist() == [4]
    with pytest.raises(InvalidArgument, match="trials 0 to 10"):
        rerun(whole(), 11)
    with pytest.raises(InvalidArgument, match="must be one of"):
        rerun(whole(), 0, label="none such")


# The command line.


def test_run_report_and_rerun(tmp_path: Path, capsys: Any) -> None:
    study, out = written(tmp_path), tmp_path / "out"
    assert main(["run", str(study), "--out", str(out), "--no-cache", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "3 runs of 11 trials x 20 rounds" in told and "rank" in told and "MiB" in told and not out.exists()
    assert main(["run", str(study), "--out", str(out), "--no-cache", "--segment", "5"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["curves.png", "results.nc", "results.nc.sha256", "summary.csv"]
    assert_same(xr.load_dataset(out / "results.nc", engine="h5netcdf"), whole(), tolerance=1e-5)
    told = capsys.readouterr().out
    assert (
        "rpol reward_width=2.5" in told
        and "R regret, soft V violation of the sums over rounds" in " ".join(told.split())
        and "summary.csv and curves.png in" in told
    )
    # The results are there and are shown again.
    for again in ([], ["--resume"], ["--segment", "7"]):
        before = (out / "results.nc").read_bytes()
        assert main(["run", str(study), "--out", str(out), "--no-cache", *again]) == 0
        table, _, ending = capsys.readouterr().out.rpartition(str(out / "results.nc"))
        assert table == told.rpartition("wrote ")[0] and re.search(r"curves.png: made \d{4}-\d\d-\d\dT\S+; --force runs again", ending)
        assert (out / "results.nc").read_bytes() == before
    for text in (TOML.replace("reward_clip = 7", "reward_clip = 6"), "seed = 1" + TOML):
        other = written(tmp_path, text)
        assert main(["run", str(other), "--out", str(out), "--no-cache"]) == 2 and "not empty" in capsys.readouterr().err
    assert main(["rerun", str(out), "--trial", "3", "--out", str(tmp_path / "trial.nc")]) == 0
    # Four measures and the points agree.
    assert capsys.readouterr().out.count("the same bits") == 5
    assert main(["report", str(out)]) == 0 and (out / "report.html").stat().st_size > 10_000
    assert main(["names", "delay"]) == 0 and "Poisson: " in capsys.readouterr().out
    assert main(["names", "delay", "Poisson"]) == 0 and "mean = 1.0" in capsys.readouterr().out
    assert main(["names"]) == 0 and "strategy       Bounds, Randomised, Thompson" in capsys.readouterr().out
    assert main(["names", "delais"]) == 2 and "did you mean 'delay'" in capsys.readouterr().err
    assert main(["names", "delay", "Poison"]) == 2 and "did you mean 'Poisson'" in capsys.readouterr().err


WRONG = {
    "trils = 3\n" + TOML: "trils: unknown field, did you mean 'trials'",
    TOML.replace('type = "sine"', 'type = "sin"'): "there is no problem 'sin', did you mean 'sine'",
    TOML.replace('"Rpol"', '"Rpoll"'): "there is no algorithm 'Rpoll', did you mean 'Rpol'",
    TOML.replace("mean = 2\n", "men = 2\n"): "unknown field, did you mean 'mean'",
    TOML.replace("reward_clip = 7", "reward_clip = -7"): "reward_clip",
    TOML.replace('"estimator.reward_width"', '"estimator.reward_widht"'): "did you mean 'reward_width'",
    TOML.replace('{"estimator.reward_width" = [1, 2.5]}', '{"estimator.reward_width" = 1}'): "expected a list",
    TOML.replace('metrics = ["regret"', 'metrics = ["regrets"'): "there is no 'regrets', did you mean 'regret'",
    TOML + "\n[algorithm.bpe]\ntype = 'Bpe'\nsweep = {aware = [true, false]}\n": "is static",
    TOML.replace("trials = 11", "trials = 11\nkeep = {every = 2, log_spaced = 3}"): "not both",
    TOML.split("[problem.sine]")[0]: "problem: there is none",
    TOML.replace("trials = 11", "trials = six"): "is no TOML",
    TOML.replace("trials = 11", "trials = 0"): "trials: must be a whole number >= 1",
}


@pytest.mark.parametrize("text", WRONG, ids=[words[:24] for words in WRONG.values()])
def test_refusals_before_anything_compiles(tmp_path: Path, capsys: Any, text: str) -> None:
    assert main(["run", str(written(tmp_path, text)), "--out", str(tmp_path / "out"), "--no-cache"]) == 2
    assert WRONG[text] in capsys.readouterr().err
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_budgets_that_contradict_each_other(tmp_path: Path, capsys: Any) -> None:
    study = str(written(tmp_path))
    for options, words in (
        (["--resume"], "nothing to go on with"),
        (["--memory", "1KiB"], "allow"),
        (["--memory", "much"], "expected an amount"),
        (["--segment", "0"], "segment: must be a whole number"),
        (["--checkpoint-share", "0"], "checkpoint-share"),
    ):
        assert main(["run", study, "--out", str(tmp_path / "out"), "--no-cache", *options]) == 2
        assert words in capsys.readouterr().err
    assert main(["run", str(tmp_path / "none.toml")]) == 2 and "cannot read" in capsys.readouterr().err
    assert main(["rerun", str(tmp_path / "none.nc"), "--trial", "0"]) == 2 and "there is no" in capsys.readouterr().err
