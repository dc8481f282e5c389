"""The wrapper that does not know the kernel: hyper-parameters are fitted again and again while the algorithm plays."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, Diagnostics, Observation, Wrapper
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import between, boolean, instance_of, optional, whole
from jaxbandit.core.pytree import param, pytree, replace, static
from jaxbandit.core.types import Array, Key, Scalar
from jaxbandit.delays import Delay
from jaxbandit.feedback import DelayedSurrogate, Feedback, Policy, Wait
from jaxbandit.feedback.wait import WaitPosterior
from jaxbandit.surrogates import AbstractSurrogate, Prior, RangedSurrogate, RefittedPosterior, RefittedSurrogate


@pytree
class Refitted(Wrapper):
    """Run ``algorithm`` on a model whose length-scale, variance and noise variance are fitted to the data by maximum posterior.

    It takes a model of :func:`jaxbandit.ranged`; the fit stays within its range, and has one length-scale for each axis where the model
    has. Outputs that share kernel and noise variance share a fit, unless the model is ``separate()``. The confidence bounds of the papers
    hold for a kernel that is known: with a fitted one nothing is promised, and data that an algorithm has chosen can mislead the fit for
    good (Berkenkamp, Schoellig and Krause 2019, *No-regret Bayesian optimization with unknown hyperparameters*).

    This is how a study fits hyper-parameters to its initial data: after a design of ``n`` points, ``first=n + 1`` fits to these and the
    values of round 1, and then at doubling times; ``every=n`` with ``first=n`` fits every so many rounds. Round 1 itself is chosen under
    the model's own hyper-parameters, and a kernel that :func:`jaxbandit.ranged` takes is the only kind that can be fitted.

    A fit costs some milliseconds of a trial, rounds between fits what they cost on a ranged model. Under delay it plays with the policy
    ``feedback.Wait()``.

    Attributes:
      algorithm: any algorithm that learns by the posterior it is given.
      every: rounds between fits; by default they follow rounds ``first``, ``2 first``, ``4 first``, ...
      first: rounds before the first fit. Points of the initial design count as rounds, but no fit follows one of them.
      prior: prior of the hyper-parameters; by default the length-scale's median is some four times the diagonal of the domain, and those
        of the variances are in units of the model's own variance.
      span: largest factor by which variance and noise variance may differ from the model's own.
      points: most distinct points that a fit looks at, those visited most; its cost grows with their third power.
      steps: most steps of a fit, which starts from the last one.
      fit_noise: whether the noise variance is fitted, too.
    """

    name: ClassVar[str] = "refitted"
    title: ClassVar[str] = "maximum-posterior refits"
    paper: ClassVar[str] = (
        "Hvarfner, Hellsten, Nardi (2024), *Vanilla Bayesian optimization performs great in high dimensions*, sec. 5 (the prior)"
    )
    algorithm: Algorithm = param(check=instance_of(Algorithm))
    prior: Prior = param(Prior(), check=instance_of(Prior))
    span: Scalar = param(30.0, check=between(1, float("inf"), open_high=True))
    every: int | None = static(default=None, check=optional(whole(1)))
    first: int = static(default=8, check=whole(1))
    points: int = static(default=64, check=whole(1))
    steps: int = static(default=10, check=whole(1))
    fit_noise: bool = static(default=True, check=boolean)

    @property
    def feedback(self) -> Policy:
        return Wait()

    def init(self, arena: Arena) -> Any:
        """Return the state before the first observation.

        Raises:
          InvalidArgument: when the algorithm learns by a posterior of its own making, which cannot be fitted anew.
        """
        state = self.algorithm.init(self._fitting(arena))
        belief = self.algorithm.belief(state)
        if not isinstance(belief.belief if isinstance(belief, WaitPosterior) else belief, RefittedPosterior):
            raise InvalidArgument(f"Refitted.algorithm: {type(self.algorithm).__name__} keeps beliefs of its own; they cannot be refitted")
        return state

    def select(self, arena: Arena, state: Any, t: Array, key: Key) -> tuple[Decision, Any]:
        return self.algorithm.select(self._fitting(arena), state, t, key)

    def update(self, arena: Arena, state: Any, observation: Observation | Feedback, t: Array) -> Any:
        return self.algorithm.update(self._fitting(arena), state, observation, t)

    def learn(self, arena: Arena, state: Any, observation: Observation | Feedback) -> Any:
        return self.algorithm.learn(self._fitting(arena, fits=False), state, observation)  # an initial design

    def reveal(self, arena: Arena, state: Any, sample: Array, t: Array) -> Any:
        return self.algorithm.reveal(self._fitting(arena), state, sample, t)

    def reset(self, arena: Arena, state: Any) -> Any:
        return self.algorithm.reset(self._fitting(arena), state)

    def belief(self, state: Any) -> Any:
        return self.algorithm.belief(state)

    def diagnose(self, state: Any) -> Diagnostics:
        belief = self.algorithm.belief(state)
        fitted: Any = belief.belief if isinstance(belief, WaitPosterior) else belief
        return replace(self.algorithm.diagnose(state), length_scales=fitted.hyper_parameters.length_scale)

    def with_delays(self, delay: Delay, policy: Policy) -> Refitted:
        if not isinstance(policy, Wait):
            raise InvalidArgument(f"feedback: Refitted plays with Wait() under delay, got {type(policy).__name__}")
        return super().with_delays(delay, policy)

    def symbols_in_force(self, horizon: int) -> dict[str, Any]:
        """Return the letters of the wrapped algorithm."""
        own = {"refitted": True, "every": self.every, "first": self.first, "prior": type(self.prior).__name__}
        return own | self.algorithm.symbols_in_force(horizon)

    def _fitting(self, arena: Arena, *, fits: bool = True) -> Arena:
        """Return the arena in which the model fits its hyper-parameters, or takes in data from which it will.

        Raises:
          InvalidArgument: when the model is not one of :func:`jaxbandit.ranged`, or its noise variance differs between points.
        """
        late = arena.surrogate
        if isinstance(late, DelayedSurrogate):
            return replace(arena, surrogate=replace(late, arrivals=self._refitting(late.arrivals, fits)))
        return replace(arena, surrogate=self._refitting(late, fits))

    def _refitting(self, model: AbstractSurrogate, fits: bool) -> RefittedSurrogate:
        if not isinstance(model, RangedSurrogate):
            raise InvalidArgument("surrogate: Refitted fits the length-scale of a model of jaxbandit.ranged; make it by that")
        if model.noise_differs:
            raise InvalidArgument("surrogate.noise_variance: Refitted fits one number for each output, got a table over the points")
        return RefittedSurrogate(
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
