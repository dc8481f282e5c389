"""Pytree dataclasses, canonical leaves and sweeps."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Sweep, canonicalise, pytree, replace, static, sweep
from jaxbandit.core.pytree import float_dtype, stack, unstack


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
    with pytest.raises(TypeError, match="beta"):
        replace(outer, beta=1.0)


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
        assert isinstance(leaf, jax.Array)
        assert leaf.dtype == (np.float64 if x64 else np.float32) == float_dtype()
        assert leaf.shape == () and not leaf.weak_type and float(leaf) == 3


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


# -- sweeps --------------------------------------------------------------------------------------------------------------------------


def test_sweep_stacks_variants_leaf_by_leaf():
    swept = sweep(Outer(), rate=[1.0, 2.0, 3.0])
    assert isinstance(swept, Sweep) and swept.size == 3
    np.testing.assert_array_equal(swept.stacked.rate, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(swept.stacked.inner.width, [3.0, 3.0, 3.0])  # every leaf has the axis
    assert swept.stacked.count == 2


def test_sweep_reaches_nested_fields_and_zips():
    swept = sweep(Outer(), inner__width=[4, 5], rate=np.array([0.5, 0.25]))
    variants = swept.unstack()
    assert [(float(v.inner.width), float(v.rate)) for v in variants] == [(4.0, 0.5), (5.0, 0.25)]
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(swept.stacked))


def test_sweep_takes_whole_objects_and_vectors():
    swept = sweep(Outer(), inner=[Inner(width=1.0), Inner(width=2.0)], table=[np.zeros(3), np.ones(3)])
    assert swept.stacked.inner.width.shape == (2,) and swept.stacked.table.shape == (2, 3)


def test_sweep_of_integers_from_numpy_is_a_sweep_of_numbers():
    """``sweep(width=range(1, 4))`` and ``np.arange(1, 4)`` ask for the same."""
    for values in ([1, 2, 3], range(1, 4), np.arange(1, 4), np.arange(1.0, 4.0), jnp.arange(1.0, 4.0)):
        assert sweep(Inner(), width=values).stacked.width.dtype == np.float32, values


def test_sweep_leaves_its_base_alone():
    base = Outer()
    sweep(base, rate=[5.0])
    assert base == Outer()


def test_unstack_undoes_sweep_and_stack():
    variants = [canonicalise(Outer(rate=r, inner=Inner(width=w))) for r, w in ((1.0, 2.0), (3.0, 4.0))]
    back = unstack(Sweep(stacked=stack(variants), size=2))
    for one, other in zip(variants, back, strict=True):
        assert jax.tree.structure(one) == jax.tree.structure(other)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert a.dtype == b.dtype and float(a) == float(b)
    assert unstack(Sweep(stacked=stack(variants), size=2), lambda outer: float(outer.rate)) == [1.0, 3.0]


def test_vmap_over_a_sweep_is_a_loop_over_its_variants():
    swept = sweep(Outer(), inner__width=[1.0, 2.0, 5.0], rate=[3.0, 4.0, 6.0])
    rows = jax.vmap(lambda outer: outer.rate * outer.inner.width)(swept.stacked)
    np.testing.assert_array_equal(rows, [float(v.rate) * float(v.inner.width) for v in swept.unstack()])


def test_a_sweep_is_a_pytree_of_static_size():
    swept = sweep(Outer(), rate=[1.0, 2.0])
    assert jax.tree.map(lambda x: x, swept).size == 2
    assert len(jax.tree.leaves(swept)) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "give at least one field"),
        ({"rate": []}, "give at least one field"),
        ({"rate": [1.0], "inner__width": [1.0, 2.0]}, "one length"),
        ({"beta": [1.0]}, r"'beta' of Outer does not exist; its leaves are \['inner', 'rate', 'table'\]"),
        ({"count": [1]}, "'count' of Outer is static"),
        ({"inner__label": ["a"]}, "'label' of Inner is static"),
        ({"inner__beta": [1.0]}, "'beta' of Inner does not exist"),
        ({"rate__beta": [1.0]}, "'beta' of float does not exist"),
    ],
)
def test_sweep_refuses(values, message):
    with pytest.raises(ValueError, match=message):
        sweep(Outer(), **values)


@pytest.mark.parametrize("algorithm", [jaxbandit.Rpol(), jaxbandit.Cbo(), jaxbandit.Config()], ids=lambda a: a.name)
def test_leaves_of_algorithms_are_numbers_that_can_be_swept(algorithm):
    for leaf in jax.tree.leaves(canonicalise(algorithm)):
        assert leaf.dtype == np.float32 and leaf.shape == ()
