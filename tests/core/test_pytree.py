"""Pytree dataclasses and canonical leaves."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, canonicalise, pytree, replace, static
from jaxbandit.core.pytree import float_dtype


@pytree
class Inner:
    width: Any = 3.0
    label: str = static(default="inner")


@pytree
class Outer:
    inner: Inner = Inner()
    rate: Any = 1.0
    table: Any = None
    count: int = static(default=2)


def test_fields_are_leaves_unless_static():
    outer = Outer(inner=Inner(width=5.0), rate=2.0, count=9)
    assert jax.tree.leaves(outer) == [5.0, 2.0]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(outer)]
    assert paths == [".inner.width", ".rate"]
    assert jax.tree.structure(Outer(count=1)) != jax.tree.structure(Outer(count=2))
    assert jax.tree.structure(Outer(rate=1.0)) == jax.tree.structure(Outer(rate=2.0))


def test_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Inner().width = 4.0
    with pytest.raises(TypeError):
        Inner(4.0)


def test_construction_converts_and_checks_nothing():
    """JAX rebuilds objects with tracers, None and whatever ``tree.map`` returns."""
    rebuilt = jax.tree.map(lambda leaf: "anything", Outer())
    assert (rebuilt.inner.width, rebuilt.rate, rebuilt.count) == ("anything", "anything", 2)


def test_static_takes_field_arguments():
    @pytree
    class Listed:
        names: tuple[str, ...] = static(default_factory=lambda: ("a",))

    assert Listed().names == ("a",)
    assert jax.tree.leaves(Listed()) == []


def test_replace_copies_and_refuses_unknown_fields():
    outer = Outer()
    changed = replace(outer, rate=7.0)
    assert (outer.rate, changed.rate, changed.inner) == (1.0, 7.0, outer.inner)
    with pytest.raises(InvalidArgument, match=r"replace\.beta: unknown field"):
        replace(outer, beta=1.0)
    with pytest.raises(InvalidArgument, match="obj: must be an object of a pytree dataclass, got the class Outer"):
        replace(Outer, rate=1.0)


def test_grad_gives_the_same_class():
    gradient = jax.grad(lambda outer: outer.rate**2 * outer.inner.width)(Outer(rate=3.0, inner=Inner(width=2.0)))
    assert isinstance(gradient, Outer)
    assert (float(gradient.rate), float(gradient.inner.width), gradient.count) == (12.0, 9.0, 2)


# -- canonicalise --------------------------------------------------------------------------------------------------------------------

NUMBERS = {
    "int": 3,
    "float": 3.0,
    "numpy float64": np.float64(3),
    "numpy float32": np.float32(3),
    "numpy float16": np.float16(3),
    "numpy int64": np.int64(3),
    "numpy int32": np.int32(3),
    "0-d array": np.array(3.0),
    "jax float32": jnp.float32(3),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_becomes_the_engines_float(name, x64):
    with jax.enable_x64(x64):
        leaf = canonicalise(Inner(width=NUMBERS[name])).width
        kind = jax.typeof(leaf)  # by which programs are shared
        assert kind.dtype == (np.float64 if x64 else np.float32) == float_dtype()
        assert kind.shape == () and not kind.weak_type and float(leaf) == 3


@pytest.mark.parametrize("x64", [False, True])
def test_arrays_keep_their_kind(x64):
    with jax.enable_x64(x64):
        wide = np.float64 if x64 else np.float32
        kinds = {
            "float64": (np.ones(2), wide),
            "float32": (np.ones(2, np.float32), wide),
            "int64": (np.arange(2), np.int32),
            "uint8": (np.arange(2, dtype=np.uint8), np.int32),
            "bool": (np.array([True, False]), np.bool_),
            "python bool": (True, np.bool_),
        }
        for name, (value, want) in kinds.items():
            got = canonicalise({"x": value})["x"]
            assert got.dtype == want, name
            np.testing.assert_array_equal(got, value)


def test_keys_pass_and_none_stays():
    key = jax.random.key(4)
    tree = canonicalise({"key": key, "keys": jax.random.split(key, 3), "nothing": None})
    assert tree["nothing"] is None
    assert tree["key"].dtype == key.dtype and tree["keys"].shape == (3,)
    np.testing.assert_array_equal(jax.random.key_data(tree["key"]), jax.random.key_data(key))


def test_canonicalise_reaches_nested_fields_and_leaves_statics():
    tree = canonicalise([(Outer(inner=Inner(width=1), table=np.arange(3), count=5),)])
    (outer,) = tree[0]
    assert outer.inner.width.dtype == np.float32 and outer.table.dtype == np.int32 and outer.rate.dtype == np.float32
    assert (outer.count, outer.inner.label) == (5, "inner")
    again = canonicalise(tree)
    assert jax.tree.map(lambda x: x.dtype, again) == jax.tree.map(lambda x: x.dtype, tree)


def test_equal_structures_share_one_trace():
    traces = []

    @jax.jit
    def use(outer):
        traces.append(1)
        return outer.rate * 2

    for number in NUMBERS.values():
        assert float(use(canonicalise(Outer(rate=number)))) == 6
    assert len(traces) == 1
    use(canonicalise(Outer(rate=3.0, count=3)))
    assert len(traces) == 2  # a static field is a new program, so the counter does count


@pytest.mark.parametrize("algorithm", [jaxbandit.Rpol(), jaxbandit.Cbo(), jaxbandit.Config()], ids=lambda a: a.name)
def test_leaves_of_algorithms_are_numbers_that_can_be_swept(algorithm):
    for leaf in jax.tree.leaves(canonicalise(algorithm)):
        assert leaf.dtype == np.float32 and leaf.shape == ()


def test_the_text_of_an_object_is_short_and_says_what_matters():
    problem = jaxbandit.problems.sine(20)
    model = jaxbandit.surrogate(problem.domain, jaxbandit.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    assert len(repr(model)) < 900 and "points=float32[400, 2]" in repr(model) and "noise_variance=[0.05]" in repr(model)
    assert len(repr(problem)) < 300 and "means=float64[2, 400]" in repr(problem)
    assert repr(jaxbandit.delays.Poisson(mean=jax.numpy.float32(0.1))) == "Poisson(shared=False, mean=0.1)"
    assert repr(jaxbandit.InitialDesign(indices=[1, 2])) == "InitialDesign(indices=[1, 2], random=0, counted=False)"
    seen = []
    jax.jit(lambda design: seen.append(repr(design)))(jaxbandit.InitialDesign(indices=np.arange(3)))
    assert seen == ["InitialDesign(indices=traced int32[3], random=0, counted=False)"]
