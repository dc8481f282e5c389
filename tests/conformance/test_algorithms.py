"""Promises of every algorithm that its types show."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Bpe, Cbo, Config, Epbo, Rpol, Scgp, Se2, Se3, Unconstrained, estimators, kernels, testing
from jaxbandit.core.checks import InvalidArgument
from tests.support import conformance, panel
from tests.support.algorithms import ALGORITHMS, BASELINES, ON_RANGED_MODELS
from tests.support.conformance import CONSTRAINTS, assert_same, scaled

OUTPUTS = 1 + CONSTRAINTS
CLASSES = {build.name: build for build in (Unconstrained, Rpol, Cbo, Config, Epbo, Scgp, Se2, Se3, Bpe)}
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
every_precision = pytest.mark.parametrize("precision", ["float32", "float64"])


@every_algorithm
def test_valid_named_and_a_frozen_pytree(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    algorithm.validate(outputs=OUTPUTS)
    if name in BASELINES and name not in ON_RANGED_MODELS:
        type(algorithm)().validate(outputs=OUTPUTS)
    assert isinstance(algorithm.name, str) and algorithm.name == type(algorithm).__name__.lower()
    with pytest.raises(AttributeError):
        algorithm.name = "other"
    with pytest.raises(InvalidArgument, match=r"^replace\.no_such_field: unknown field"):
        jaxbandit.replace(algorithm, no_such_field=1)


@every_precision
@every_algorithm
def test_values_are_data(name: str, precision: str) -> None:
    """Numbers of every type trace the same program."""
    algorithm = ALGORITHMS[name]()

    def written_as(kind: Callable[[Any], Any]) -> Any:
        return jax.tree.map(lambda x: kind(x) if np.ndim(x) == 0 and float(x).is_integer() else x, algorithm)

    def types(x: Any) -> Any:
        return jax.tree.structure(x), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(x)]

    with jax.enable_x64(precision == "float64"):
        arrays = jaxbandit.canonicalise(algorithm)
        # These are numbers of points.
        whole = {"seeds", "index"}
        for path, x in jax.tree_util.tree_leaves_with_path(arrays):
            assert x.dtype == precision or (path[-1].name in whole and jnp.issubdtype(x.dtype, jnp.integer)), path
        assert_same(jaxbandit.canonicalise(arrays), arrays, tolerance=0)
        for kind in (int, np.int64, float, np.float32, np.float64, lambda x: np.asarray(float(x)), jnp.float32):
            written = jaxbandit.canonicalise(written_as(kind))
            assert types(written) == types(arrays)
            assert_same(written, arrays, tolerance=0)
        assert types(jaxbandit.canonicalise(scaled(algorithm, 0.75))) == types(arrays)


@pytest.mark.full(but=("float32",))
@every_precision
@every_algorithm
def test_a_round_keeps_the_types_of_its_state_and_is_pure(name: str, precision: str) -> None:
    testing.check_algorithm(ALGORITHMS[name], rounds=0, precision=precision)


@functools.cache
def two_rounds() -> dict[str, jaxbandit.Trajectory]:
    """The runs of all classes without any setting."""
    algorithms = {name: build() for name, build in CLASSES.items()}
    return panel.play(conformance.study()[1], algorithms, conformance.surrogate(), horizon=2, trials=1, key=jax.random.key(0))


@pytest.mark.full
@pytest.mark.parametrize("name", CLASSES)
def test_the_class_alone_plays(name: str) -> None:
    run = two_rounds()[name]
    assert run.indices.shape == (1, 2) and np.all(jaxbandit.metrics.healthy(run.status))


LOOKALIKES = {
    "kernels": [kernels.SquaredExponential(), kernels.Matern12(), kernels.Matern32(), kernels.Matern52()],
    "algorithms": [jaxbandit.Config(), jaxbandit.Unconstrained()],
    "strategies": [estimators.Bounds(), estimators.Thompson()],
    "algorithms by strategy": [jaxbandit.Rpol(), jaxbandit.Rpol(estimator=estimators.Thompson())],
}


@pytest.mark.parametrize("kind", LOOKALIKES)
def test_classes_with_equal_fields_are_different_structures(kind: str) -> None:
    """``jit`` would otherwise run another class's program now and then.

    ``jax.tree_util.register_dataclass`` of JAX 0.10.2 makes them equal, with different hashes, so it shows by chance only.
    """
    structures = [jax.tree.structure(x) for x in LOOKALIKES[kind]]
    for i, a in enumerate(structures):
        for j, b in enumerate(structures):
            assert (a == b) == (i == j), f"{a} and {b}"
    assert structures == [jax.tree.structure(x) for x in LOOKALIKES[kind]]


@pytest.mark.full
def test_jit_never_takes_one_class_for_another() -> None:
    """Equal structures took the wrong program for 60 of 420 classes.

    No two structures are equal, whatever their hashes; and a program of twenty of them knows each.
    """
    names = [f"Kind{i}" for i in range(420)]
    classes = [jaxbandit.pytree(type(name, (), {"__annotations__": {"value": float}, "value": 1.0})) for name in names]
    structures = [jax.tree.structure(cls()) for cls in classes]
    equal = [(i, j) for i, a in enumerate(structures) for j, b in enumerate(structures) if (a == b) != (i == j)]
    assert equal == []
    which = jax.jit(lambda x: classes.index(type(x)) + 0 * x.value)
    assert [int(which(cls())) for cls in classes[:20]] == list(range(20))
