"""Algorithms as pure functions in JAX programs of users."""

from __future__ import annotations

from typing import Self

import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Observation
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Array, Key, checked
from jaxbandit.core.fields import Rounds
from jaxbandit.core.pytree import canonicalise, pytree, replace
from jaxbandit.core.status import Status
from jaxbandit.domains import Box, Contextual
from jaxbandit.engine import learner
from jaxbandit.engine.cell import check_capacity, least_refresh, with_room_for
from jaxbandit.surrogates import Surrogate
from jaxbandit.surrogates.precision import require


@pytree
class LearnerState:
    """State of a :class:`Learner` between its calls.

    Attributes:
      state: the algorithm's own state.
      round: ``[]`` int32, the number of points asked for so far.
      status: ``[]`` int32, the bits of :class:`~jaxbandit.Status` so far.
    """

    state: object
    round: Array
    status: Array


@pytree
class Learner:
    """Algorithm with its model, for a JAX program of your own.

    It is a pytree of pure functions, so that ``jit``, ``vmap`` and ``scan`` take it as any other value. Make it by :meth:`of`. Rewards are
    maximised, and a constraint holds where its value is ``<= 0``.
    """

    algorithm: Algorithm
    arena: Arena

    @classmethod
    @checked
    def of(cls, algorithm: Algorithm, model: Surrogate, *, horizon: Rounds) -> Self:
        """Return the learner of a run of ``horizon`` rounds at most.

        Raises:
          InvalidArgument: on a box, on an algorithm that sees constraints beforehand or lacks a fact, and on a model in another precision.
        """
        model.validate()
        algorithm.validate(None, model.outputs, model.domain.size, model.domain.dimension)
        if isinstance(model.domain, Box):
            raise InvalidArgument("model: must be on a finite domain, such as domain.sobol(4096, 0) of a box, got one on a box")
        if isinstance(model.domain, Contextual) and not algorithm.on_contexts:
            raise InvalidArgument(f"algorithm: {type(algorithm).__name__} cannot choose among the actions of one context")
        if algorithm.traits.sees_constraints:
            raise InvalidArgument(
                f"algorithm: {type(algorithm).__name__} sees a constraint function before it chooses, which nobody tells here"
            )
        if lacks := algorithm.traits.lacks:
            raise InvalidArgument(lacks)
        check_capacity(model, horizon, 0)
        require(model.precision)
        ready = canonicalise(replace(with_room_for(model, horizon, least_refresh([model], horizon)), kernels=()))
        return cls(algorithm=canonicalise(algorithm), arena=Arena(surrogate=ready.factorised(), horizon=jnp.asarray(np.int32(horizon))))

    def init(self) -> LearnerState:
        """Return the state before the first point."""
        return LearnerState(state=self.algorithm.init(self.arena), round=jnp.int32(0), status=jnp.int32(0))

    def ask(self, state: LearnerState, key: Key, context: Array | None = None) -> tuple[Array, LearnerState]:
        """Return the next point's number ``[]`` on the domain, and the state.

        On a domain with contexts it is a point of ``context []``, the number of a context.
        """
        if isinstance(self.arena.domain, Contextual) != (context is not None):
            has = "has" if context is None else "has no"
            raise InvalidArgument(f"context: the domain {has} contexts, got {short(context)}")
        t = state.round + 1
        choice = learner.choose_point(self.algorithm, self.arena, state.state, t, key, context)
        failures = learner.faults(self.arena, choice, choice.state, learner.may_be_infinite(self.algorithm.init(self.arena)))
        status = learner.with_flags(state.status | learner.flags_raised(self.algorithm, choice.decision, choice.state), failures)
        return choice.point, LearnerState(state=choice.state, round=t, status=status)

    def tell(self, state: LearnerState, point: Array, values: Array) -> LearnerState:
        """Return the state conditioned on the values at a point.

        They are ``[1 + m]``, the reward first. Under ``jit`` a value that is not finite sets the bit ``NONFINITE_FEEDBACK``, and outside
        it raises ``InvalidArgument``.
        """
        values = jnp.asarray(values, self.arena.dtype)
        if values.shape != (self.arena.constraints + 1,):
            expected = f"the reward and {self.arena.constraints} constraints, [{self.arena.constraints + 1}]"
            raise InvalidArgument(f"values: must be {expected}, got {short(values.shape)}")
        observation = Observation(index=jnp.asarray(point, jnp.int32), values=values)
        after = self.algorithm.update(self.arena, state.state, observation, state.round)
        status = learner.with_flags(state.status, {Status.NONFINITE_FEEDBACK: ~jnp.all(jnp.isfinite(values))})
        return LearnerState(state=after, round=state.round, status=status)
