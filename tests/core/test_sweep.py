"""Sweeps: which variants there are and in which order, what they share, and which fields can be swept."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, Sweep, canonicalise, delays, domains, estimators, kernels, pytree, static, sweep, widths
from jaxbandit.core.pytree import set_field
from jaxbandit.core.sweep import gather_variants


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


@pytree
class Keyed:
    key: Any = None


def rows(swept):
    """Width and rate of every variant."""
    return [(float(one.inner.width), float(one.rate)) for one in swept.unstack()]


# -- variants and their order --------------------------------------------------------------------------------------------------------


def test_one_field_gives_a_variant_for_each_value():
    swept = sweep(Outer(), {"rate": [1.0, 2.0, 3.0]})
    assert isinstance(swept, Sweep) and swept.size == 3
    assert rows(swept) == [(3.0, 1.0), (3.0, 2.0), (3.0, 3.0)]
    assert [one.count for one in swept.unstack()] == [2, 2, 2]


def test_every_combination_is_a_variant_and_the_last_field_varies_fastest():
    swept = sweep(Outer(), {"inner.width": [4, 5, 6], "rate": np.array([0.5, 0.25])})
    assert swept.size == 6
    assert rows(swept) == list(itertools.product([4.0, 5.0, 6.0], [0.5, 0.25]))
    other = sweep(Outer(), {"rate": [0.5, 0.25], "inner.width": [4, 5, 6]})
    assert rows(other) == [(w, r) for r, w in itertools.product([0.5, 0.25], [4.0, 5.0, 6.0])]


def test_zipped_fields_go_together():
    swept = sweep(Outer(), {"inner.width": [4, 5], "rate": np.array([0.5, 0.25])}, zipped=True)
    assert rows(swept) == [(4.0, 0.5), (5.0, 0.25)]
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(swept))


def test_whole_objects_and_vectors_are_swept():
    swept = sweep(Outer(), {"inner": [Inner(width=1.0), Inner(width=2.0)], "table": [np.zeros(3), np.ones(3)]}, zipped=True)
    assert [float(one.inner.width) for one in swept.unstack()] == [1.0, 2.0]
    np.testing.assert_array_equal([one.table for one in swept.unstack()], [np.zeros(3), np.ones(3)])


def test_a_field_of_an_object_that_is_swept_too():
    """The object first, then its field: in the order in which they are given."""
    swept = sweep(Outer(), {"inner": [Inner(width=1.0), Inner(width=2.0)], "inner.width": [7.0, 8.0]})
    assert [float(one.inner.width) for one in swept.unstack()] == [7.0, 8.0, 7.0, 8.0]


def test_integers_from_numpy_are_numbers():
    """``range(1, 4)`` and ``np.arange(1, 4)`` ask for the same."""
    for values in ([1, 2, 3], range(1, 4), np.arange(1, 4), np.arange(1.0, 4.0), jnp.arange(1.0, 4.0)):
        swept = sweep(Inner(), {"width": values})
        assert [one.width.dtype for one in swept.unstack()] == [np.float32] * 3, values
        assert [float(one.width) for one in swept.unstack()] == [1, 2, 3], values


def test_the_base_stays_as_it_is():
    base = Outer()
    sweep(base, {"rate": [5.0], "inner.width": [7.0]})
    assert base == Outer()


def test_variants_are_picked_by_a_number_that_may_be_traced():
    swept = sweep(Outer(), {"inner.width": [1.0, 2.0, 5.0], "rate": [3.0, 4.0, 6.0]}, zipped=True)
    expected = [float(one.rate) * float(one.inner.width) for one in swept.unstack()]

    def product(number):
        one = swept.pick(number)
        return one.rate * one.inner.width

    np.testing.assert_array_equal(jax.vmap(product)(jnp.arange(3)), expected)
    np.testing.assert_array_equal([jax.jit(product)(number) for number in range(3)], expected)
    as_argument = jax.jit(lambda given, number: given.pick(number).rate)
    assert [float(as_argument(swept, number)) for number in range(3)] == [3.0, 4.0, 6.0]


def test_gathering_undoes_unstacking():
    variants = [canonicalise(Outer(rate=r, inner=Inner(width=w))) for r, w in ((1.0, 2.0), (3.0, 4.0))]
    back = gather_variants(variants).unstack()
    for one, other in zip(variants, back, strict=True):
        assert jax.tree.structure(one) == jax.tree.structure(other)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert a.dtype == b.dtype and float(a) == float(b)


def test_a_sweep_is_a_pytree_of_static_size():
    swept = sweep(Outer(), {"rate": [1.0, 2.0]})
    assert jax.tree.map(lambda x: x, swept).size == 2
    assert sorted(np.shape(x) for x in jax.tree.leaves(swept)) == [(), (2,)]
    assert jax.tree.structure(swept) != jax.tree.structure(sweep(Outer(), {"rate": [1.0, 2.0, 3.0]}))


# -- what is shared ------------------------------------------------------------------------------------------------------------------


def held(swept):
    """Names of the shared and of the differing leaves, in the order of the object's leaves."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(swept.pick(0))]
    for one, many in zip(swept.shared, swept.differing, strict=True):
        assert (one is None) != (many is None), "a leaf is held once, or once for each variant"
    return [name for name, one in zip(names, swept.shared, strict=True) if one is not None]


def test_equal_leaves_are_held_once_and_others_once_for_each_variant():
    swept = sweep(Outer(table=np.arange(3.0)), {"rate": [1.0, 2.0]})
    assert held(swept) == [".inner.width", ".table"]
    assert [np.shape(many) for many in swept.differing if many is not None] == [(2,)]
    assert held(sweep(Outer(), {"rate": [2.0, 2.0]})) == [".inner.width", ".rate"], "compared by value"
    one = sweep(Outer(), {"rate": [5.0]})
    assert held(one) == [".inner.width", ".rate"] and float(one.pick(0).rate) == 5


def test_equal_arrays_of_different_objects_are_held_once():
    variants = [canonicalise(Outer(table=np.arange(4.0), rate=rate)) for rate in (1.0, 2.0)]
    assert variants[0].table is not variants[1].table
    assert held(gather_variants(variants)) == [".inner.width", ".table"]
    variants[1] = jaxbandit.replace(variants[1], table=np.array([0.0, 1.0, 2.0, 9.0], np.float32))
    assert held(gather_variants(variants)) == [".inner.width"]


def test_keys_are_compared_by_their_numbers():
    first, second = jax.random.key(1), jax.random.key(2)
    assert held(sweep(Keyed(), {"key": [first, jax.random.key(1)]})) == [".key"]
    swept = sweep(Keyed(), {"key": [first, second]})
    assert held(swept) == []
    for number, key in enumerate((first, second)):
        np.testing.assert_array_equal(jax.random.key_data(swept.pick(number).key), jax.random.key_data(key))


FORMS = {
    "features": kernels.SquaredExponential(length_scale=0.3),
    "product": kernels.SquaredExponential(length_scale=0.3),
    "rows": kernels.Matern52(length_scale=0.3),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_sweep_of_the_noise_variance_holds_the_features_once(form):
    """All that is as large as the domain is the very array of the model that was swept: there is no copy."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 12)
    model = canonicalise(jaxbandit.surrogate(domain, FORMS[form], noise_variance=0.1, form=form))
    swept = sweep(model, {"noise_variance": [[0.01], [0.1], [1.0]]})
    assert [np.shape(many) for many in swept.differing if many is not None] == [(3, 1)]
    large = [leaf for leaf in jax.tree.leaves(model) if np.size(leaf) >= domain.size]
    assert large and {id(leaf) for leaf in large} <= {id(one) for one in swept.shared}
    assert len(held(swept)) == len(jax.tree.leaves(model)) - 1
    with pytest.raises(InvalidArgument, match=r"sweep\.kernels: kernels of Surrogate cannot be set: the features were made from it"):
        sweep(model, {"kernels": [(FORMS[form],)]})
    for number, variance in enumerate((0.01, 0.1, 1.0)):
        np.testing.assert_allclose(swept.pick(number).noise_variance, [variance], rtol=1e-6)


def test_what_a_compiled_run_is_given_holds_the_features_once(monkeypatch):
    """``simulate`` gathers algorithm, surrogate and delays anew; a model that is not swept is held once beside a swept algorithm, too."""
    from jaxbandit.engine import simulation

    class CaughtError(Exception):
        """Carries the arguments of the compiled program."""

    def caught(cell, *args, **kwargs):
        raise CaughtError(cell)

    monkeypatch.setattr(simulation, "play_all", caught)
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 12)
    model = jaxbandit.surrogate(domain, FORMS["features"], noise_variance=0.1, form="features")
    problem = jaxbandit.problems.from_tables(domain, np.arange(144.0), np.arange(144.0) - 70)
    phi = np.shape(model.forms[0].phi)
    cases = {
        "a swept model": {"surrogate": sweep(model, {"noise_variance": [[0.01], [0.1], [1.0]]})},
        "a swept algorithm": {"algorithm": sweep(jaxbandit.Rpol(), {"initial_penalty": [1.0, 2.0, 3.0]})},
        "swept delays": {"delay": sweep(delays.Poisson(), {"mean": [1.0, 2.0, 3.0]})},
    }
    for name, given in cases.items():
        given = {"algorithm": jaxbandit.Rpol(), "surrogate": model} | given
        with pytest.raises(CaughtError) as error:
            jaxbandit.simulate(problem, given.pop("algorithm"), given.pop("surrogate"), horizon=4, key=jax.random.key(0), **given)
        variants = error.value.args[0].variants
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(variants)]
        assert shapes.count(phi) == 1, name
        assert [np.shape(many)[0] for many in variants.differing if many is not None] == [3], name
        assert max(np.size(many) for many in variants.differing if many is not None) == 3, name


# -- sweeps of delays and of widths --------------------------------------------------------------------------------------------------


def test_delays_are_swept():
    swept = sweep(delays.Lossy(delay=delays.Poisson()), {"delay.mean": [1.0, 5.0], "never": [0.0, 0.5]})
    assert [(float(one.delay.mean), float(one.never)) for one in swept.unstack()] == [(1.0, 0.0), (1.0, 0.5), (5.0, 0.0), (5.0, 0.5)]
    assert all(isinstance(one, delays.Lossy) and isinstance(one.delay, delays.Poisson) for one in swept.unstack())


def test_schedules_of_one_class_are_swept():
    swept = sweep(estimators.Bounds(), {"reward_width": [widths.SqrtLog(a=1.0), widths.SqrtLog(a=4.0)], "cost_width": [2.0, 3.0]})
    assert [(float(one.reward_width.a), float(one.cost_width)) for one in swept.unstack()] == [(1, 2), (1, 3), (4, 2), (4, 3)]


# -- what is refused -----------------------------------------------------------------------------------------------------------------


def test_combinations_need_no_equal_numbers_of_values():
    """The same fields and values that are refused when zipped."""
    assert sweep(Outer(), {"rate": [1.0], "inner.width": [1.0, 2.0]}).size == 2


def test_a_path_reads_the_same_in_a_table_of_a_study_file():
    """Tables stand for objects that are not made yet; nothing else is changed."""
    table = {"name": "Bounds", "reward_width": {"name": "SqrtLog", "a": 1.0}}
    changed = set_field(table, "reward_width.a", 4.0, "study")
    assert changed == {"name": "Bounds", "reward_width": {"name": "SqrtLog", "a": 4.0}} and table["reward_width"]["a"] == 1.0
    assert set_field(table, "cost_width", 2.0, "study")["cost_width"] == 2.0
    with pytest.raises(InvalidArgument, match=r"^study: there is no such field"):
        set_field(table, "cost_width.a", 4.0, "study")
