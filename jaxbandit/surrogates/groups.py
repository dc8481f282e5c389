"""Groups of outputs that share a factor, and their posteriors' forms.

On a box, forms that differ in numbers only are one batch. On a finite domain every group is a batch by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, T
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.boxes.pool import BoxForm, OwnPoints, insert_column
from jaxbandit.surrogates.features import Form


@pytree
class FormBatch:
    """Form of ``B`` groups of ``c`` outputs, with one state.

    If there are several groups, leaves of form and state have a leading axis ``[B]``, except candidates and points, which all groups
    share. The leaves of a single group have no such axis, because XLA would copy tables to add it.
    """

    form: Any
    groups: tuple[int, ...] = static()  # [B] numbers
    outputs: tuple[tuple[int, ...], ...] = static()  # [B, c] numbers

    @property
    def first(self) -> np.ndarray:
        """First output ``[B]`` of each group, for the whole group."""
        return np.asarray(self.outputs)[:, 0]

    def noises(self, table: Any, index: Array) -> Array:
        """Return noises ``[B]`` from ``table [G]``, or ``[G, M]`` at ``index``."""
        own = of(jnp.asarray(table), self.groups)
        return own if own.ndim == 1 else own[0, jnp.reshape(index, ())][None]

    @property
    def _is_one(self) -> bool:
        return len(self.groups) == 1

    def init(self) -> Any:
        """Return the states before any data."""
        if self._is_one:
            return self.form.init()
        candidates = jnp.asarray(self.form.candidates)
        states = jax.vmap(lambda form: _without_shared(replace(form, candidates=candidates).init()))(_without_shared(self.form))
        return replace(states, axes=candidates[self.form.numbers()].T, placed=jnp.int32(0))

    def with_kernels(self, make: Callable[..., Kernel], *own: Array) -> FormBatch:
        """Return the forms with kernels ``make(kernel, *own)``, with arguments ``[B, ...]``."""
        kernel = make(self.form.kernel, *(x[0] for x in own)) if self._is_one else jax.vmap(make)(self.form.kernel, *own)
        return replace(self, form=replace(self.form, kernel=kernel))

    def each(self, function: Callable[..., Any], state: Any, *own: Any, in_turn: bool = False) -> Any:
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

    def each_output(self, function: Callable[..., Array], state: Any, *own: Any) -> Array:
        """Return ``function(form, state, *own)`` of every output, ``[B c, ...]``.

        The arguments ``own`` are ``[k, ...]``.
        """
        if not self.form.outputs_together:
            return jnp.stack([function(self.form, state, *(x[j] for x in own)) for j in self.outputs[0]])

        def of_group(form: Any, state: Any, *own: Array) -> Array:
            return jax.vmap(lambda own: function(form, state, *own))(own)

        arrays = (jnp.stack(x) if isinstance(x, tuple) else x for x in own)
        values = self.each(of_group, state, *(of(x, self.outputs) for x in arrays))
        return jnp.reshape(values, (-1, *values.shape[2:]))

    def of_group(self, group: int, state: Any) -> tuple[Any, Any]:
        """Return the form and the state of one group by itself."""
        if self._is_one:
            return self.form, state
        form, own = jax.tree.map(lambda x: x[self.groups.index(group)], (_without_shared(self.form), _without_shared(state)))
        return replace(form, candidates=self.form.candidates), replace(own, axes=state.axes, placed=state.placed)

    def absorb(self, state: Any, index: Array, noise: Array, present: Array | None = None) -> Any:
        """Apply the form's method in every group, at one index or ``[B]``."""
        return (
            self._alone(self.form.absorb, state, index, noise, present) if self._is_one else self._stepped(state, index, noise, present)[:4]
        )

    def observe(self, state: Any, index: Array, noise: Array, present: Array | None = None) -> Any:
        """Apply the form's method in every group, at one index or ``[B]``."""
        if self._is_one:
            return self._alone(self.form.observe, state, index, noise, present)
        after, _, u, s, column = self._stepped(state, index, noise, present)
        return after, u, column, s

    def _alone(self, method: Callable[..., Any], state: Any, *own: Array | None) -> Any:
        after, *rest = method(state, *(None if x is None else jnp.reshape(x, ()) for x in own))
        return after, *(x[None] for x in rest)

    def _stepped(self, state: Any, index: Array, noise: Array, present: Array | None) -> Any:
        if jnp.ndim(index):
            new, *rest = self.each(lambda form, own, *given: form.rank_one_step(own, *given), state, index, noise, present)
        else:
            # One index for all groups is a slice, and no gather.
            new, *rest = self.each(lambda form, own, *given: form.rank_one_step(own, index, *given), state, noise, present)
        return self.form.apply_step(state, new, present), *rest

    def place(self, state: Any, point: Array) -> tuple[Any, Array, Array]:
        """Add ``point [d]``, and return states, index ``[]`` and features ``[B, r]``."""
        index = np.shape(self.form.candidates)[0] + state.placed
        v = self.each(lambda form, own: form.weights_at(own, point[None])[0], state)
        after = self.form.set_features(state, index, v[0] if self._is_one else v)
        after = replace(after, axes=insert_column(state.axes, index, point), placed=state.placed + 1)
        return after, index.astype(jnp.int32), v


class Grouped(NamedTuple):
    """Outputs ``k`` in ``G`` groups, whose forms are computed in batches.

    Attributes:
      groups: ``[k]`` numbers of the outputs' groups.
      numbers: numbers of the groups of each batch.
      batched: function that stacks the forms of each batch.
    """

    groups: tuple[int, ...]
    numbers: tuple[tuple[int, ...], ...]
    batched: Callable[[], tuple[FormBatch, ...]]

    @classmethod
    def of(cls, forms: Sequence[Form[Any]], groups: tuple[int, ...]) -> Grouped:
        """Return the groups of outputs whose forms ``[G]`` are given."""
        alike: dict[Any, tuple[int, ...]] = {}
        for g, form in enumerate(forms):
            leaves, structure = jax.tree.flatten(form) if form.outputs_together else ([], g)
            kind = (structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves), groups.count(g))
            alike[kind] = (*alike.get(kind, ()), g)

        def stacked(*leaves: Any) -> Array:
            return jnp.stack([jnp.asarray(leaf) for leaf in leaves])

        def batch(numbers: tuple[int, ...]) -> FormBatch:
            form: Any = forms[numbers[0]]
            if len(numbers) > 1:
                bare = jax.tree.map(stacked, *(_without_shared(forms[g]) for g in numbers))
                form = replace(bare, candidates=form.candidates)
            outputs = tuple(tuple(j for j, group in enumerate(groups) if group == g) for g in numbers)
            return FormBatch(form=form, groups=numbers, outputs=outputs)

        return cls(groups, tuple(alike.values()), lambda: tuple(map(batch, alike.values())))

    def pairs(self, factors: Sequence[Any]) -> zip[tuple[FormBatch, Any]]:
        """Return each batch with its state."""
        return zip(self.batched(), factors, strict=True)

    def of_group(self, factors: Sequence[Any], group: int) -> tuple[Form[Any], Any]:
        """Return the form and the state of a group by itself."""
        return next(batch.of_group(group, factor) for batch, factor in self.pairs(factors) if group in batch.groups)

    def joined(self, parts: Sequence[Array]) -> Array:
        """Return ``[G, ...]`` from an array ``[B, ...]`` for each batch."""
        return in_order(parts, self.numbers)

    def by_group(self, parts: Sequence[T]) -> list[T]:
        """Return a tree for each group from a tree for each batch."""
        places = {g: (n, b) for n, numbers in enumerate(self.numbers) for b, g in enumerate(numbers)}
        return [jax.tree.map(lambda x, b=b: x[b], parts[n]) for n, b in map(places.__getitem__, range(len(places)))]

    def by_output(self, parts: Sequence[Array]) -> Array:
        """Return ``[k, ...]`` from an array ``[B, ...]`` for each batch."""
        return self.of_outputs(self.joined(parts))

    def of_outputs(self, table: Array) -> Array:
        """Return ``[k, ...]`` from ``table [G, ...]``."""
        return jnp.broadcast_to(table, (len(self.groups), *table.shape[1:])) if len(table) == 1 else of(table, self.groups)

    def each_output(self, function: Callable[..., Array], factors: Sequence[Any], *own: Any) -> Array:
        """Return ``function(form, state, *own)`` of outputs, with ``own [k, ...]``."""
        batches = self.batched()
        parts = [batch.each_output(function, factor, *own) for batch, factor in zip(batches, factors, strict=True)]
        return in_order(parts, [batch.outputs for batch in batches])

    def expand(self, factors: Sequence[Any], weights: Sequence[Array]) -> Array:
        """Return the functions ``[k, M]`` that have the outputs' ``weights [r]``."""
        return self.each_output(lambda form, state, own: form.expand(state, own), factors, tuple(weights))

    def spread(self, factors: Sequence[Any]) -> Array:
        """Compute the posterior variances ``[G, M]`` from the factors alone."""
        return self.joined([batch.each(lambda form, own: form.spread(own), factor) for batch, factor in self.pairs(factors)])


def _is_state(part: object) -> bool:
    return isinstance(part, OwnPoints)


def _without_shared(tree: T) -> T:
    """Return forms and states without the candidates and points that groups share."""

    def bare(part: Any) -> Any:
        if isinstance(part, BoxForm):
            return replace(part, candidates=None)
        return replace(part, axes=None, placed=None) if isinstance(part, OwnPoints) else part

    return jax.tree.map(bare, tree, is_leaf=lambda part: isinstance(part, BoxForm | OwnPoints))


def in_order(parts: Sequence[Array], numbers: Sequence[Any]) -> Array:
    """Join ``parts [n, ...]`` in the order of their ``numbers [n]``."""
    joined = jnp.concatenate(parts) if len(parts) > 1 else parts[0]
    return of(joined, np.argsort(np.concatenate([np.ravel(own) for own in numbers])))


def of(table: Array, numbers: Any) -> Array:
    """Return ``table[numbers]``, without a gather."""
    numbers = np.asarray(numbers)
    first, wanted = int(numbers.flat[0]), numbers.ravel()
    if np.array_equal(wanted, np.arange(first, first + numbers.size)):
        rows = table if numbers.size == len(table) else table[first : first + numbers.size]
    else:
        rows = jnp.concatenate([table[n : n + 1] for n in wanted])
    return rows.reshape(*numbers.shape, *table.shape[1:])
