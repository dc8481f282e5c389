"""Promises of runs, for four representatives and in random settings."""

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
from jaxbandit import delays, feedback, problems
from tests.support import conformance, panel
from tests.support.algorithms import ALGORITHMS, DEFAULTS, ON_RANGED_MODELS, REGISTERED, REPRESENTATIVES, SEPARATE
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
OTHERS = (4, 2, 0, 9, 1)
# The first delay can be late, and is in no run.
NEVER, LATE = delays.Geometric(mean=1e-9), delays.Geometric(mean=2.0)


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
    """Elements of ``numpy.arange`` turn up in sweeps."""
    with jax.enable_x64(True):
        expected = simulate(jaxbandit.Rpol(initial_penalty=2.0))
        for two in (2, np.int64(2), jnp.float32(2)):
            assert_same(simulate(jaxbandit.Rpol(initial_penalty=two)), expected, tolerance=0)
    swept = jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": np.arange(1, 3)})
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(swept))


@every_representative
def test_side_by_side_equals_one_by_one(name: str) -> None:
    """Blocks with padding agree with trials run alone."""
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


def test_recording_less_changes_nothing() -> None:
    """``"audit"`` adds draws, and ``"indices"`` leaves only choices and flags."""
    run = baseline("se2-thompson")
    assert_same(again("se2-thompson", record="all"), jaxbandit.replace(run, draws=None), tolerance=0)
    brief = again("se2-thompson", record="indices")
    assert brief.values is None and brief.multipliers is None and brief.widths is None
    np.testing.assert_array_equal(brief.indices, run.indices)
    np.testing.assert_array_equal(brief.status, run.status)


@pytest.mark.full(but=("censor",))
@pytest.mark.parametrize("policy", POLICIES)
def test_no_delay_is_a_delay_of_nothing(policy: str) -> None:
    """Decisions under late values differ."""
    options = {"precision": "float64", "record": "all" if policy == "censor" else "audit"}
    at_once = beside(REPRESENTATIVES, **options, **under(policy))
    with no_new_program():
        late = beside(REPRESENTATIVES, **options, **under(policy, LATE))
    for name, run in at_once.items():
        for field in ("indices", "multipliers", "widths"):
            expected = getattr(one_by_one(name), field)
            np.testing.assert_allclose(getattr(run, field), expected, rtol=1e-9, atol=1e-9, err_msg=f"{name} {field}")
        assert not np.array_equal(late[name].indices, run.indices), name
        assert np.all(jaxbandit.metrics.healthy(late[name].status)), name


def assert_common_noise(runs: dict[str, jaxbandit.Trajectory]) -> None:
    """Check that the noise does not depend on choices."""
    means = np.asarray(study()[0].means)
    seen = {name: run.values - np.moveaxis(means[:, run.indices], 0, -1) for name, run in runs.items()}
    first = next(iter(seen.values()))
    for name, noise in seen.items():
        # The tolerance is one subtraction's rounding.
        np.testing.assert_allclose(noise, first, rtol=0, atol=1e-14, err_msg=name)
    # Five standard errors of a standard deviation of 135 draws are 0.3.
    assert 0.8 < first.std() / np.sqrt(0.05) < 1.2
    assert len(np.unique(first)) == first.size
    assert len({run.indices.tobytes() for run in runs.values()}) > len(runs) // 2, "the choices do differ"


def test_noise_is_common_to_all_algorithms() -> None:
    assert_common_noise({name: baseline(name) for name in REPRESENTATIVES})


@pytest.mark.full
def test_without_constraints() -> None:
    """Every point is safe, and certainly feasible."""
    problem = study()[0]
    free = problems.from_tables(
        problem.domain, problem.means[0], np.zeros((0, problem.domain.size)), noise=problems.Gaussian(variance=0.05)
    )
    algorithms = {name: ALGORITHMS[name]() for name in ("cei", "safeopt")}
    model = conformance.surrogate(constraints=0)
    for run in panel.play(free, algorithms, model, horizon=6, trials=1, key=jax.random.key(0)).values():
        assert np.all(jaxbandit.metrics.healthy(run.status)) and run.multipliers.shape == (1, 7, 0)
        assert len(np.unique(run.indices)) > 1


SHARDED = """
import itertools, json, sys
import jax
import numpy as np
import jaxbandit
from jaxbandit.study import make_plan, run_study
from jaxbandit.study.play import Player
from tests.support import small_study
from tests.support.algorithms import REPRESENTATIVES
from tests.support.conformance import beside, named, simulate, variants
assert len(jax.devices()) == 4
runs = beside(REPRESENTATIVES, "float64", block=1)
with jax.enable_x64(True):
    one = jax.devices()[2]
    runs["one device"] = simulate(jaxbandit.Rpol(), devices=[one])
    assert {device for x in named(runs["one device"]).values() for device in x.devices()} == {one}
    runs["spread"] = simulate(jaxbandit.Rpol())
    assert {len(x.sharding.device_set) for x in named(runs["spread"]).values()} == {4}
    runs["swept"] = simulate(variants("anytime-cbo-keep"))
    assert len(runs["swept"].values.sharding.device_set) == 4
report = {name: {path: np.asarray(x).tolist() for path, x in named(run).items()} for name, run in runs.items()}
print(json.dumps(report))

study = small_study.one_cell_in_python(trials=40)
plan = make_plan(study, segment=5)
memory = plan.result_bytes + plan.cells[0].shared_bytes + 40 * plan.cells[0].trial_bytes  # for half of both lines' trials
real, counts = Player._kept, []

def kept(self, first, *arrays):
    counts.append({len(x.sharding.device_set) for x in jax.tree.leaves(arrays)})
    return real(self, first, *arrays)

Player._kept = kept
whole = run_study(study, segment=5, memory=memory, checkpoint_share=1.0)
Player._kept = real
assert counts and all(count == {4} for count in counts), counts
assert len(json.loads(whole.attrs["devices"])) == 4 and json.loads(whole.attrs["batches"])[0][1] == 2
for begun, other, parts in ((4, 1, 2), (1, 4, 5)):
    out, reports, notes = f"{sys.argv[1]}/{begun}", itertools.count(1 - parts), []
    options = {"segment": 5, "memory": memory, "checkpoint_share": 1.0, "devices": jax.devices()[:begun]}
    try:
        run_study(study, out, report=lambda progress: 1 / next(reports), **options)
    except ZeroDivisionError:
        pass
    resumed = run_study(study, out, resume=True, devices=jax.devices()[:other], note=notes.append)
    print([note for note in notes if note.startswith("resumed")])
    small_study.assert_same(resumed, whole)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the output of a process with four devices."""
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]).strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    command = [sys.executable, "-c", SHARDED, str(tmp_path_factory.mktemp("studies"))]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.full
def test_a_study_goes_on_with_another_number_of_devices_to_the_same_bits(said: list[str]) -> None:
    """Runs that four devices or one begin continue on the other."""
    assert said[1:] == ["['resumed at round 6 of batch 1 of cell 1']", "[]"]


@pytest.mark.full
def test_sharded_equals_unsharded(said: list[str]) -> None:
    """Compare five trials over four devices with this process's run.

    What is swept, of a wrapped algorithm and in a program of its own, is played by one of several algorithms here.
    """
    report = json.loads(said[0])
    assert report.keys() == {*REPRESENTATIVES, "one device", "spread", "swept"}
    for name, fields in report.items():
        other = swept("anytime-cbo-keep") if name == "swept" else one_by_one(name if name in REPRESENTATIVES else "rpol")
        expected = named(other)
        assert fields.keys() == expected.keys()
        for path, array in expected.items():
            seen = np.asarray(fields[path], array.dtype).reshape(array.shape)
            # Equal bits were seen on a CPU.
            tolerance = 0 if np.issubdtype(array.dtype, np.integer) else 1e-9
            np.testing.assert_allclose(seen, array, rtol=tolerance, atol=tolerance, err_msg=f"{name}{path}")


# Every other algorithm, once.


class Row(NamedTuple):
    """Algorithms that share a program, and its settings."""

    precision: str
    form: str
    policy: str
    block: int
    record: str
    names: tuple[str, ...]


# Rows have no joint draws; BPE waits for what is late, and is under delay in algorithms/test_bpe.py.
TABLE = [
    Row("float32", "rows", "at-once", 100, "audit", ("bpe", "rpol-randomised", "config", "safeopt-lipschitz", "se3-no-restart")),
    Row("float32", "rows", "hallucinate", 100, "all", ("se2-polynomial-restart", "epbo", "cei", "sgp-ucb")),
    Row("float32", "rows", "wait", 100, "indices", ("cbo", "se3", "anytime-cbo", "oracle")),
    Row("float32", "product", "censor", 100, "audit", ("epbo-thompson", "unconstrained-randomised", "primal-dual", "cbo-thompson")),
    Row("float32", "product", "hallucinate", 4, "indices", ("unconstrained-thompson", "cbo-uniform", "unconstrained", "random-search")),
    Row("float64", "rows", "censor", 4, "indices", ("scgp", "config-randomised", "se2", "anytime-se3-keep", "cei-augmented")),
    Row("float64", "product", "at-once", 4, "audit", ("bpe-code", "constrained-thompson", "rpol-thompson", "se3-randomised")),
    Row("float64", "product", "wait", 4, "all", ("stageopt", "cei-observed", "scgp-2-thompson", "cbo-randomised")),
]
# The tests above play these.
STANDING = [
    *(Row("float64", "features", "at-once", 4, record, ()) for record in ("audit", "all", "indices")),
    *(Row("float64", "features", policy, 100, "all" if policy == "censor" else "audit", ()) for policy in POLICIES),
    Row("float32", "features", "at-once", 100, "audit", ()),
]
# These learn in ways of their own and need programs of their own.
BY_THEMSELVES = (*REGISTERED, *SEPARATE, *ON_RANGED_MODELS)


def test_every_other_algorithm_is_dealt_once_and_every_two_settings_meet() -> None:
    dealt = [name for row in TABLE for name in row.names]
    assert sorted(dealt) == sorted({*ALGORITHMS} - {*REPRESENTATIVES, *BY_THEMSELVES})
    settings = list(zip(*(row[:-1] for row in (*TABLE, *STANDING)), strict=True))
    for first, second in itertools.combinations(settings, 2):
        assert {*zip(first, second, strict=True)} == {*itertools.product(first, second)}


@functools.cache
def references() -> dict[str, jaxbandit.Trajectory]:
    """Return runs of one trial at a time with the fullest record."""
    return beside([name for row in TABLE if row[:2] == ("float64", "product") for name in row.names], "float64", form="product", block=1)


@pytest.mark.full
@pytest.mark.parametrize("row", TABLE, ids=lambda row: "-".join(map(str, row[:-1])))
def test_dealt_settings(row: Row) -> None:
    """Values, seeds, trials, delays and blocks need no other program."""

    def play(delay: Any = NEVER, **changes: Any) -> dict[str, jaxbandit.Trajectory]:
        options = {"form": row.form, "block": row.block, "record": row.record, **under(row.policy, delay)}
        return beside(row.names, row.precision, **options, **changes)

    runs = play()
    with no_new_program():
        scaled, others, other, late = play(factor=0.75), play(trials=OTHERS), play(seed=1), play(LATE)
    for name, run in runs.items():
        assert_healthy(run, row.precision, name, row.record)
        assert_seeded(run, others[name], other[name])
        if row.record == "audit":
            assert_draws(run, name)
        assert row.record == "indices" or name not in DEFAULTS or not np.array_equal(scaled[name].widths, run.widths), name
        assert np.all(jaxbandit.metrics.healthy(late[name].status)), name
        still = row.policy == "at-once" or name in ("oracle", "random-search")
        assert np.array_equal(late[name].indices, run.indices) == still, name
        if row[:2] == ("float64", "product"):
            for field in ("indices", "values", "multipliers", "widths"):
                expected = getattr(references()[name], field)
                np.testing.assert_allclose(getattr(run, field), expected, rtol=1e-9, atol=1e-9, err_msg=f"{name} {field}")


@pytest.mark.full
def test_noise_is_common_to_other_algorithms() -> None:
    assert_common_noise(references())


@pytest.mark.full
@pytest.mark.parametrize("name", BY_THEMSELVES)
def test_algorithms_by_themselves(name: str) -> None:
    """Compare blocks with padding and single trials under no delay."""
    run = baseline(name)
    assert_healthy(run, "float64", name)
    with no_new_program():
        again(name, factor=0.75)
        assert_seeded(run, again(name, trials=OTHERS), again(name, seed=1))
    # The tests of ADMMBO and OCO compare their blocks.
    if ALGORITHMS[name]().traits.needs_feedback_at_once:
        return
    with jax.enable_x64(True):
        at_once, late = (simulate(ALGORITHMS[name](), block=1, **under("wait", delay)) for delay in (NEVER, LATE))
    for field in ("indices", "multipliers", "widths"):
        np.testing.assert_allclose(getattr(at_once, field), getattr(run, field), rtol=1e-9, atol=1e-9, err_msg=field)
    assert not np.array_equal(late.indices, run.indices) and np.all(jaxbandit.metrics.healthy(late.status))
