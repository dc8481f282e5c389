"""Forms on a box that differ in numbers only, as one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, T
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.boxes.pool import BoxForm, OwnPoints, insert_column

P = TypeVar("P", bound=OwnPoints)


@pytree
class Alike(Generic[P]):
    """Forms of ``B`` groups of ``c`` outputs, with one state.

    If there are several groups, leaves of forms and states have a leading axis ``[B]``, except candidates and points, which all groups
    share. The leaves of a single group have no such axis, because XLA would copy tables to add it.
    """

    form: BoxForm[P]
    groups: tuple[int, ...] = static()  # [B] numbers
    outputs: tuple[tuple[int, ...], ...] = static()  # [B, c] numbers

    @property
    def first(self) -> np.ndarray:
        """First output ``[B]`` of each group, for the whole group."""
        return np.asarray(self.outputs)[:, 0]

    @property
    def _is_one(self) -> bool:
        return len(self.groups) == 1

    def init(self) -> P:
        """Return the states before any data."""
        if self._is_one:
            return self.form.init()
        candidates = jnp.asarray(self.form.candidates)
        states = jax.vmap(lambda form: _without_shared(replace(form, candidates=candidates).init()))(_without_shared(self.form))
        started: P = replace(states, axes=candidates[self.form.numbers()].T, placed=jnp.int32(0))
        return started

    def with_kernels(self, make: Callable[..., Kernel], *own: Array) -> Alike[P]:
        """Return the forms with kernels ``make(kernel, *own)``, with arguments ``[B, ...]``."""
        kernel = make(self.form.kernel, *(x[0] for x in own)) if self._is_one else jax.vmap(make)(self.form.kernel, *own)
        return replace(self, form=replace(self.form, kernel=kernel))

    def each(self, function: Callable[..., Any], state: P, *own: Any, in_turn: bool = False) -> Any:
        """Return ``function(form, state, *own)`` of every group.

        The groups' ``own`` arguments are ``[B, ...]``, and so are arrays of the result; a state in the result is one state for all groups.
        Groups are computed side by side, or one after the other ``in_turn``.
        """
        if self._is_one:
            after = function(self.form, state, *jax.tree.map(lambda x: x[0], own))
            return jax.tree.map(lambda part: part if _is_state(part) else part[None], after, is_leaf=_is_state)
        points = {"axes": state.axes, "placed": state.placed}

        def one(given: tuple[Any, ...]) -> Any:
            form, bare, *others = given
            return _without_shared(function(replace(form, candidates=self.form.candidates), replace(bare, **points), *others))

        given = (_without_shared(self.form), _without_shared(state), *own)
        after = jax.lax.map(one, given) if in_turn else jax.vmap(one)(given)
        return jax.tree.map(lambda part: replace(part, **points) if _is_state(part) else part, after, is_leaf=_is_state)

    def of_group(self, group: int, state: P) -> tuple[BoxForm[P], P]:
        """Return the form and the state of one group by itself."""
        if self._is_one:
            return self.form, state
        form, own = jax.tree.map(lambda x: x[self.groups.index(group)], (_without_shared(self.form), _without_shared(state)))
        return replace(form, candidates=self.form.candidates), replace(own, axes=state.axes, placed=state.placed)

    def absorb(self, state: P, index: Array, noise: Array, present: Array | None = None) -> tuple[P, Array, Array, Array]:
        """Absorb in every group, at ``index []`` or each group's own ``[B]``."""
        after: tuple[P, Array, Array, Array] = self._stepped(state, index, noise, present)[:4]
        return after

    def observe(self, state: P, index: Array, noise: Array, present: Array | None = None) -> tuple[P, Array, Array, Array]:
        """Observe in every group, at ``index []`` or each group's own ``[B]``."""
        state, _, u, s, column = self._stepped(state, index, noise, present)
        return state, u, column, s

    def _stepped(self, state: P, index: Array, noise: Array, present: Array | None) -> Any:
        if self._is_one:
            at, own, here = jax.tree.map(lambda x: jnp.reshape(x, ()), (index, noise, present))
            new, *rest = self.form.rank_one_step(state, at, own, here)
            return self.form.apply_step(state, new, here), *(x[None] for x in rest)
        if jnp.ndim(index):
            new, *rest = self.each(lambda form, own, *given: form.rank_one_step(own, *given), state, index, noise, present)
        else:
            # One index for all groups is a slice, and no gather.
            new, *rest = self.each(lambda form, own, *given: form.rank_one_step(own, index, *given), state, noise, present)
        return self.form.apply_step(state, new, present), *rest

    def spread(self, state: P) -> Array:
        """Return the posterior variances ``[B, M]`` from the states alone."""
        variances: Array = self.each(lambda form, own: form.spread(own), state)
        return variances

    def place(self, state: P, point: Array) -> tuple[P, Array, Array]:
        """Add ``point [d]``, and return states, index ``[]`` and features ``[B, r]``."""
        index = np.shape(self.form.candidates)[0] + state.placed
        v = self.each(lambda form, own: form.weights_at(own, point[None])[0], state)
        after = self.form.set_features(state, index, v[0] if self._is_one else v)
        after = replace(after, axes=insert_column(state.axes, index, point), placed=state.placed + 1)
        return after, index.astype(jnp.int32), v


def _is_state(part: object) -> bool:
    return isinstance(part, OwnPoints)


def _without_shared(tree: T) -> T:
    """Return forms and states without the candidates and points that groups share."""

    def bare(part: Any) -> Any:
        if isinstance(part, BoxForm):
            return replace(part, candidates=None)
        return replace(part, axes=None, placed=None) if isinstance(part, OwnPoints) else part

    without: T = jax.tree.map(bare, tree, is_leaf=lambda part: isinstance(part, BoxForm | OwnPoints))
    return without


def alike(forms: Sequence[BoxForm[Any]], groups: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the numbers of alike forms, given each output's group ``[k]``."""
    batches: dict[Any, tuple[int, ...]] = {}
    for g, form in enumerate(forms):
        leaves, structure = jax.tree.flatten(form)
        kind = (structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves), groups.count(g))
        batches[kind] = (*batches.get(kind, ()), g)
    return list(batches.values())


def members(groups: Sequence[int], numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the outputs of groups ``numbers``, given each output's group ``[k]``."""
    return tuple(tuple(j for j, group in enumerate(groups) if group == g) for g in numbers)


def side_by_side(forms: Sequence[BoxForm[Any]], groups: Sequence[int]) -> tuple[Alike[Any], ...]:
    """Stack alike forms, given the group ``[k]`` of each output."""

    def stacked(*leaves: Any) -> Array:
        return jnp.stack([jnp.asarray(leaf) for leaf in leaves])

    return tuple(
        Alike(
            form=replace(jax.tree.map(stacked, *(_without_shared(forms[g]) for g in those)), candidates=forms[those[0]].candidates)
            if len(those) > 1
            else forms[those[0]],
            groups=those,
            outputs=members(groups, those),
        )
        for those in alike(forms, groups)
    )


def in_order(parts: Sequence[Array], numbers: Sequence[Any]) -> Array:
    """Join ``parts [n, ...]`` in the order of their ``numbers [n]``."""
    joined = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
    return of(joined, np.argsort(np.concatenate([np.ravel(own) for own in numbers])))


def of(table: Array, numbers: Any) -> Array:
    """Return ``table[numbers]``, without a gather if these are all rows in order."""
    numbers = np.asarray(numbers)
    everything = np.array_equal(numbers.ravel(), np.arange(len(table)))
    return table.reshape(*numbers.shape, *table.shape[1:]) if everything else table[numbers]
