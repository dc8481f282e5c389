"""Wrappers of algorithms: the doubling trick, and refits of hyper-parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, S, Seen, Shown, Traits, posterior_of
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.doors import setting
from jaxbandit.core.fields import MOST_ROUNDS, between, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.delays import Delay
from jaxbandit.feedback import DelayedSurrogate, Policy, Wait
from jaxbandit.feedback.learner import LatePosterior
from jaxbandit.surrogates import (
    AbstractSurrogate,
    Belief,
    BoxSurrogate,
    Prior,
    RangedSurrogate,
    RefittedBox,
    RefittedPosterior,
    RefittedSurrogate,
)
from jaxbandit.surrogates.boxes.pool import Pool
from jaxbandit.surrogates.evidence.density import LEARNING
from jaxbandit.surrogates.posterior import AnyPosterior


class Wrapper(Algorithm[S]):
    """Abstract base of algorithms that run another algorithm."""

    algorithm: Algorithm[Any]

    @property
    def traits(self) -> Traits:
        return self.algorithm.traits

    @property
    def on_boxes(self) -> bool:
        return self.algorithm.on_boxes

    @property
    def on_contexts(self) -> bool:
        return self.algorithm.on_contexts

    def with_delays(self, delay: Delay, policy: Policy) -> Self:
        return replace(self, algorithm=self.algorithm.with_delays(delay, policy))

    def with_facts(self, **facts: object) -> Self:
        return replace(self, algorithm=self.algorithm.with_facts(**facts))


@pytree
class AnytimeState:
    """State of the wrapped algorithm, and quantities of earlier stretches."""

    inner: object
    flags: Array  # [] int32, raised earlier
    evaluations: Array  # [] int32, of earlier stretches


@pytree
class Anytime(Wrapper[AnytimeState]):
    """Run ``algorithm`` over stretches of 1, 2, 4, ... rounds.

    Stretch ``i`` covers rounds ``2^i .. 2^(i+1) - 1`` and has its length as horizon. At its first round the algorithm resets penalties,
    dual variables and the round count, and the data unless ``keep_data``. (Round 1 starts with the initial design, if there is one.)

    Attributes:
      algorithm: any algorithm.
      keep_data: whether a stretch starts with the posterior of the stretch before. It does not in the theory, but it helps in practice.
    """

    name: ClassVar[str] = "anytime"
    title: ClassVar[str] = "doubling trick"
    papers: ClassVar[Mapping[str, str]] = {"zhou2022": "Remark 1"}
    algorithm: Algorithm[Any]
    keep_data: bool = static(default=False)

    def init(self, arena: Arena) -> AnytimeState:
        first = self.algorithm.init(replace(arena, horizon=jnp.int32(1)))
        return AnytimeState(inner=first, flags=jnp.int32(0), evaluations=jnp.int32(0))

    def select(self, arena: Arena, state: AnytimeState, t: Array, key: Key) -> tuple[Decision, AnytimeState]:
        stretch, start = _stretch(arena, t)
        decision, inner = self.algorithm.select(stretch, state.inner, t - start + 1, key)
        return decision, replace(state, inner=inner)

    def update(self, arena: Arena, state: AnytimeState, observation: Seen, t: Array) -> AnytimeState:
        stretch, start = _stretch(arena, t)
        inner = self.algorithm.update(stretch, state.inner, observation, t - start + 1)
        # The restart is at the end of a stretch, so that the state always has the multipliers of the coming round.
        following, next_start = _stretch(arena, t + 1)

        def restarted(arena: Arena, state: AnytimeState) -> AnytimeState:
            shown = self.diagnose(state)
            fresh = self.algorithm.reset(arena, state.inner) if self.keep_data else self.algorithm.init(arena)
            return AnytimeState(inner=fresh, flags=shown["flags"], evaluations=shown.get("evaluations", state.evaluations))

        moved = replace(state, inner=inner)
        return jax.lax.cond(t + 1 == next_start, restarted, lambda _, state: state, following, moved)

    def learn(self, arena: Arena, state: AnytimeState, observation: Seen) -> AnytimeState:
        return replace(state, inner=self.algorithm.learn(arena, state.inner, observation))

    def begin(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        return replace(state, inner=self.algorithm.begin(arena, state.inner))

    def reset(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        first = self.algorithm.reset(replace(arena, horizon=jnp.int32(1)), state.inner)
        return AnytimeState(inner=first, flags=jnp.int32(0), evaluations=jnp.int32(0))

    def posterior(self, state: AnytimeState) -> AnyPosterior:
        return self.algorithm.posterior(posterior_of(state, "inner"))

    def belief(self, arena: Arena, state: AnytimeState) -> Belief:
        return self.algorithm.belief(arena, state.inner)

    def diagnose(self, state: AnytimeState) -> Shown:
        shown = self.algorithm.diagnose(state.inner)
        before = {"evaluations": state.evaluations + shown["evaluations"]} if "evaluations" in shown else {}
        return {**shown, "flags": state.flags | jnp.asarray(shown.get("flags", 0), jnp.int32), **before}

    def reveal(self, arena: Arena, state: AnytimeState, sample: Array, t: Array) -> AnytimeState:
        stretch, start = _stretch(arena, t)
        return replace(state, inner=self.algorithm.reveal(stretch, state.inner, sample, t - start + 1))

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the letters of the wrapped algorithm over the last full stretch."""
        last = 1 << (horizon.bit_length() - 1)
        return {"anytime": True, "keep_data": self.keep_data, **self.algorithm.symbols_in_force(last)}


def _stretch(arena: Arena, t: Array) -> tuple[Arena, Array]:
    """Return the arena of round ``t``'s stretch and the stretch's first round."""
    start = jnp.left_shift(jnp.int32(1), 31 - jax.lax.clz(jnp.asarray(t, jnp.int32)))
    return replace(arena, horizon=start), start


@pytree
class Refitted(Wrapper[S]):
    """Run ``algorithm`` on a model with hyper-parameters fitted by maximum posterior.

    Each trial fits length-scales, variances and noise variances to its own data: with ``at_start`` to its initial design before round 1,
    and then at doubling times or after every ``every`` rounds. (To fit to data from before a study, the same for all trials, use ``fit_to``
    of :func:`jaxbandit.ranged`, of :func:`jaxbandit.surrogate` or of a study's model.)

    The model may be a model of :func:`jaxbandit.ranged`. The fit stays within its range and has a length-scale for each axis if the model
    does. Outputs that share kernel and noise variance share a fit, unless the model is ``separate()``. The model may also be a model of a
    box whose kernel has one length-scale. Each output then has its own fit, with a length-scale for each axis between 0.005 and 100 sides.

    Fits are the same as in sessions. They standardise values by their mean and standard deviation and add a constant of unit variance to
    the kernel. The constant becomes the prior mean, and many values at one point count as one value in it. Searches start from the last
    fit, from short length-scales without noise, and from long length-scales with much noise. So neither the prior mean nor the variances
    of the model matter after the first fit, except the noise with ``fit_noise=False``.

    The confidence bounds of the papers hold for a known kernel. They guarantee nothing for a fitted kernel, and data that an algorithm
    has chosen can mislead the fit for good (Berkenkamp, Schoellig and Krause 2019, *No-regret Bayesian optimization with unknown
    hyperparameters*).

    A fit costs a trial some milliseconds. Rounds between fits cost the same as on a ranged model. Under delay the policy must be
    ``feedback.Wait()``, because other policies sum updates under one kernel for the missing values, and a fit would invalidate this sum.

    A fit that ends within 0.1% of an end of a range flags the trial. This warns and changes nothing: an axis may not matter, or the range
    may be too narrow.

    Attributes:
      algorithm: any algorithm that uses the posterior of the surrogate.
      every: rounds between fits; by default fits follow rounds ``first``, ``2 first``, ``4 first``, ...
      first: rounds before the first of these fits. Points of the initial design count as rounds, but no such fit follows one of them.
      prior: prior of the hyper-parameters, with variances in units of the values' variance. The default's length-scales have a median of
        0.4 diagonals of the domain and a spread of 0.7, because longer ones leave more trials in a lower basin. Its noise may be absent or
        larger than the signal. Data in one basin can make axes seem irrelevant that matter elsewhere. Under
        ``LogNormal(median=0.2, spread=0.7, apart=0.1)`` all axes have about the same length-scale, which is worse if they differ.
      span: largest factor by which the kernel's variance may differ from the values' variance.
      points: largest number of distinct points in a fit: the points visited most, on a box points evenly spaced in time. A fit's cost grows
        with the third power of this number.
      steps: largest number of steps of each of a fit's four searches.
      fit_noise: whether to fit the noise variance, too.
      at_start: whether to fit to the initial design, too, before round 1. Without a design there is no such fit.
    """

    name: ClassVar[str] = "refitted"
    title: ClassVar[str] = "maximum-posterior refits"
    papers: ClassVar[Mapping[str, str]] = {"hvarfner2024": "sec. 5 (the prior)"}
    algorithm: Algorithm[S]
    prior: Prior = LEARNING
    span: Annotated[Scalar, between(1, float("inf"), open_high=True)] = 1e3
    every: Annotated[int, whole(1, MOST_ROUNDS)] | None = static(default=None)
    first: Annotated[int, whole(1, MOST_ROUNDS)] = static(default=8)
    points: Annotated[int, whole(1, 10_000)] = static(default=64)
    steps: Annotated[int, whole(1, 10_000)] = static(default=20)
    fit_noise: bool = static(default=True)
    at_start: bool = static(default=False)

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(self.algorithm.traits, feedback=Wait(), standardises=self.at_start, refits=True)

    def init(self, arena: Arena) -> S:
        state = self.algorithm.init(self._fitting(arena))
        if not isinstance(self._held(state), RefittedPosterior):
            raise InvalidArgument(f"Refitted.algorithm: {type(self.algorithm).__name__} keeps beliefs of its own; they cannot be refitted")
        return state

    def select(self, arena: Arena, state: S, t: Array, key: Key) -> tuple[Decision, S]:
        return self.algorithm.select(self._fitting(arena), state, t, key)

    def update(self, arena: Arena, state: S, observation: Seen, t: Array) -> S:
        return self.algorithm.update(self._fitting(arena), state, observation, t)

    def learn(self, arena: Arena, state: S, observation: Seen) -> S:
        # The observation belongs to an initial design.
        return self.algorithm.learn(self._fitting(arena, fits=False), state, observation)

    def begin(self, arena: Arena, state: S) -> S:
        fitting = self._fitting(arena)
        if self.at_start:
            surrogate, held = fitting.surrogate, self._held(state)
            model: Any = surrogate.arrivals if isinstance(surrogate, DelayedSurrogate) else surrogate
            fitted = model.fitted(held)
            state = jax.tree.map(lambda part: fitted if part is held else part, state, is_leaf=lambda part: part is held)
        return self.algorithm.begin(fitting, state)

    def reveal(self, arena: Arena, state: S, sample: Array, t: Array) -> S:
        return self.algorithm.reveal(self._fitting(arena), state, sample, t)

    def reset(self, arena: Arena, state: S) -> S:
        return self.algorithm.reset(self._fitting(arena), state)

    def place(self, arena: Arena, state: S, point: Array) -> tuple[Array, S]:
        return self.algorithm.place(self._fitting(arena), state, point)

    def posterior(self, state: S) -> AnyPosterior:
        return self.algorithm.posterior(state)

    def belief(self, arena: Arena, state: S) -> Belief:
        return self.algorithm.belief(self._fitting(arena, fits=False), state)

    def _held(self, state: S) -> Any:
        """Return the posterior of the fitted model in ``state``."""
        posterior = self.posterior(state)
        return posterior.belief if isinstance(posterior, LatePosterior) else posterior

    def diagnose(self, state: S) -> Shown:
        shown, held = self.algorithm.diagnose(state), self._held(state)
        return {**shown, "length_scales": held.hyper_parameters.length_scale, "flags": shown.get("flags", 0) | held.flags}

    def with_delays(self, delay: Delay, policy: Policy) -> Self:
        if not isinstance(policy, Wait):
            raise InvalidArgument(
                f"feedback: Refitted plays with Wait under delay, got {type(policy).__name__}, whose belief of points without a value is"
                f" made of updates under one kernel and cannot be fitted anew; give {setting('feedback', Wait())}"
            )
        return super().with_delays(delay, policy)

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the letters of the wrapped algorithm."""
        fits = {"refitted": True, "every": self.every, "first": self.first, "prior": type(self.prior).__name__}
        return fits | self.algorithm.symbols_in_force(horizon)

    def _fitting(self, arena: Arena, *, fits: bool = True) -> Arena:
        """Return the arena whose model fits hyper-parameters, or stores data for fits."""
        surrogate = arena.surrogate
        model = surrogate.arrivals if isinstance(surrogate, DelayedSurrogate) else surrogate
        if not isinstance(model, RangedSurrogate | BoxSurrogate):
            raise InvalidArgument("surrogate: Refitted fits the length-scale of a model of jaxbandit.ranged, or of a box; make it by that")
        if np.ndim(model.noise_variance) == 2:
            raise InvalidArgument("surrogate.noise_variance: Refitted fits one number for each output, got a table over the points")
        if isinstance(model, BoxSurrogate) and not all(isinstance(form, Pool) for form in model.forms):
            words = f"whose features were made of one kernel; build the model without {setting('form', 'features')}, which is exact"
            raise InvalidArgument(f"surrogate: Refitted fits kernels anew, and this model is one {words}")
        how = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in ("algorithm", "at_start")}
        refitted: AbstractSurrogate
        if isinstance(model, RangedSurrogate):
            refitted = RefittedSurrogate(
                ranged=replace(model, forms=tuple(batch.form for batch in model.grouped.batched())), fits=fits, **how
            )
        else:
            refitted = RefittedBox(box=model.separate(), fits=fits, **how)
        return replace(arena, surrogate=replace(surrogate, arrivals=refitted) if isinstance(surrogate, DelayedSurrogate) else refitted)
