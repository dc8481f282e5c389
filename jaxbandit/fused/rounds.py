"""The parts of a round of a whole run: an algorithm's own ``select`` and ``update``, traced, and what a kernel makes of them row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Observation
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.domains import Domain
from jaxbandit.fused.equations import Name, Operand, Program, Unsupported, check_axes, divide, needed, traced
from jaxbandit.fused.rows import Cells, Rows, cells_of, check_operations, compute
from jaxbandit.surrogates import AbstractSurrogate, Posterior, Prediction, Surrogate
from jaxbandit.surrogates.features import DenseFeatures, ProductFeatures, SquareRoot
from jaxbandit.surrogates.nystroem import NystroemFeatures

Array = jax.Array
Form = DenseFeatures | NystroemFeatures | ProductFeatures


@pytree
class Listener(AbstractSurrogate):
    """Surrogate that learns nothing: it keeps the values of an observation in place of the mean, and the kernel learns from them."""

    base: Surrogate

    @property
    def model(self) -> Surrogate:
        """The Gaussian-process model."""
        return self.base

    @property
    def domain(self) -> Domain:
        """The ``M`` points."""
        return self.base.domain

    def init(self) -> Posterior:
        return self.base.init()

    def condition(self, posterior: Posterior, index: Array, values: Array) -> Posterior:
        return replace(posterior, shift=jnp.broadcast_to(values[:, None], posterior.shift.shape))  # which a kernel keeps as numbers

    def predict(self, posterior: Posterior) -> Prediction:
        return self.base.predict(posterior)

    def gain(self, posterior: Posterior) -> Array:
        return posterior.gain

    def draw(self, posterior: Posterior, key: Array, scale: Array) -> Array:
        return self.base.draw(posterior, key, scale)

    def covariance(self, posterior: Posterior, output: int, indices: Array) -> Array:
        return self.base.covariance(posterior, output, indices)


class State(NamedTuple):
    """A state of an algorithm in two parts: its belief, and all other leaves."""

    leaves: list[Any]
    place: int  # of the belief among the leaves
    structure: Any

    @classmethod
    def of(cls, state: Any) -> State:
        """Return the parts of a state that holds one posterior.

        Raises:
          Unsupported: on a state that holds none, or several.
        """
        leaves, structure = jax.tree.flatten(state, is_leaf=lambda x: isinstance(x, Posterior))
        places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, Posterior)]
        if len(places) != 1:
            raise Unsupported("its state does not hold one posterior")
        return cls(leaves, places[0], structure)

    @property
    def belief(self) -> Posterior:
        """The posterior."""
        belief: Posterior = self.leaves[self.place]
        return belief

    @property
    def others(self) -> list[Any]:
        """All other leaves."""
        return self.leaves[: self.place] + self.leaves[self.place + 1 :]

    def joined(self, belief: Posterior, others: Sequence[Any]) -> Any:
        """Return a state with another belief and other leaves."""
        return jax.tree.unflatten(self.structure, [*others[: self.place], belief, *others[self.place :]])


class Steps(NamedTuple):
    """The parts of a round by an algorithm, traced, and the leaves of its state before round 1."""

    select: Program
    update: Program
    start: list[np.ndarray]

    @property
    def numbers(self) -> int:
        """Number of numbers in the leaves, at least 1."""
        return max(1, sum(leaf.size for leaf in self.start))

    def leaves_in(self, flat: Sequence[Any]) -> list[Cells]:
        """Return the leaves whose numbers are given one after the other."""
        found, at = [], 0
        for leaf in self.start:
            found.append(boxed(flat[at : at + leaf.size], leaf.shape))
            at += leaf.size
        return found

    def flat(self, leaves: Sequence[Cells], number: Callable[[Any, Any], Any]) -> list[Any]:
        """Return the numbers of leaves one after the other, each made a value of the kernel by ``number`` of itself and its dtype."""
        own = zip(leaves, self.start, strict=True)
        return [number(cells[place], leaf.dtype) for cells, leaf in own for place in np.ndindex(leaf.shape)]


def steps_of(algorithm: Algorithm, surrogate: Surrogate, horizon: int) -> Steps:
    """Return the traced parts of a round.

    Raises:
      Unsupported: when a kernel cannot play them, with the reason.
    """
    form = surrogate.forms[0]
    if len(surrogate.forms) != 1 or not isinstance(form, SquareRoot):
        raise Unsupported("its outputs do not share one root of features")
    if surrogate.noise_differs:
        raise Unsupported("points have noise variances of their own")
    if surrogate.refresh:
        raise Unsupported("its variance is computed anew after some rounds")
    arena = Arena(surrogate=Listener(base=surrogate), horizon=np.int32(horizon))  # type: ignore[arg-type]  # a constant of the kernel
    with jax.ensure_compile_time_eval():  # as is the first state
        start = State.of(algorithm.init(arena))
    size = surrogate.domain.size
    if any(np.shape(leaf)[-1:] == (size,) for leaf in start.others):
        raise Unsupported("its state holds functions of the grid beside its belief")

    def belief(shift: Array, variance: Any, gain: Array) -> Posterior:
        return Posterior(factors=start.belief.factors, shift=shift, variance=variance, gain=gain)

    def select(shift: Array, variance: Array, gain: Array, others: list[Array], t: Array, key: Array) -> Any:
        decision, after = algorithm.select(arena, start.joined(belief(shift, variance, gain), others), t, key)
        return jnp.minimum(decision.index, size - 1), State.of(after).others

    def update(index: Array, values: Array, others: list[Array], t: Array) -> Any:
        empty = jax.tree.map(jnp.zeros_like, start.belief)
        after = State.of(algorithm.update(arena, start.joined(empty, others), Observation(index=index, values=values), t))
        return after.belief.shift, after.others

    known = start.belief
    key, t = jax.random.key(0), np.int32(1)
    selected, _ = traced(select, (known.shift, known.variance, known.gain, start.others, t, key))
    updated, _ = traced(update, (t, known.shift[:, 0], start.others, t))
    for program in (selected, updated):
        equations = needed(program.equations, program.results)
        used = {operand for equation in equations for operand in equation.inputs}
        if any(isinstance(x, Name) and x in used and jnp.issubdtype(x.aval.dtype, jax.dtypes.prng_key) for x in program.arguments):
            raise Unsupported("it draws random numbers in every round")
        check_operations(equations)
        division = divide(program, [True] * len(program.arguments), size)
        check_axes(division, size)
    leaves = [np.asarray(leaf) for leaf in start.others]
    return Steps(selected, updated, leaves)


def boxed(values: Sequence[Any], shape: tuple[int, ...]) -> Cells:
    """Return values of a kernel as cells of some shape."""
    cells = np.empty(shape, object)
    for place, value in zip(np.ndindex(shape), values, strict=True):
        cells[place] = value
    return cells


def evaluated(program: Program, arguments: Sequence[Cells], rows: Rows) -> list[Cells]:
    """Return the results of a program on cells."""
    known: dict[Operand, Cells] = dict(zip(program.arguments, arguments, strict=True))
    compute(needed(program.equations, program.results), known, rows)
    return [known[result] if isinstance(result, Name) else cells_of(result.value) for result in program.results]
