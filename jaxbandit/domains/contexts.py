"""Finite domains of contexts and actions.

A problem draws the contexts, and an algorithm chooses the actions.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import numpy_of
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array, Key, Numbers, Table, checked
from jaxbandit.core.fields import integers_from, positive_numbers, vector, whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.domains.boxes import Box
from jaxbandit.domains.finite import MOST_POINTS, Domain

__all__ = ["Contextual", "with_contexts"]


@pytree
class Contextual(Domain):
    """Product of ``Z`` contexts and ``A`` actions, from :func:`with_contexts`.

    The coordinates of a point are those of its context and then those of its action, and point ``z A + a`` has context ``z`` and action
    ``a``. A problem on this domain draws a context in every round, from a stream of random numbers of its own: trials with the same key
    meet the same contexts, whatever the algorithm. The algorithm sees the context and chooses among its actions.

    Attributes:
      probabilities: ``[Z]`` probabilities of the contexts.
      sequence: ``[n]`` numbers of the contexts of rounds 1 to ``n``, then again from the first; ``None`` to draw contexts independently.
      context_axes: number of the axes of the contexts, which are the first.
    """

    described: ClassVar[str] = "a domain with contexts, jaxbandit.domains.with_contexts(...)"
    probabilities: Annotated[Table, positive_numbers, vector("one probability per context")]
    sequence: Annotated[Table, integers_from(0, MOST_POINTS), vector("the number of a context per round")] | None = None
    context_axes: Annotated[int, whole(1)] = static()

    @property
    def contexts(self) -> int:
        """Number of contexts, ``Z``."""
        return int(np.shape(self.probabilities)[0])

    @property
    def actions(self) -> int:
        """Number of actions, ``A``."""
        return self.size // self.contexts

    @property
    def shares(self) -> Table:
        """Probability ``[Z]`` of each context, or its share of the sequence."""
        if self.sequence is None:
            return self.probabilities
        rounds, module = self.sequence, numpy_of(self.sequence)
        return module.mean(rounds[:, None] == np.arange(self.contexts, dtype=np.int32)[None], axis=0)

    @classmethod
    def of(cls, domain: Domain, axes: int, count: int) -> Contextual:
        """Return a domain whose first ``axes`` are of ``count`` contexts."""
        fields = ("points", "axes", "names", "categories")
        given: dict[str, Any] = {name: getattr(domain, name) for name in fields}
        return cls(**given, probabilities=np.full(count, 1 / count), context_axes=axes)

    def mean(self, values: Table) -> Table:
        """Return the mean ``[]`` over contexts of ``values [Z]``."""
        module, shares = numpy_of(values), self.shares.astype(values.dtype)
        return module.sum(module.where(shares > 0, shares * values, 0))

    def draw(self, key: Key, t: Array) -> Array:
        """Return the number ``[]`` of the context of round ``t`` (from 1)."""
        if self.sequence is not None:
            rounds = jnp.asarray(self.sequence, jnp.int32)
            return rounds[(t - 1) % len(rounds)]
        # The precision is always the same, and so are the contexts.
        drawn = jax.random.choice(key, self.contexts, p=jnp.asarray(self.probabilities, jnp.float32))
        return drawn.astype(jnp.int32)

    def numbers(self, context: Array, actions: Array) -> Array:
        """Return the numbers of points ``[...]``, from numbers of actions ``[...]``.

        Numbers outside of the actions become numbers outside of the domain, ``A`` the number ``M``.
        """
        inside = (actions >= 0) & (actions < self.actions)
        outside = jnp.where(actions < 0, actions, actions + (self.size - self.actions))
        return jnp.where(inside, context * self.actions + actions, outside)

    def at(self, context: Array, table: Array, axis: int = -1) -> Array:
        """Return a table ``[..., M]`` at a context's actions, ``[..., A]``."""
        return jax.lax.dynamic_slice_in_dim(jnp.asarray(table), context * self.actions, self.actions, axis)


@nameable
@checked
def with_contexts(
    actions: Domain,
    contexts: Domain,
    *,
    probabilities: Annotated[Numbers, positive_numbers, vector("one probability per context")] | None = None,
    sequence: Annotated[Numbers, integers_from(0, MOST_POINTS), vector("the number of a context per round")] | None = None,
) -> Contextual:
    """Make the product of contexts and actions.

    A problem on it draws the context of each round, and an algorithm chooses among the actions. An example is
    ``with_contexts(grid([0.0], [1.0], 50), grid([0.0], [30.0], 7))``. Contexts are the first axes, with their own names or ``z1, z2, ...``.

    Args:
      actions, contexts: finite domains; the product is a grid if both are.
      probabilities: of each context, with sum 1; default the same for all.
      sequence: numbers of the contexts in rounds 1, 2, ..., counted from 0; it begins again after its end. Default: contexts are drawn.

    Raises:
      InvalidArgument: on a box or a domain with contexts, on probabilities whose sum is not 1, a sequence of unknown contexts, both of
        them, names that repeat, or too many points.
    """
    for name, part in (("actions", actions), ("contexts", contexts)):
        if isinstance(part, Box | Contextual):
            raise checks.InvalidArgument(f"{name}: must be a finite domain without contexts, such as a grid, got {checks.short(part)}")
    count, each = contexts.size, actions.size
    if count * each > MOST_POINTS:
        raise checks.InvalidArgument(f"contexts: must make at most {MOST_POINTS:,} points in all, got {count:,} for {each:,} actions")
    if probabilities is not None and sequence is not None:
        raise checks.InvalidArgument("sequence: give either it or probabilities, because a sequence draws no context")
    shares = np.full(count, 1 / count) if probabilities is None else np.asarray(probabilities, np.float64)
    checks.shape("probabilities", shares, (count,), remedy="one for each context")
    if not math.isclose(float(np.sum(shares)), 1.0, rel_tol=1e-6):
        raise checks.InvalidArgument(f"probabilities: must have the sum 1, got {float(np.sum(shares)):.6g}")
    if sequence is not None:
        integers_from(0, count - 1)("sequence", sequence)
    both = (contexts, actions)
    named = [part.names or tuple(f"{letter}{axis + 1}" for axis in range(part.dimension)) for part, letter in zip(both, "zx", strict=True)]
    labelled = [part.categories or ((),) * part.dimension for part in both]
    first, second = (np.asarray(part.points, np.float64) for part in both)
    return Contextual(
        points=np.hstack([np.repeat(first, each, axis=0), np.tile(second, (count, 1))]),
        axes=contexts.axes + actions.axes if contexts.axes and actions.axes else (),
        names=named[0] + named[1],
        categories=labelled[0] + labelled[1] if any(labelled[0] + labelled[1]) else (),
        probabilities=shares,
        sequence=None if sequence is None else np.asarray(sequence, np.int32),
        context_axes=contexts.dimension,
    )
