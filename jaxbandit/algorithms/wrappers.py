"""Algorithms that run another one: by the doubling trick, and on a model whose hyper-parameters are fitted while it plays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, S, Seen, Shown, Traits, posterior_of
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.doors import setting
from jaxbandit.core.fields import MOST_ROUNDS, between, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.delays import Delay
from jaxbandit.feedback import DelayedSurrogate, Policy, Wait
from jaxbandit.feedback.learner import LatePosterior
from jaxbandit.surrogates import AbstractSurrogate, BoxSurrogate, Prior, RangedSurrogate, RefittedBox, RefittedPosterior, RefittedSurrogate
from jaxbandit.surrogates.evidence.density import LEARNING
from jaxbandit.surrogates.pool import Pool


class Wrapper(Algorithm[S]):
    """Algorithm that runs another one, its field ``algorithm``, and passes on all that the engine asks of an algorithm; abstract."""

    algorithm: Algorithm[Any]

    @property
    def traits(self) -> Traits:
        return self.algorithm.traits

    @property
    def on_boxes(self) -> bool:
        return self.algorithm.on_boxes

    def reading(self, arena: Arena) -> Arena:
        return self.algorithm.reading(arena)

    def with_delays(self, delay: Delay, policy: Policy) -> Self:
        return replace(self, algorithm=self.algorithm.with_delays(delay, policy))

    def with_facts(self, **facts: object) -> Self:
        return replace(self, algorithm=self.algorithm.with_facts(**facts))


@pytree
class AnytimeState:
    """State of the wrapper: the wrapped algorithm's state, and what it showed in earlier stretches."""

    inner: object
    flags: Array  # [] int32, bits raised in earlier stretches
    evaluations: Array  # [] int32, of earlier stretches; of algorithms that stop by themselves


@pytree
class Anytime(Wrapper[AnytimeState]):
    """Run ``algorithm`` over stretches of 1, 2, 4, ... rounds, each with its own length for horizon.

    Stretch ``i`` covers rounds ``2^i .. 2^(i+1) - 1``. At its first round the algorithm starts again: penalties, dual variables and
    round count; data too unless ``keep_data``. (Round 1 starts with the initial design, if there is one.)

    Attributes:
      algorithm: any algorithm.
      keep_data: carry the posterior over (the theory starts afresh; practice gains by keeping it).
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
        # The restart belongs to the end of a stretch, so that the state always holds the multipliers of the coming round.
        following, next_start = _stretch(arena, t + 1)

        def restarted(arena: Arena, state: AnytimeState) -> AnytimeState:
            shown = self.diagnose(state)
            fresh = self.algorithm.reset(arena, state.inner) if self.keep_data else self.algorithm.init(arena)
            return AnytimeState(inner=fresh, flags=shown["flags"], evaluations=shown.get("evaluations", state.evaluations))

        moved = replace(state, inner=inner)
        after: AnytimeState = jax.lax.cond(t + 1 == next_start, restarted, lambda _, state: state, following, moved)
        return after

    def learn(self, arena: Arena, state: AnytimeState, observation: Seen) -> AnytimeState:
        return replace(state, inner=self.algorithm.learn(arena, state.inner, observation))

    def begin(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        return replace(state, inner=self.algorithm.begin(arena, state.inner))

    def reset(self, arena: Arena, state: AnytimeState) -> AnytimeState:
        first = self.algorithm.reset(replace(arena, horizon=jnp.int32(1)), state.inner)
        return AnytimeState(inner=first, flags=jnp.int32(0), evaluations=jnp.int32(0))

    def belief(self, state: AnytimeState) -> object:
        return self.algorithm.belief(posterior_of(state, "inner"))

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
    """Return the arena of round ``t``'s stretch and the round at which the stretch starts, the largest power of 2 up to ``t``."""
    start = jnp.left_shift(jnp.int32(1), 31 - jax.lax.clz(jnp.asarray(t, jnp.int32)))
    return replace(arena, horizon=start), start


@pytree
class Refitted(Wrapper[S]):
    """Run ``algorithm`` on a model whose length-scale, variance and noise variance are fitted to the data by maximum posterior.

    It takes a model of :func:`jaxbandit.ranged`; the fit stays within its range, and has one length-scale for each axis where the model
    has. Outputs that share kernel and noise variance share a fit, unless the model is ``separate()``.

    It takes a model of a box, too, whose kernel has one length-scale. Each output then has a fit of its own, with a length-scale for each
    axis, between 0.005 and 100 sides.

    Fits are those of sessions: of values less their mean, in units of their standard deviation, with a constant of unit variance beside
    the kernel, which becomes the prior mean and to which many values at one place count as one; searches go on from the last fit, and begin
    at short length-scales without noise and at long ones with much. So neither the prior mean nor the variances of the model matter after
    the first fit, unless the noise is as given (``fit_noise=False``).

    The confidence bounds of the papers hold for a kernel that is known: with a fitted one nothing is promised, and data that an algorithm
    has chosen can mislead the fit for good (Berkenkamp, Schoellig and Krause 2019, *No-regret Bayesian optimization with unknown
    hyperparameters*).

    This is how each trial of a study fits hyper-parameters to what it has seen: with ``at_start`` to its initial design, before round 1,
    and then at doubling times or every so many rounds. (A fit to data that are there before the study, the same for all trials, is
    ``fit_to`` of :func:`jaxbandit.ranged`, of :func:`jaxbandit.surrogate` and of a study's model.)

    A fit costs some milliseconds of a trial, rounds between fits what they cost on a ranged model. Under delay it plays with the policy
    ``feedback.Wait()`` and refuses others: what they believe of points whose values are missing is a sum of updates under one kernel, which
    a fit would void.

    A fit that ends within 0.1% of an end of a range flags the trial, which warns and changes nothing: data may say that an axis does not
    matter, or that the range is too narrow.

    Attributes:
      algorithm: any algorithm that learns by the posterior it is given.
      every: rounds between fits; by default they follow rounds ``first``, ``2 first``, ``4 first``, ...
      first: rounds before the first of these fits. Points of the initial design count as rounds, but none of these fits follows one.
      prior: prior of the hyper-parameters, with variances in units of the values' own. The default's length-scales have a median of 0.4
        diagonals of the domain and a spread of 0.7, because longer ones leave more trials in a lower basin, and its noise may be absent or
        larger than the signal. Data that lie in one basin can make axes seem not to matter that do elsewhere; under
        ``LogNormal(median=0.2, spread=0.7, apart=0.1)`` all axes have about one length-scale, which is worse where they differ.
      span: largest factor by which the kernel's variance may differ from the values'.
      points: most distinct points that a fit looks at, those visited most, on a box evenly spaced in time; its cost grows with their
        third power.
      steps: most steps of each of a fit's four searches.
      fit_noise: whether the noise variance is fitted, too.
      at_start: whether there is a fit to the initial design, too, before round 1; without a design there is nothing to fit to.
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
        return self.algorithm.learn(self._fitting(arena, fits=False), state, observation)  # an initial design

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

    def reading(self, arena: Arena) -> Arena:
        return self.algorithm.reading(self._fitting(arena, fits=False))

    def belief(self, state: S) -> object:
        return self.algorithm.belief(state)

    def _held(self, state: S) -> Any:
        """Return the posterior of the fitted model that the state holds."""
        belief = self.algorithm.belief(state)
        return belief.belief if isinstance(belief, LatePosterior) else belief

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
        """Return the arena in which the model fits its hyper-parameters, or takes in data from which it will."""
        surrogate = arena.surrogate
        model = surrogate.arrivals if isinstance(surrogate, DelayedSurrogate) else surrogate
        if not isinstance(model, RangedSurrogate | BoxSurrogate):
            raise InvalidArgument("surrogate: Refitted fits the length-scale of a model of jaxbandit.ranged, or of a box; make it by that")
        if model.noise_differs:
            raise InvalidArgument("surrogate.noise_variance: Refitted fits one number for each output, got a table over the points")
        if isinstance(model, BoxSurrogate) and not all(isinstance(form, Pool) for form in model.forms):
            words = f"whose features were made of one kernel; build the model without {setting('form', 'features')}, which is exact"
            raise InvalidArgument(f"surrogate: Refitted fits kernels anew, and this model is one {words}")
        how = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in ("algorithm", "at_start")}
        refitted: AbstractSurrogate
        if isinstance(model, RangedSurrogate):
            refitted = RefittedSurrogate(ranged=replace(model, forms=model.forms_in_force), fits=fits, **how)
        else:
            refitted = RefittedBox(box=model.separate(), fits=fits, **how)
        return replace(arena, surrogate=replace(surrogate, arrivals=refitted) if isinstance(surrogate, DelayedSurrogate) else refitted)
