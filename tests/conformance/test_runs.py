"""What runs promise: of four algorithms that stand for all, one promise at a time; of every other, in settings that are dealt."""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import delays, feedback, kernels, problems
from tests.support import conformance
from tests.support.algorithms import ALGORITHMS, DEFAULTS, ON_RANGED_MODELS, REGISTERED, REPRESENTATIVES
from tests.support.conformance import (
    HORIZON,
    TRIALS,
    again,
    assert_draws,
    assert_healthy,
    assert_same,
    assert_seeded,
    baseline,
    beside,
    named,
    no_new_program,
    one_by_one,
    simulate,
    study,
    swept,
)
from tests.support.paths import ROOT

every_representative = pytest.mark.parametrize("name", REPRESENTATIVES)
POLICIES: dict[str, Any] = {
    "wait": feedback.Wait(),
    "hallucinate": feedback.Hallucinate(),
    "censor": feedback.Censor(window=3, minimum=-1.0),
}
OTHERS = (4, 2, 0, 9, 1)  # numbers of trials
NEVER, LATE = delays.Geometric(mean=1e-9), delays.Geometric(mean=2.0)  # the first can be late, and in no run is


def under(policy: str, delay: Any = NEVER) -> dict[str, Any]:
    """The options of a run under a feedback policy."""
    return {} if policy == "at-once" else {"delay": delay, "feedback": POLICIES[policy], "capacity": HORIZON}


@functools.cache
def in_float32() -> dict[str, jaxbandit.Trajectory]:
    return beside(REPRESENTATIVES, "float32")


@every_representative
def test_results_are_finite_and_of_the_engines_type(name: str) -> None:
    for run, precision in ((baseline(name), "float64"), (in_float32()[name], "float32")):
        assert_healthy(run, precision, name)
        assert_draws(run, name)


@every_representative
def test_new_values_do_not_compile_again(name: str) -> None:
    """Hyper-parameters, however they are written, seeds, tables and trial numbers are data."""
    run = baseline(name)
    with no_new_program():
        other = again(name, factor=0.5)
        assert_seeded(run, again(name, trials=OTHERS), again(name, seed=1))
        as_numpy = jax.tree.map(lambda x: np.float32(x) if float(x).is_integer() else x, ALGORITHMS[name]())
        with jax.enable_x64(True):
            assert_same(simulate(as_numpy), run, tolerance=0)
    assert not np.array_equal(other.widths, run.widths), "the hyper-parameters reach the run"


def test_new_values_do_not_compile_again_in_float32() -> None:
    in_float32()
    with no_new_program():
        beside(REPRESENTATIVES, "float32", factor=0.75, seed=1, trials=(7, 1, 3, 30, 5))


def test_a_new_horizon_does_compile_again() -> None:
    """The check of the tests around this one can fail."""
    baseline("rpol")
    with jax.enable_x64(True), no_new_program(), pytest.raises(AssertionError, match="traced"):
        simulate(jaxbandit.Rpol(), horizon=HORIZON - 1)


def test_integers_are_numbers_too() -> None:
    """As elements of ``numpy.arange`` they turn up in sweeps."""
    with jax.enable_x64(True):
        expected = simulate(jaxbandit.Rpol(initial_penalty=2.0))
        for two in (2, np.int64(2), jnp.float32(2)):
            assert_same(simulate(jaxbandit.Rpol(initial_penalty=two)), expected, tolerance=0)
    swept = jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": np.arange(1, 3)})
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(swept))


@every_representative
def test_side_by_side_equals_one_by_one(name: str) -> None:
    """In blocks with padding, in a program of its own, and one trial at a time, in a program with others."""
    # Equal bits were seen on a CPU; matrix products may sum in other orders elsewhere.
    assert_same(one_by_one(name), baseline(name), tolerance=1e-9)


@every_representative
def test_a_sweep_equals_its_runs(name: str) -> None:
    together = swept(name)
    assert together.indices.shape == (2, TRIALS, HORIZON)
    with jax.enable_x64(True):
        alone = simulate(conformance.variants(name).unstack()[0])
    assert_same(jax.tree.map(lambda x: x[0], together), alone, tolerance=1e-9)
    assert not np.array_equal(together.widths[0], together.widths[1]), "the swept field acts"


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("name", ["rpol", "anytime-cbo-keep"])
def test_a_sweep_in_a_program_of_its_own(name: str) -> None:
    with jax.enable_x64(True):
        together = simulate(conformance.variants(name), block=TRIALS)  # side by side without padding
    assert_same(together, swept(name), tolerance=1e-9)


def test_recording_less_changes_nothing() -> None:
    """``record="audit"`` adds what was drawn, and ``"indices"`` leaves out all but choices and flags."""
    run = baseline("se2-thompson")
    assert_same(again("se2-thompson", record="all"), jaxbandit.replace(run, draws=None), tolerance=0)
    brief = again("se2-thompson", record="indices")
    assert brief.values is None and brief.multipliers is None and brief.widths is None
    np.testing.assert_array_equal(brief.indices, run.indices)
    np.testing.assert_array_equal(brief.status, run.status)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_delay_is_a_delay_of_nothing(policy: str) -> None:
    """The same decisions when what is observed takes the way of delayed feedback, and different ones when it is late."""
    at_once = beside(REPRESENTATIVES, "float64", **under(policy))
    with no_new_program():
        late = beside(REPRESENTATIVES, "float64", **under(policy, LATE))
    for name, run in at_once.items():
        for field in ("indices", "multipliers", "widths"):
            expected = getattr(baseline(name), field)
            np.testing.assert_allclose(getattr(run, field), expected, rtol=1e-9, atol=1e-9, err_msg=f"{name} {field}")
        assert not np.array_equal(late[name].indices, run.indices), name
        assert np.all(jaxbandit.metrics.healthy(late[name].status)), name


def assert_common_noise(runs: dict[str, jaxbandit.Trajectory]) -> None:
    """Trial ``i`` sees the same noise in round ``t`` whatever was chosen, so differences between algorithms are theirs."""
    means = np.asarray(study()[0].means)
    seen = {name: run.values - np.moveaxis(means[:, run.indices], 0, -1) for name, run in runs.items()}
    first = next(iter(seen.values()))
    for name, noise in seen.items():
        np.testing.assert_allclose(noise, first, rtol=0, atol=1e-14, err_msg=name)  # one subtraction's rounding
    assert 0.8 < first.std() / np.sqrt(0.05) < 1.2  # 135 draws: 5 standard errors of a standard deviation are 0.3
    assert len(np.unique(first)) == first.size
    assert len({run.indices.tobytes() for run in runs.values()}) > len(runs) // 2, "the choices do differ"


def test_noise_is_common_to_all_algorithms() -> None:
    assert_common_noise({name: baseline(name) for name in REPRESENTATIVES})


@pytest.mark.full(but=("safeopt",))
@pytest.mark.parametrize("name", ["cei", "safeopt"])
def test_without_constraints(name: str) -> None:
    """Every point is safe, and certainly feasible."""
    problem = study()[0]
    free = problems.from_tables(
        problem.domain, problem.means[0], np.zeros((0, problem.domain.size)), noise=problems.Gaussian(variance=0.05)
    )
    model = jaxbandit.surrogate(free.domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05, outputs=1, form="features")
    run = jaxbandit.simulate(free, ALGORITHMS[name](), model, horizon=6, trials=1, key=jax.random.key(0))
    assert np.all(jaxbandit.metrics.healthy(run.status)) and run.multipliers.shape == (1, 7, 0)
    assert len(np.unique(run.indices)) > 1


SHARDED = """
import json
import jax
import numpy as np
import jaxbandit
from tests.support.algorithms import REPRESENTATIVES
from tests.support.conformance import beside, named, simulate
assert len(jax.devices()) == 4
runs = beside(REPRESENTATIVES, "float64", block=1)
with jax.enable_x64(True):
    one = jax.devices()[2]
    runs["one device"] = simulate(jaxbandit.Rpol(), devices=[one])
    assert {device for x in named(runs["one device"]).values() for device in x.devices()} == {one}
    runs["spread"] = simulate(jaxbandit.Rpol())
    assert {len(x.sharding.device_set) for x in named(runs["spread"]).values()} == {4}
    swept = simulate(jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": [0.5, 1.0]}))
    assert len(swept.values.sharding.device_set) == 4
    runs["swept"] = jax.tree.map(lambda x: x[1], swept)
report = {name: {path: np.asarray(x).tolist() for path, x in named(run).items()} for name, run in runs.items()}
print(json.dumps(report))
"""


@pytest.mark.full
def test_sharded_equals_unsharded() -> None:
    """Five trials spread over four devices, with padding, or all on the third of them, against this process's run on its only one."""
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]).strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    done = subprocess.run(
        [sys.executable, "-c", SHARDED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.keys() == {*REPRESENTATIVES, "one device", "spread", "swept"}
    for name, fields in report.items():
        expected = named(one_by_one(name if name in REPRESENTATIVES else "rpol"))
        assert fields.keys() == expected.keys()
        for path, array in expected.items():
            seen = np.asarray(fields[path], array.dtype).reshape(array.shape)
            tolerance = 0 if np.issubdtype(array.dtype, np.integer) else 1e-9  # equal bits were seen on a CPU
            np.testing.assert_allclose(seen, array, rtol=tolerance, atol=tolerance, err_msg=f"{name}{path}")


# Every other algorithm, once.


class Row(NamedTuple):
    """Algorithms that share a program, and its settings; ``block`` is that of trials of all of them."""

    precision: str
    form: str
    policy: str
    block: int
    record: str
    names: tuple[str, ...]


# Every two settings meet. Rows have no joint draws; BPE waits for what is late, and is under delay in unit/algorithms/test_bpe.py.
TABLE = [
    Row("float32", "features", "at-once", 4, "all", ("rpol-thompson", "bpe", "safeopt-lipschitz")),
    Row("float32", "features", "hallucinate", 100, "audit", ("se3-randomised", "config", "cei")),
    Row("float32", "product", "wait", 4, "all", ("cbo-thompson", "se2", "primal-dual")),
    Row("float32", "product", "censor", 4, "audit", ("epbo", "unconstrained-randomised", "oracle")),
    Row("float32", "rows", "at-once", 4, "indices", ("rpol-randomised", "stageopt")),
    Row("float32", "rows", "wait", 100, "audit", ("cbo-uniform", "anytime-cbo", "cei-observed")),
    Row("float64", "features", "wait", 100, "indices", ("scgp-2-thompson", "anytime-se3-keep", "sgp-ucb")),
    Row("float64", "features", "censor", 100, "all", ("unconstrained-thompson", "cbo", "epbo-thompson")),
    Row("float64", "product", "at-once", 100, "audit", ("scgp", "bpe-code", "constrained-thompson")),
    Row("float64", "product", "hallucinate", 100, "indices", ("se2-polynomial-restart", "cbo-randomised")),
    Row("float64", "rows", "censor", 100, "indices", ("se3", "random-search")),
    Row("float64", "rows", "hallucinate", 4, "all", ("config-randomised", "unconstrained")),
]
BY_THEMSELVES = (*REGISTERED, *ON_RANGED_MODELS)  # which learn in ways of their own, for which no program has room beside others


def test_every_other_algorithm_is_dealt_once_and_every_two_settings_meet() -> None:
    dealt = [name for row in TABLE for name in row.names]
    assert sorted(dealt) == sorted({*ALGORITHMS} - {*REPRESENTATIVES, *BY_THEMSELVES})
    settings = [row[:-1] for row in TABLE]
    for (i, first), (j, second) in itertools.combinations(enumerate(zip(*settings, strict=True)), 2):
        met = {(setting[i], setting[j]) for setting in settings}
        assert met == set(itertools.product(first, second))


@functools.cache
def references(precision: str, form: str) -> dict[str, jaxbandit.Trajectory]:
    """One trial at a time, at once, with all that can be recorded, from one program of all rows of a precision and a form."""
    names = [name for row in TABLE if (row.precision, row.form) == (precision, form) for name in row.names]
    return beside(names, precision, form=form, block=1)


def assert_as_recorded(run: jaxbandit.Trajectory, expected: jaxbandit.Trajectory, row: Row, name: str) -> None:
    """What is recorded is what was recorded by the reference, but where rounding decides between points of equal scores."""
    recorded = {"audit": ("indices", "values", "multipliers", "widths", "draws"), "all": ("indices", "values", "multipliers", "widths")}
    for field in recorded.get(row.record, ("indices",)):
        seen, known = getattr(run, field), getattr(expected, field)
        assert (seen is None) == (known is None), (name, field)
        if seen is not None:
            tolerance = {"float32": 1e-3, "float64": 1e-8}[row.precision]
            np.testing.assert_allclose(seen, known, rtol=tolerance, atol=tolerance, err_msg=f"{name} {field}")
    if row.record != "audit":
        assert run.draws is None, name
    if row.record == "indices":
        assert run.values is None and run.multipliers is None and run.widths is None, name
    np.testing.assert_array_equal(run.status, expected.status, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("row", TABLE, ids=lambda row: "-".join(map(str, row[:-1])))
def test_dealt_settings(row: Row) -> None:
    """A delay of nothing, blocks and less that is recorded change nothing; new values, seeds, trials and delays do not compile again."""
    known = references(row.precision, row.form)
    options = {"form": row.form, "block": row.block, "record": row.record}

    def play(delay: Any = NEVER, **changes: Any) -> dict[str, jaxbandit.Trajectory]:
        return beside(row.names, row.precision, **options, **under(row.policy, delay), **changes)

    runs = play()
    with no_new_program():
        other, others, late = play(factor=0.75, seed=1), play(trials=OTHERS), play(LATE)
    for name in row.names:
        run = runs[name]
        assert_healthy(known[name], row.precision, name)
        assert_draws(known[name], name)
        assert_as_recorded(run, known[name], row, name)
        for here, there in ((0, 4), (1, 2), (2, 0), (4, 1)):
            np.testing.assert_array_equal(others[name].indices[here], run.indices[there], err_msg=name)
        if row.record == "indices":
            assert name == "oracle" or not np.array_equal(other[name].indices, run.indices), name
        else:
            assert not np.any(other[name].values == run.values), name
            assert name not in DEFAULTS or not np.array_equal(other[name].widths, run.widths), "the hyper-parameters reach the run"
        if row.policy != "at-once":
            assert name in ("oracle", "random-search") or not np.array_equal(late[name].indices, run.indices), name
            assert np.all(jaxbandit.metrics.healthy(late[name].status)), name


@pytest.mark.full
@pytest.mark.parametrize("form", ["features", "product", "rows"])
def test_noise_is_common_to_every_other_algorithm(form: str) -> None:
    assert_common_noise(references("float64", form))


@pytest.mark.full
@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_algorithms_by_themselves(name: str) -> None:
    """In blocks with padding and one by one, or without delay and under one of nothing where values may be late."""
    run = baseline(name)
    assert_healthy(run, "float64", name)
    with no_new_program():
        again(name, factor=0.75)
        assert_seeded(run, again(name, trials=OTHERS), again(name, seed=1))
    policy = "at-once" if ALGORITHMS[name]().needs_feedback_at_once else "wait"
    with jax.enable_x64(True):
        alone = simulate(ALGORITHMS[name](), block=1, **under(policy))
        for field in ("indices", "multipliers", "widths"):
            np.testing.assert_allclose(getattr(alone, field), getattr(run, field), rtol=1e-9, atol=1e-9, err_msg=field)
        if policy == "wait":
            late = simulate(ALGORITHMS[name](), block=1, **under(policy, LATE))
            assert not np.array_equal(late.indices, run.indices) and np.all(jaxbandit.metrics.healthy(late.status))
