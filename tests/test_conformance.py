"""What every algorithm owes the engine. A new algorithm is covered by one row in ``ALGORITHMS``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, estimators, kernels, problems
from jaxbandit.algorithms import Arena, Observation
from jaxbandit.algorithms.base import sees_samples
from jaxbandit.core.pytree import unstack
from jaxbandit.simulate.batch import _run

ALGORITHMS: dict[str, Callable[[], Any]] = {
    "rpol": jaxbandit.Rpol,
    "rpol-thompson": lambda: jaxbandit.Rpol(estimator=estimators.Thompson()),
    "cbo": lambda: jaxbandit.Cbo(reward_clip=4.0),
    "cbo-randomised": lambda: jaxbandit.Cbo(estimator=estimators.Randomised(), reward_clip=4.0),
    "config": jaxbandit.Config,
    "epbo": jaxbandit.Epbo,
    "scgp": lambda: jaxbandit.Scgp(reward_clip=4.0),
    "se2": lambda: jaxbandit.Se2(epoch=3),
    "se3": lambda: jaxbandit.Se3(epoch=3, restart=True),
    "unconstrained": jaxbandit.Unconstrained,
    "anytime-cbo": lambda: jaxbandit.Anytime(algorithm=jaxbandit.Cbo(reward_clip=4.0)),
}
HORIZON, TRIALS, CONSTRAINTS = 9, 5, 2

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@functools.cache
def study() -> tuple[problems.Problem, problems.FullInformation]:
    """A small problem without symmetry, so that scores do not tie, and the same with constraint functions revealed."""
    rng = np.random.default_rng(0)
    domain = domains.product([np.sort(rng.random(6)), np.sort(rng.random(5))])
    tables = rng.standard_normal((1 + CONSTRAINTS, domain.size))
    problem = problems.from_tables(domain, tables[0], tables[1:] - 0.3, noise=problems.Gaussian(variance=0.05))
    return problem, problems.full_information(problem)


def surrogate() -> jaxbandit.Surrogate:
    """The model, in the engine's current precision."""
    kernel = kernels.SquaredExponential(length_scale=0.3)
    return jaxbandit.surrogate(study()[0].domain, kernel, noise_variance=0.05, outputs=1 + CONSTRAINTS, form="features")


def simulate(algorithm: Any, *, seed: int = 0, trials: Any = TRIALS, **options: Any) -> jaxbandit.Trajectory:
    """A run in the engine's current precision."""
    inner = algorithm.stacked if isinstance(algorithm, jaxbandit.Sweep) else algorithm
    problem = study()[1 if hasattr(inner, "reveal") else 0]
    options = {"horizon": HORIZON, **options}
    return jaxbandit.simulate(problem, algorithm, surrogate(), trials=trials, key=jax.random.key(seed), **options)


@functools.cache
def baseline(name: str) -> jaxbandit.Trajectory:
    """Five trials side by side, in float64; compiled once for all tests of an algorithm."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, simulate(ALGORITHMS[name](), block=TRIALS))


def assert_same(a: Any, b: Any, *, tolerance: float) -> None:
    """Equal integers, and floats within ``tolerance`` of each other; the fields are named in the failure."""
    left, right = jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b)
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, x), (_, y) in zip(left, right, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape, path
        if np.issubdtype(x.dtype, np.integer) or tolerance == 0:
            np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))
        else:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def named(run: jaxbandit.Trajectory) -> dict[str, Any]:
    """The arrays of a trajectory by name."""
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(run)}


def traces(run: Callable[[], Any]) -> int:
    """How many new programs ``run`` compiled."""
    before = _run._cache_size()
    run()
    return _run._cache_size() - before


def scaled(algorithm: Any, factor: float) -> Any:
    return jax.tree.map(lambda x: x * factor, algorithm)


def first_field(algorithm: Any) -> tuple[str, float]:
    """The name of a scalar hyper-parameter, as ``sweep`` writes it, and its value."""
    for path, value in jax.tree_util.tree_leaves_with_path(algorithm):
        if all(isinstance(step, jax.tree_util.GetAttrKey) for step in path) and np.ndim(value) == 0:
            return "__".join(step.name for step in path), float(value)
    raise AssertionError("the algorithm has no scalar hyper-parameter")


@every_algorithm
def test_default_construction_is_valid_and_named(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    algorithm.validate(CONSTRAINTS)
    assert isinstance(algorithm.name, str) and algorithm.name == type(algorithm).__name__.lower()


@every_algorithm
def test_it_is_a_frozen_pytree_of_floats(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    leaves, structure = jax.tree.flatten(algorithm)
    assert leaves, "hyper-parameters are leaves"
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(algorithm) and again == algorithm
    # Nothing on the way in or out of a transformation converts, checks or loses a field.
    assert jax.tree.structure(jax.jit(lambda x: x)(algorithm)) == structure
    assert all(x is None for x in jax.tree.leaves(jax.tree.unflatten(structure, [None] * len(leaves)), is_leaf=lambda x: x is None))
    arrays = jaxbandit.canonicalise(algorithm)
    assert all(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(arrays))
    assert_same(jaxbandit.canonicalise(arrays), arrays, tolerance=0)
    with pytest.raises(AttributeError):
        algorithm.estimator = None
    with pytest.raises(TypeError):
        jaxbandit.replace(algorithm, no_such_field=1)


LOOKALIKES = {
    "kernels": [kernels.SquaredExponential(), kernels.Matern12(), kernels.Matern32(), kernels.Matern52()],
    "algorithms": [jaxbandit.Config(), jaxbandit.Unconstrained()],
    "strategies": [estimators.Bounds(), estimators.Thompson()],
    "algorithms by strategy": [jaxbandit.Rpol(), jaxbandit.Rpol(estimator=estimators.Thompson())],
}


@pytest.mark.parametrize("kind", LOOKALIKES)
def test_classes_with_equal_fields_are_different_structures(kind: str) -> None:
    """``jit`` looks programs up by structure: were these equal, one class would now and then run another's program.

    ``jax.tree_util.register_dataclass`` of JAX 0.10.2 makes them equal, with different hashes, so it shows by chance only.
    """
    structures = [jax.tree.structure(x) for x in LOOKALIKES[kind]]
    for i, a in enumerate(structures):
        for j, b in enumerate(structures):
            assert (a == b) == (i == j), f"{a} and {b}"
    assert structures == [jax.tree.structure(x) for x in LOOKALIKES[kind]]


def test_jit_never_takes_one_class_for_another() -> None:
    """420 classes of one field each: with equal structures some 60 of them were answered for by another."""
    for attempt in range(21):
        names = [f"Kind{attempt}x{i}" for i in range(20)]
        classes = [jaxbandit.pytree(type(name, (), {"__annotations__": {"value": float}, "value": 1.0})) for name in names]
        which = jax.jit(lambda x, classes=classes: classes.index(type(x)) + 0 * x.value)
        assert [int(which(cls())) for cls in classes] == list(range(20))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_algorithm
def test_the_carry_is_stable(name: str, precision: str) -> None:
    """``init``, ``select`` and ``update`` give states of one structure, one set of shapes and one set of types."""
    with jax.enable_x64(precision == "float64"):
        algorithm, arena = jaxbandit.canonicalise(ALGORITHMS[name]()), Arena(surrogate=surrogate(), horizon=jnp.int32(HORIZON))
        size, key, t = arena.surrogate.domain.size, jax.random.key(0), jnp.int32(1)
        values, index = jnp.zeros(1 + CONSTRAINTS, precision), jnp.int32(0)
        start = jax.eval_shape(algorithm.init, arena)
        state = start
        if sees_samples(algorithm):
            state = jax.eval_shape(algorithm.reveal, arena, state, jnp.zeros((CONSTRAINTS, size), precision), t)
            assert state == start
        decision, state = jax.eval_shape(algorithm.select, arena, state, t, key)
        assert state == start
        assert (decision.index.shape, decision.index.dtype) == ((), jnp.int32)
        assert (decision.widths.shape, decision.widths.dtype) == ((1 + CONSTRAINTS,), precision)
        after = jax.eval_shape(algorithm.update, arena, state, Observation(index=index, values=values), t)
        assert after == start
        floats = [x for x in jax.tree.leaves(start) if jnp.issubdtype(x.dtype, jnp.floating)]
        assert floats and all(x.dtype == precision for x in floats)


@every_algorithm
def test_new_values_do_not_compile_again(name: str) -> None:
    """Hyper-parameters, seeds, tables and trial numbers are data; the horizon is not."""
    algorithm = ALGORITHMS[name]()
    simulate(algorithm)
    assert traces(lambda: simulate(scaled(algorithm, 0.75))) == 0
    assert traces(lambda: simulate(algorithm, seed=1)) == 0
    assert traces(lambda: simulate(algorithm, trials=[7, 1, 3, 30, 5])) == 0


def test_a_new_horizon_does_compile_again() -> None:
    """The counter of the tests around this one can move."""
    simulate(jaxbandit.Rpol())
    assert traces(lambda: simulate(jaxbandit.Rpol(), horizon=HORIZON - 1)) == 1


@every_algorithm
def test_the_type_of_a_number_does_not_matter(name: str) -> None:
    """``3``, ``3.0``, NumPy and JAX scalars of either precision are one value and one program."""
    algorithm = ALGORITHMS[name]()

    def written_as(kind: Callable[[Any], Any]) -> Any:
        return jax.tree.map(lambda x: kind(x) if np.ndim(x) == 0 and float(x).is_integer() else x, algorithm)

    expected = simulate(algorithm)
    kinds = (int, float, np.float32, np.float64, lambda x: np.asarray(float(x)), jnp.float32)
    assert any(isinstance(x, int) for x in jax.tree.leaves(written_as(int)))
    for number, kind in enumerate(kinds):
        result: list[Any] = []
        assert traces(lambda kind=kind, result=result: result.append(simulate(written_as(kind)))) == 0, f"kind {number}"
        assert_same(result[0], expected, tolerance=0)


def test_numpy_integers_are_numbers_too() -> None:
    """As elements of ``numpy.arange`` they turn up in sweeps."""
    expected = simulate(jaxbandit.Rpol(initial_penalty=2.0))
    assert_same(simulate(jaxbandit.Rpol(initial_penalty=np.int64(2))), expected, tolerance=0)
    swept = jaxbandit.sweep(jaxbandit.Rpol(), initial_penalty=np.arange(1, 3))
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(swept))


@every_algorithm
def test_the_default_is_not_the_scaled_one(name: str) -> None:
    """The hyper-parameters reach the run: other values give other numbers."""
    with jax.enable_x64(True):
        other = simulate(scaled(ALGORITHMS[name](), 0.5), block=TRIALS)
    assert not np.array_equal(other.widths, baseline(name).widths)


@every_algorithm
def test_side_by_side_equals_one_by_one(name: str) -> None:
    """Five trials under ``vmap``, in blocks of two (with padding) and one at a time, and a subset of their numbers."""
    with jax.enable_x64(True):
        algorithm = ALGORITHMS[name]()
        # Equal bits were seen on a CPU; matrix products may sum in other orders elsewhere.
        assert_same(simulate(algorithm, block=2), baseline(name), tolerance=1e-9)
        singles = [simulate(algorithm, trials=[i]) for i in range(TRIALS)]
    loop = jax.tree.map(lambda *x: np.concatenate(x), *singles)
    assert_same(loop, baseline(name), tolerance=1e-9)
    assert len({x.tobytes() for x in baseline(name).values}) == TRIALS, "trials differ from each other"


@every_algorithm
def test_a_seed_fixes_every_bit(name: str) -> None:
    with jax.enable_x64(True):
        again, other = simulate(ALGORITHMS[name](), block=TRIALS), simulate(ALGORITHMS[name](), block=TRIALS, seed=1)
    assert_same(again, baseline(name), tolerance=0)
    assert not np.any(np.asarray(other.values) == baseline(name).values)


@every_algorithm
def test_a_sweep_equals_its_runs(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    field, value = first_field(algorithm)
    with jax.enable_x64(True):
        variants = jaxbandit.sweep(algorithm, **{field: [0.5 * value, value]})
        together = simulate(variants, block=TRIALS)
        alone = simulate(unstack(variants)[0], block=TRIALS)
    assert together.indices.shape == (2, TRIALS, HORIZON)
    assert_same(jax.tree.map(lambda x: x[0], together), alone, tolerance=1e-9)
    assert_same(jax.tree.map(lambda x: x[1], together), baseline(name), tolerance=1e-9)
    assert not np.array_equal(together.widths[0], together.widths[1]), "the swept field acts"


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_algorithm
def test_results_are_finite_and_of_the_engines_type(name: str, precision: str) -> None:
    with jax.enable_x64(precision == "float64"):
        run = baseline(name) if precision == "float64" else simulate(ALGORITHMS[name]())
    assert run.values.shape == (TRIALS, HORIZON, 1 + CONSTRAINTS)
    assert run.multipliers.shape == (TRIALS, HORIZON + 1, CONSTRAINTS)
    assert run.widths.shape == (TRIALS, HORIZON, 1 + CONSTRAINTS)
    for field in ("values", "multipliers", "widths", "information_gain"):
        array = np.asarray(getattr(run, field))
        assert array.dtype == precision, field
        assert np.all(np.isfinite(array)), field
    assert np.all(np.asarray(run.widths) > 0) and np.all(np.asarray(run.multipliers) >= 0)
    assert np.all((np.asarray(run.indices) >= 0) & (np.asarray(run.indices) < study()[0].domain.size))
    assert np.all(np.asarray(run.failed_round) == 0)
    assert np.all(jaxbandit.metrics.healthy(jnp.asarray(run.status)))
    # Not stuck: in nine rounds a learner looks at more than one point.
    assert len(np.unique(run.indices)) > 2


@pytest.mark.parametrize("name", ["rpol", "config"])
def test_recording_less_changes_nothing(name: str) -> None:
    with jax.enable_x64(True):
        brief = simulate(ALGORITHMS[name](), block=TRIALS, record="indices")
    assert brief.values is None and brief.multipliers is None and brief.widths is None
    np.testing.assert_array_equal(brief.indices, baseline(name).indices)
    np.testing.assert_array_equal(brief.status, baseline(name).status)


def test_noise_is_common_to_all_algorithms() -> None:
    """Trial ``i`` sees the same noise in round ``t`` whatever was chosen, so differences between algorithms are theirs."""
    means = np.asarray(study()[0].means)
    seen = {}
    for name in ALGORITHMS:
        run = baseline(name)
        seen[name] = run.values - np.moveaxis(means[:, run.indices], 0, -1)
    first = next(iter(seen.values()))
    assert 0.8 < first.std() / np.sqrt(0.05) < 1.2  # 135 draws: 5 standard errors of a standard deviation are 0.3
    assert len(np.unique(first)) == first.size
    for name, noise in seen.items():
        np.testing.assert_allclose(noise, first, rtol=0, atol=1e-14, err_msg=name)  # one subtraction's rounding
    assert len({baseline(name).indices.tobytes() for name in ALGORITHMS}) > len(ALGORITHMS) // 2, "the choices do differ"


SHARDED = """
import json, sys
import jax
import numpy as np
sys.path.insert(0, {tests!r})
import test_conformance as t
assert len(jax.devices()) == 4
report = {{}}
with jax.enable_x64(True):
    for name, factory in t.ALGORITHMS.items():
        run = t.simulate(factory())
        assert len(run.values.sharding.device_set) == 4
        report[name] = {{path: np.asarray(x).tolist() for path, x in t.named(run).items()}}
    swept = t.simulate(t.jaxbandit.sweep(t.jaxbandit.Rpol(), initial_penalty=[0.5, 1.0]))
    report["swept"] = {{path: np.asarray(x[1]).tolist() for path, x in t.named(swept).items()}}
print(json.dumps(report))
"""


@pytest.mark.slow
def test_sharded_equals_unsharded() -> None:
    """Five trials spread over four devices, with padding, against this process's run on one."""
    tests = str(Path(__file__).parent)
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=4"]).strip()
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_NUMPY_DTYPE_PROMOTION": "strict"}
    script = SHARDED.format(tests=tests)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report.keys() == {*ALGORITHMS, "swept"}
    for name, fields in report.items():
        expected = named(baseline("rpol" if name == "swept" else name))
        assert fields.keys() == expected.keys()
        for path, array in expected.items():
            seen = np.asarray(fields[path], array.dtype).reshape(array.shape)
            tolerance = 0 if np.issubdtype(array.dtype, np.integer) else 1e-9  # equal bits were seen on a CPU
            np.testing.assert_allclose(seen, array, rtol=tolerance, atol=tolerance, err_msg=f"{name}{path}")
