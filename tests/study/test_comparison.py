"""Studies of runs written by hand."""

import dataclasses
import functools
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import jaxbandit
from jaxbandit import InitialDesign, InvalidArgument, domains, kernels, problems
from jaxbandit.core.declare import Array
from jaxbandit.delays import NEVER, NoDelay, Poisson
from jaxbandit.engine.simulation import carried_bytes
from jaxbandit.feedback import Censor
from jaxbandit.host import memory
from jaxbandit.study import Keep, Progress, Reporter, Run, Study, grid, make_plan, play, rerun, run_study
from jaxbandit.study.plan import Limits, rounds_of_part, seconds_of_batch
from jaxbandit.study.play import compile_together
from tests.support.counted import COMPILED, Counted

KERNEL = kernels.SquaredExponential(length_scale=1.0)
HORIZON = 15


DESIGN, GIVEN = InitialDesign(random=2, counted=True), InitialDesign(indices=np.asarray([3, 1]), counted=True)
CURVES = jax.jit(jaxbandit.metrics.curves)


def run_of(label: str, algorithm: Any, problem: Any, **more: Any) -> Run:
    model = jaxbandit.surrogate(problem.domain, KERNEL, noise_variance=0.05, outputs=problem.outputs, form="features", horizon=20)
    return Run(label, problem, algorithm, model, **{"initial": DESIGN, **more})


@functools.cache
def mixed() -> Study:
    """Runs that differ in problem, number of outputs, design and delay."""
    sine, free = problems.sine(7), problems.from_tables(domains.grid([0.0], [6.0], 20), np.sin(np.arange(20)), np.zeros((0, 20)))
    same = dataclasses.replace(sine)
    other = dataclasses.replace(sine, noise=problems.Gaussian(variance=0.01))
    runs = (
        # It shares the program of the last run.
        run_of("a", jaxbandit.RandomSearch(), sine),
        run_of("late", jaxbandit.Rpol(), same, delay=Poisson(mean=2.0), feedback=Censor(window=3, minimum=-1.0), initial=GIVEN),
        run_of("bpe", jaxbandit.Bpe(aware=False), free),
        run_of("quiet", jaxbandit.RandomSearch(), other),
    )
    return Study(name="mixed", runs=runs, horizon=HORIZON, trials=3, seed=2, parameters={"set": "any"}).keeping_everything()


@functools.cache
def results() -> xr.Dataset:
    return run_study(mixed())


@functools.cache
def alone(label: str) -> jaxbandit.Trajectory:
    return mixed().trajectory(next(run for run in mixed().runs if run.label == label))


@functools.cache
def thinned() -> xr.Dataset:
    return run_study(dataclasses.replace(mixed(), runs=mixed().runs[:1], keep=Keep(every=4)))


@pytest.mark.full
def test_it_is_what_simulate_gives() -> None:
    """Curves agree to the rounding of sums."""
    data, study = results(), mixed()
    for run in study.runs[1:3]:
        own, played = data.sel(algorithm=run.label), alone(run.label)
        outputs = run.problem.outputs
        np.testing.assert_array_equal(own["index"].values, played.scored_indices)
        np.testing.assert_array_equal(own.observed.values[..., :outputs], played.values)
        assert np.isnan(own.observed.values[..., outputs:]).all()
        value, _ = problems.best_mixed_policy(run.problem)
        curves = CURVES(jaxbandit.canonicalise(run.problem), played.scored_indices, mixed_value=value)
        for name in study.metrics:
            np.testing.assert_allclose(own[name].values, getattr(curves, name), rtol=2e-5, atol=2e-5, err_msg=f"{run.label} {name}")
        np.testing.assert_allclose(own.best_mixed_policy.values, value, rtol=1e-6)
    assert data["round"].values.tolist() == list(range(-1, HORIZON + 1)) and data.attrs["counted_before"] == 2


@pytest.mark.full
def test_what_some_lines_have_all_can_be_asked_for() -> None:
    data = results()
    np.testing.assert_array_equal(data.arrival.sel(algorithm="late").values, np.minimum(alone("late").arrivals, NEVER))
    own = np.arange(1, HORIZON + 1)[None, :, None]
    assert (data.arrival.sel(algorithm="a").values == own).all() and (data.arrival.sel(algorithm="bpe").values[..., 1] == NEVER).all()
    assert not data.lost.values.any() and data.lost.dims == ("algorithm", "trial", "output")
    alive = np.asarray(alone("bpe").candidates)
    np.testing.assert_array_equal(data.candidates.sel(algorithm="bpe").values, alive.sum(axis=1))
    assert (data.candidates.sel(algorithm="a").values == 49).all() and data.optimum_kept.sel(algorithm="a").values.all()
    assert "evaluations" not in data and "lost" not in thinned()
    for name in ("optimum", "feasible_fraction", "slater_slack", "best_mixed_policy", "status", "declared_round", "failed_round"):
        assert data[name].dims == ("algorithm", "trial")


def test_equal_problems_have_one_name() -> None:
    first, *others = mixed().runs
    study = dataclasses.replace(mixed(), runs=(first, run_of("b", jaxbandit.Rpol(), first.problem, initial=GIVEN), *others))
    runs = study.named_runs()
    assert [run.problem_label for run in runs] == ["sine", "sine", "sine", "user", "sine 2"]
    assert others[0].problem is not first.problem and runs[0].problem is runs[1].problem is runs[2].problem
    assert [run.delay_label for run in runs] == ["", "", "Poisson(mean 2)", "", ""]
    assert [len(cell.runs) for cell in make_plan(study).cells] == [1] * 5


@pytest.mark.full
def test_seconds_of_every_line_and_what_is_said_of_the_study() -> None:
    data = results()
    assert data.attrs["table"] == "" and data.attrs["parameters"] == '{"set": "any"}'
    assert (data.playing_seconds.values > 0).all() and (data.run_seconds.values > data.playing_seconds.values).all()


@pytest.mark.full
def test_seconds_of_playing_are_without_those_of_the_best_mixed_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, later = play.time.perf_counter, [0.0]
    monkeypatch.setattr(play, "time", SimpleNamespace(perf_counter=lambda: clock() + later[0]))
    monkeypatch.setattr(play.Player, "_best_mixed", lambda player, run, trial: later.append(later.pop() + 1e6) or 0.0)
    sine = problems.sine(7)
    data = run_study(Study("timed", [run_of("a", jaxbandit.RandomSearch(), sine)], trials=2, horizon=3, metrics=("strong_regret",)))
    assert data.run_seconds.values[0] > 2e6 > 1e6 > data.playing_seconds.values[0] > 0


@pytest.mark.full
def test_strong_regret_where_nothing_is_feasible() -> None:
    """No mixture is feasible either, so it is NaN."""
    domain = domains.grid([0.0], [1.0], 9)
    reward = np.linspace(-1.0, 1.0, 9)
    # Each point violates one constraint.
    costs = np.stack([np.where(np.arange(9) % 2, -1.0, 1.0), np.where(np.arange(9) % 2, 1.0, -1.0)])
    problem = problems.from_tables(domain, reward, costs)
    runs = (run_of("r", jaxbandit.RandomSearch(), problem, initial=InitialDesign()),)
    data = run_study(Study(name="none", runs=runs, horizon=8, trials=2).keeping_everything())
    assert np.isnan(data.regret.values).all() and (data.feasible_fraction.values == 0).all()
    value, policy = problems.best_mixed_policy(problem)
    np.testing.assert_allclose(costs @ policy, 0, atol=1e-9)
    np.testing.assert_allclose(data.strong_regret.values[0], np.cumsum(value - reward[data["index"].values[0]], axis=-1), atol=1e-5)
    np.testing.assert_allclose(data.reward.values[0], np.cumsum(reward[data["index"].values[0]], axis=-1), atol=1e-5)


@pytest.mark.full
def test_parts_give_what_one_program_does() -> None:
    """To the rounding of sums, thinned or not."""
    study = mixed()
    assert all(rounds == HORIZON and count == 1 for _, count, rounds, _ in make_plan(study).layout)
    some = dataclasses.replace(study, runs=study.runs[1:3])
    parts, same = run_study(some, segment=5), results().sel(algorithm=[run.label for run in some.runs])
    assert set(parts.data_vars) == set(same.data_vars)
    for name in set(parts.data_vars) - {"run_seconds", "playing_seconds"}:
        np.testing.assert_allclose(parts[name].values, same[name].values, rtol=1e-5, atol=1e-5, err_msg=name)
    thin, same = thinned(), results().sel(algorithm=["a"])
    assert thin["index"].dims == ("algorithm", "trial", "played") and thin["round"].values.tolist() == [-1, 0, 4, 8, 12, 15]
    np.testing.assert_array_equal(thin["index"].values, same["index"].values[..., 2:])
    np.testing.assert_array_equal(thin.strong_regret.values, same.strong_regret.sel(round=thin["round"]).values)


@pytest.mark.full
@pytest.mark.parametrize("label", ["a", "late", "bpe"])
def test_one_trial_again(label: str) -> None:
    """The same bits, strong regret too."""
    again, stored = rerun(results(), 1, label=label, study=mixed()), results().sel(algorithm=label, trial=1)
    for name in (*mixed().metrics, "index", "status", "best_mixed_policy"):
        np.testing.assert_array_equal(again[name].values[0, 0], stored[name].values, err_msg=name)
    with pytest.raises(InvalidArgument, match="not the one that these results are of"):
        rerun(results(), 1, study=dataclasses.replace(mixed(), seed=1))


# Parts and programs.


@pytest.mark.parametrize(("horizon", "parts", "rounds"), [(1000, 1, 1000), (1000, 10, 100), (1000, 7, 125), (997, 10, 99), (3, 10, 1)])
def test_parts_are_equal_where_they_can_be(horizon: int, parts: int, rounds: int) -> None:
    assert rounds_of_part(horizon, parts) == rounds


@pytest.mark.usefixtures("on_cpu")
def test_long_runs_are_heard_of() -> None:
    """Many trials make many batches, and a long block is cut."""
    runs = grid(problems={"sine": problems.sine(50)}, algorithms={"rpol": jaxbandit.Rpol()}, horizon=1000)
    study = Study(name="long", runs=runs, trials=50_000)
    ((many_size, many_count, many_rounds, _),) = make_plan(study).layout
    assert many_rounds == 1000 and many_count > 1
    plan = make_plan(dataclasses.replace(study, trials=8, horizon=3_000_000))
    (cell,), ((long_size, _, long_rounds, _),) = plan.cells, plan.layout
    assert long_rounds < 3_000_000 and 3_000_000 % long_rounds == 0
    for size, rounds in ((many_size, many_rounds), (long_size, long_rounds)):
        assert seconds_of_batch(carried_bytes(cell.cell), rounds, size, plan.devices) <= 1.01 * Limits.batch_seconds


def function(number: int) -> Callable[[Array], Array]:
    """Return a jitted function that this process has not compiled."""
    return jax.jit(lambda x: x + number)


def made(notes: list[str], *functions: Callable[[Array], Array]) -> float:
    """Compile functions together, and return the value of the first."""
    calls: list[Any] = [(each, (np.float32(1),), {}) for each in functions]
    compile_together(calls[0], lambda: calls, notes.append)
    with Counted() as events:
        value = float(functions[0](np.float32(1)))
    assert events[COMPILED] == 0
    return value


def test_programs_are_compiled_together_and_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(play, "cores", lambda: 2)
    monkeypatch.setattr(play, "MAX_COMPILED_TOGETHER", 2)
    a, b, c, d = map(function, range(4))
    notes: list[str] = []
    assert made(notes, a, a, c, d) == 1
    assert made(notes, c) == 3 and notes[0] == "compiling 2 programs" and len(notes) == 2, "the first two"
    assert made(notes, d, c) == 4 and notes[2] == "compiling 1 program"
    assert made(notes, a) == 1 and len(notes) == 4, "found among those that outlive a run"
    with jax.enable_x64(True):
        assert made(notes, a, b) == 1 and notes[4] == "compiling 2 programs", "in another arithmetic it is another program"


def test_programs_that_jax_forgets_are_compiled_together_again(monkeypatch: Any) -> None:
    a, b = map(function, range(2))
    notes: list[str] = []
    assert made(notes, a) == 1 and made(notes, a) == 1 and len(notes) == 2
    with monkeypatch.context() as few:
        few.setattr(memory.Programs, "max_maps", 1)
        few.setattr(memory.Programs, "maps", SimpleNamespace(exists=lambda: True, read_bytes=lambda: b"a map\n" * 2))
        assert made(notes, b) == 2 and len(notes) == 4
    assert made(notes, a) == 1 and len(notes) == 6


# Progress.


FIRST = Progress(
    title="E[tau] = 3",
    cell=0,
    cells=2,
    batch=0,
    batches=2,
    round=5,
    last=False,
    done=5,
    work=20,
    seconds=1.0,
    rate=5.0,
    left=9.0,
    metric="hard_violation",
    lines={"E[tau] = 3": 2.0},
)


def test_progress_in_plain_lines(capsys: Any) -> None:
    with Reporter() as (report, note):
        report(FIRST)
        note("[bold] stays")
        report(dataclasses.replace(FIRST, batch=1, round=10, last=True))
        report(dataclasses.replace(FIRST, last=True, lines={"w = 1": 2.0, "w = 2": 3.5}))
    begin = "[1/2] E[tau] = 3: round"
    assert capsys.readouterr().err.splitlines() == [
        "[bold] stays",
        f"{begin} 10, batch 2 of 2: 5 trial-rounds/s, 9 s left; mean hard violation: E[tau] = 3 2",
        f"{begin} 5, batch 1 of 2: 5 trial-rounds/s, 9 s left; mean hard violation: w = 1 2, w = 2 3.5",
    ]


def test_a_terminal_shows_a_bar(monkeypatch: Any) -> None:
    from rich.console import Console

    written = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda stderr: Console(file=written, force_terminal=True, width=160))
    with Reporter() as (report, note):
        report(FIRST)
        note("a line above")
    assert "a line above" in written.getvalue() and " 25%" in written.getvalue() and "[1/2] E[tau] = 3: round 5" in written.getvalue()


def test_a_delay_of_the_problem_is_its_lines() -> None:
    late = problems.sine_delayed(7, mean_delay=3.0)
    study = dataclasses.replace(mixed(), runs=(dataclasses.replace(mixed().runs[0], problem=late),))
    (run,) = study.named_runs()
    assert run.delay_label == "Poisson(mean 3)" and run.delay_in_force is late.delay
    assert isinstance(dataclasses.replace(run, delay=NoDelay()).delay_in_force, NoDelay)
    np.testing.assert_array_equal(study.instances(late).means, jax.numpy.asarray(late.means))
