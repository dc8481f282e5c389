"""The wrapper that does not know the kernel: hyper-parameters are fitted again and again while the algorithm plays."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Self

import jax

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, S, Seen, Shown, Traits, Wrapper
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import MOST_ROUNDS, between, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.types import Array, Key, Scalar
from jaxbandit.delays import Delay
from jaxbandit.feedback import DelayedSurrogate, Policy, Wait
from jaxbandit.feedback.policies import LatePosterior
from jaxbandit.surrogates import AbstractSurrogate, Prior, RangedSurrogate, RefittedPosterior, RefittedSurrogate


@pytree
class Refitted(Wrapper[S]):
    """Run ``algorithm`` on a model whose length-scale, variance and noise variance are fitted to the data by maximum posterior.

    It takes a model of :func:`jaxbandit.ranged`; the fit stays within its range, and has one length-scale for each axis where the model
    has. Outputs that share kernel and noise variance share a fit, unless the model is ``separate()``. The confidence bounds of the papers
    hold for a kernel that is known: with a fitted one nothing is promised, and data that an algorithm has chosen can mislead the fit for
    good (Berkenkamp, Schoellig and Krause 2019, *No-regret Bayesian optimization with unknown hyperparameters*).

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
      prior: prior of the hyper-parameters; by default the length-scale's median is some four times the diagonal of the domain, and those
        of the variances are in units of the model's own variance.
      span: largest factor by which variance and noise variance may differ from the model's own.
      points: most distinct points that a fit looks at, those visited most; its cost grows with their third power.
      steps: most steps of each of a fit's two searches, one from the last fit and one from short length-scales and little noise.
      fit_noise: whether the noise variance is fitted, too.
      at_start: whether there is a fit to the initial design, too, before round 1; without a design there is nothing to fit to.
    """

    name: ClassVar[str] = "refitted"
    title: ClassVar[str] = "maximum-posterior refits"
    paper: ClassVar[str] = (
        "Hvarfner, Hellsten, Nardi (2024), *Vanilla Bayesian optimization performs great in high dimensions*, sec. 5 (the prior)"
    )
    algorithm: Algorithm[S]
    prior: Prior = Prior()
    span: Annotated[Scalar, between(1, float("inf"), open_high=True)] = 30.0
    every: Annotated[int, whole(1, MOST_ROUNDS)] | None = static(default=None)
    first: Annotated[int, whole(1, MOST_ROUNDS)] = static(default=8)
    points: Annotated[int, whole(1, 10_000)] = static(default=64)
    steps: Annotated[int, whole(1, 10_000)] = static(default=12)
    fit_noise: bool = static(default=True)
    at_start: bool = static(default=False)

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(self.algorithm.traits, feedback=Wait())

    def init(self, arena: Arena) -> S:
        """Return the state before the first observation.

        Raises:
          InvalidArgument: when the algorithm learns by a posterior of its own making, which cannot be fitted anew.
        """
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
                f"feedback: Refitted plays with Wait() under delay, got {type(policy).__name__}, whose belief of points without a value is"
                " made of updates under one kernel and cannot be fitted anew"
            )
        return super().with_delays(delay, policy)

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the letters of the wrapped algorithm."""
        fits = {"refitted": True, "every": self.every, "first": self.first, "prior": type(self.prior).__name__}
        return fits | self.algorithm.symbols_in_force(horizon)

    def _fitting(self, arena: Arena, *, fits: bool = True) -> Arena:
        """Return the arena in which the model fits its hyper-parameters, or takes in data from which it will.

        Raises:
          InvalidArgument: when the model is not one of :func:`jaxbandit.ranged`, or its noise variance differs between points.
        """
        surrogate = arena.surrogate
        model = surrogate.arrivals if isinstance(surrogate, DelayedSurrogate) else surrogate
        if not isinstance(model, RangedSurrogate):
            raise InvalidArgument("surrogate: Refitted fits the length-scale of a model of jaxbandit.ranged; make it by that")
        if model.noise_differs:
            raise InvalidArgument("surrogate.noise_variance: Refitted fits one number for each output, got a table over the points")
        refitted: AbstractSurrogate = RefittedSurrogate(
            ranged=model if model.is_factorised else model.factorised(),
            prior=self.prior,
            span=self.span,
            every=self.every,
            first=self.first,
            points=self.points,
            steps=self.steps,
            fit_noise=self.fit_noise,
            fits=fits,
        )
        return replace(arena, surrogate=replace(surrogate, arrivals=refitted) if isinstance(surrogate, DelayedSurrogate) else refitted)
