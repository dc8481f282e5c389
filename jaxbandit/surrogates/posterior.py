"""Gaussian-process posteriors of ``1 + m`` outputs on a finite domain."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks, fields
from jaxbandit.core.blocks import by_platform, one_program
from jaxbandit.core.declare import Array, Key, OnDomain, Table, check_fields, checked
from jaxbandit.core.fields import AtLeast, Described, choice, of_class, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.text import fields_in_brief, html_fields
from jaxbandit.domains import Box, Contextual, Domain
from jaxbandit.domains.finite import in_words
from jaxbandit.kernels import Kernel, PosteriorMean
from jaxbandit.kernels.base import all_parts
from jaxbandit.surrogates.features import Form
from jaxbandit.surrogates.groups import Grouped, of
from jaxbandit.surrogates.precision import Need, in_step, least_variances, needed, require

__all__ = ["AbstractSurrogate", "Belief", "Posterior", "Prediction", "Step", "Surrogate"]

B = TypeVar("B", bound="Belief")
# A posterior is a pytree that only its surrogate looks into.
AnyPosterior: TypeAlias = Any
# Methods take the number of a point, or one for each output; values; and whether outputs were observed.
OutputPoints: TypeAlias = Annotated[jax.Array, fields.index, fields.per_output]  # [] or [k]
OutputValues: TypeAlias = Annotated[jax.Array, fields.finite_numbers, fields.each_output]  # [k]
Present: TypeAlias = Annotated[jax.Array, fields.booleans, fields.each_output]  # [k]
# These are the factors, and the weights [r] of each output's mean less the prior mean.
Arrived: TypeAlias = tuple[tuple[Any, ...], tuple[jax.Array, ...]]
# This is the number of an output, of a group of outputs, or of rounds.
WholeNumber: TypeAlias = Annotated[int, whole(0)]


@pytree
class Posterior(Described):
    """Posterior of ``k`` outputs in ``G`` groups that share a factor each.

    Attributes:
      factors: state of the form of each group; on a box one state for all groups whose forms are alike.
      shift: ``[k, M]`` mean less the prior mean. The sum of both would carry the rounding of the prior mean.
      variance: ``[G, M]`` posterior variance.
      gain: ``[G]`` realised information gain, ``1/2 sum log(1 + sigma^2 / lam)``.
      rounds: int32 rounds since the prior, the same in all trials; ``None`` if the variance is never refreshed.
      weights: ``[k, r]`` weights of ``shift`` in the form's basis; ``None`` if no method reads the posterior off the domain.
    """

    described: ClassVar[str] = "a posterior of this surrogate, such as surrogate.init()"
    factors: tuple[Any, ...]
    shift: Array  # [k, M]
    variance: Array  # [G, M]
    gain: Array  # [G]
    rounds: Array | None = None  # []
    weights: Array | None = None  # [k, r]


@pytree
class Step:
    """Effect of one observation on a group of outputs.

    The mean moves by ``column``, and its weights by ``weights``, times ``(y - mean) / s`` with ``s = lam + column[index]``. The column is
    the covariance of every point with the observed point before the observation, and the precision is ``1 / s``.
    """

    weights: Array  # [r]
    column: Array  # [M]
    precision: Array  # []


def deviation(variance: Array) -> Array:
    """Return the root of a variance, 0 with derivative 0 if negative."""
    # Rounding can make the variance negative among dense data; NaN stays NaN.
    positive = ~(variance <= 0)
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)


def _column_by_sum(table: Array, index: Array) -> Array:
    return jnp.sum(jnp.where(jnp.arange(table.shape[1], dtype=index.dtype) == index, table, 0), axis=1)


# Return ``table[:, index] [k]`` of a table ``[k, M]``. On TPUs it is a masked sum, because a gather would lay the ``k`` rows out as lanes.
column_of = by_platform(lambda table, index: table[:, index], tpu=_column_by_sum)


@pytree
class Prediction(Described):
    """Mean and deviation of every output at every point, and information gain."""

    described: ClassVar[str] = "what a model predicts, surrogate.belief(posterior)"
    mean: Array  # [k, M]
    sd: Array  # [k, M]
    gain: Array  # [k]
    # A policy that censors late values sums the deviations at the points chosen lately.
    recent: Array | None = None  # [k]


@pytree
class Belief(Prediction, OnDomain):
    """Prediction with the posterior that it comes from.

    It has the same methods for values at once and late values, fitted models and models of boxes.

    Attributes:
      model: the Gaussian-process model of the posterior, with fitted hyper-parameters if there are any.
      posterior: the posterior of ``model``.
      points: ``[n, d]`` points of the unit cube of a box that the belief is about, instead of the points of the posterior.
    """

    model: Surrogate
    posterior: Posterior
    points: Array | None = None

    @property
    def domain(self) -> Domain:
        """The domain of the model."""
        return self.model.domain

    @property
    def outputs(self) -> int:
        """Number of modelled functions."""
        return self.model.outputs

    @property
    def box(self) -> Any:
        """The model, if it is the model of a box."""
        if not isinstance(self.model.domain, Box):
            raise checks.InvalidArgument("belief: is about the points of a finite domain alone; a box has beliefs at any of its points")
        return self.model

    @property
    def pool(self) -> Array:
        """Points ``[M, d]`` of a box's posterior, in the unit cube."""
        return self.box.pool(self.posterior)

    def here(self, table: Array, axis: int = -1) -> Array:
        """Return a table ``[..., M]`` of the domain at the belief's points."""
        return table

    def numbers(self, points: Array) -> Array:
        """Return the numbers in the domain of the belief's ``points [n]``."""
        return points

    @property
    def noise(self) -> Array:
        """Noise variance of the reward, ``[]``, or by point ``[M]``."""
        return jnp.asarray(self.model.noise_variance)[self.model.groups[0]]

    @property
    def prediction(self) -> Prediction:
        """The numbers alone."""
        return Prediction(mean=self.mean, sd=self.sd, gain=self.gain, recent=self.recent)

    @property
    def arrived(self) -> Prediction:
        """Prediction from arrived values alone, with the gain of all chosen points."""
        return self.prediction

    def extended(self, kind: type[B], **more: Any) -> B:
        """Return the belief as a belief of a subclass, with ``more`` fields."""
        return kind(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Belief)} | more)

    def at(self, points: Array) -> Self:
        """Return the belief about ``points [n, d]`` of a box's unit cube."""
        there = self.box.predict_at(self.posterior, points)
        return replace(self, mean=there.mean, sd=there.sd, points=points)

    @checked
    def draw(self, key: Key, scale: Annotated[jax.Array, fields.nonnegative_numbers, fields.each_output]) -> Array:
        """Sample ``[k, M]`` jointly at all points from ``GP(mean, scale^2 covariance)``.

        Outputs are independent; ``scale`` is ``[k]``. On a box a key samples the same functions at any points.

        Raises:
          InvalidArgument: when the form of the posterior has no joint draws (``rows``).
        """
        if self.points is not None:
            return self.box.draw_at(self.posterior, key, scale, self.points)
        keys, factors = jax.random.split(key, self.outputs), self.posterior.factors
        drawn = self.model.grouped.each_output(lambda form, state, own: form.draw(state, own), factors, keys)
        return self.mean + jnp.asarray(scale)[:, None] * drawn

    @checked
    def covariance(self, output: WholeNumber, indices: Annotated[jax.Array, fields.index, fields.vector("one number per point")]) -> Array:
        """Return an output's covariance ``[n, M]`` of ``indices [n]`` with every point."""
        checks.integer("output", output, least=0, most=self.outputs - 1)
        form, state = self.model.grouped.of_group(self.posterior.factors, self.model.groups[output])
        return form.covariance(state, jnp.asarray(indices))


@pytree
class ContextBelief(Belief):
    """Belief about the actions of one context, ``A`` points instead of ``M``."""

    whole: Belief
    context: Array  # [] int32

    @classmethod
    def of(cls, whole: Belief, context: Array) -> ContextBelief:
        """Return the part of a belief at the actions of ``context []``."""
        return whole.extended(cls, **_part(whole, cast(Contextual, whole.domain), context), whole=whole, context=context)

    @property
    def domain(self) -> Contextual:
        return cast(Contextual, self.model.domain)

    def here(self, table: Array, axis: int = -1) -> Array:
        return self.domain.at(self.context, table, axis)

    def numbers(self, points: Array) -> Array:
        return self.domain.numbers(self.context, points)

    @property
    def noise(self) -> Array:
        noise = self.whole.noise
        return self.here(noise) if jnp.ndim(noise) else noise

    @property
    def arrived(self) -> Prediction:
        arrived = self.whole.arrived
        return replace(arrived, **_part(arrived, self.domain, self.context))

    def draw(self, key: Key, scale: Array) -> Array:
        return self.here(self.whole.draw(key, scale))

    def covariance(self, output: int, indices: Array) -> Array:
        return self.here(self.whole.covariance(output, self.numbers(indices)))


def _part(prediction: Prediction, domain: Contextual, context: Array) -> dict[str, Array]:
    return {"mean": domain.at(context, prediction.mean), "sd": domain.at(context, prediction.sd)}


class AbstractSurrogate(OnDomain, abc.ABC):
    """Abstract model of the reward and the constraints.

    It models ``k = 1 + m`` outputs on ``M`` points. A :class:`~jaxbandit.Surrogate` conditions on every observation in its own round. A
    :class:`~jaxbandit.feedback.DelayedSurrogate` conditions on values that arrive late, as its feedback policy decides. Posteriors are
    pytrees that only the surrogate looks into.

    Attributes:
      domain: the ``M`` points.
    """

    described: ClassVar[str] = "a surrogate, jaxbandit.surrogate(...)"

    @property
    @abc.abstractmethod
    def model(self) -> Surrogate:
        """The Gaussian-process model: domain, factorised kernels, noise variances and prior means."""

    @property
    def outputs(self) -> int:
        """Number of modelled functions, ``k = 1 + m``."""
        return len(self.model.groups)

    @property
    def constraints(self) -> int:
        """Number of constraints ``m``."""
        return len(self.model.groups) - 1

    @property
    def dtype(self) -> np.dtype:
        """Floating type of beliefs."""
        return np.dtype(jnp.result_type(self.model.noise_variance))

    @property
    def size(self) -> int:
        """Number of points ``M`` of a prediction."""
        return int(self.domain.size)

    @abc.abstractmethod
    def init(self) -> AnyPosterior:
        """Return the prior, the posterior before any observation."""

    @abc.abstractmethod
    def condition(self, posterior: AnyPosterior, index: Array, values: Array) -> AnyPosterior:
        """Return the posterior given ``values [k]`` observed at grid ``index []``."""

    @abc.abstractmethod
    def belief(self, posterior: AnyPosterior) -> Belief:
        """Return the belief of a posterior, with mean and deviation ``[k, M]``."""


def _name_of(output: int) -> str:
    """Return the name of an output."""
    return f"constraint {output}" if output else "reward"


@pytree
class Surrogate(AbstractSurrogate):
    """Gaussian-process model of reward and constraints on a grid.

    :func:`jaxbandit.surrogate` makes this model. All trials share its domain, factorised kernels, noise variances and prior means.
    Hyper-parameters are leaves, so a :func:`~jaxbandit.sweep` over ``noise_variance`` or ``prior_mean`` is one compiled run.

    Attributes:
      domain: the ``M`` points.
      forms: one factorisation per group of outputs.
      noise_variance: ``[G]`` regulariser ``lambda`` in ``(K + lambda I)``, a variance, per group; ``[G, M]`` if it differs between points.
      prior_mean: ``[k]`` constant prior mean per output.
      kernels: the user's kernel of each output, for records; the forms result from it. Programs run without kernels, ``()``.
      groups: for each output the number of its group.
      precision: floating type of beliefs, ``"float32"`` or ``"float64"``, see ``jaxbandit.surrogates.precision``.
      refresh: number of rounds after which the variance is computed anew from the factors, 0 for never.
    """

    # Tables by group have at least this number of axes.
    by_group: ClassVar[Mapping[str, int]] = {"noise_variance": 1}
    domain: Domain
    forms: Annotated[tuple[Annotated[Any, of_class(Form)], ...], AtLeast(1)]
    noise_variance: Table
    prior_mean: Table
    kernels: tuple[Kernel, ...] = dataclasses.field(
        default=(),
        metadata={
            "fixed": "the features were made from it; build a surrogate for each kernel, sweep a study's model, or give the model a"
            " length_scale by jaxbandit.ranged"
        },
    )
    groups: tuple[WholeNumber, ...] = static(repr=False)
    precision: Annotated[str, choice("float32", "float64")] = static(default="float32")
    refresh: WholeNumber = static(default=0, repr=False)

    @property
    def model(self) -> Surrogate:
        return self

    @property
    def grouped(self) -> Grouped:
        """Groups of outputs, with forms that have the hyper-parameters of the model."""
        return Grouped.of(self.forms, self.groups)

    @one_program
    def init(self) -> Posterior:
        require(self.precision)
        dtype, batches = self.dtype, self.grouped.batched()
        return Posterior(
            factors=tuple(batch.init() for batch in batches),
            shift=jnp.zeros((self.outputs, self.domain.size), dtype),
            variance=jnp.stack([jnp.asarray(batch.form.prior_variance, dtype) for batch in batches]),
            gain=jnp.zeros((len(batches),), dtype),
            rounds=jnp.int32(0) if self.refresh else None,
        )

    @checked
    @one_program
    def condition(self, posterior: Posterior, index: OutputPoints, values: OutputValues, present: Present | None = None) -> Posterior:
        """Return the posterior given ``values [k]`` observed at grid ``index``.

        The index is ``[]``, one point for all outputs, or ``[k]``, a point for each output. With ``c`` the posterior covariance of every
        point with the observed point and ``s = lam + c[index]``: ``mean += c (y - mean[index]) / s`` and ``variance -= c^2 / s``. One
        ``c`` serves every output of a group.

        Booleans ``present [k]`` mark the outputs that were observed, all by default; the values of the other outputs are ignored. Outputs
        of a group are observed together, as the first output of the group is, see :meth:`separate`.
        """
        return self.refreshed(self.observe(posterior, index, values, present))

    @checked
    def observe(self, posterior: Posterior, index: OutputPoints, values: OutputValues, present: Present | None = None) -> Posterior:
        """Condition without :meth:`refreshed`, to be called after the round's last value."""
        posterior, steps = self.absorb(posterior, index, present)
        if present is not None:
            values = jnp.where(jnp.asarray(present), jnp.asarray(values), 0)
        return self.moved(posterior, steps, index, values)

    @checked
    def refreshed(self, posterior: Posterior) -> Posterior:
        """Return the posterior at the end of a round.

        After every ``refresh`` rounds this computes the variance anew from the factors. A variance from which every round subtracts a
        step carries the rounding of the prior variance; factors do not.
        """
        if not self.refresh or posterior.rounds is None:
            return posterior
        rounds = posterior.rounds + 1
        variance = jax.lax.cond(
            in_step(rounds) % self.refresh == 0, lambda: self.grouped.spread(posterior.factors), lambda: posterior.variance
        )
        return replace(posterior, variance=variance, rounds=rounds)

    def moved(self, posterior: Posterior, steps: list[Step], index: Array, values: Array) -> Posterior:
        """Update the mean by ``values [k]`` and the steps of :meth:`absorb`."""
        values = jnp.asarray(values)
        seen = column_of(posterior.shift, jnp.asarray(index)) if jnp.ndim(index) == 0 else posterior.shift[jnp.arange(self.outputs), index]
        by_output = self.grouped.by_output
        innovation = (values - jnp.asarray(self.prior_mean, values.dtype) - seen) * by_output([step.precision for step in steps])
        columns = by_output([step.column for step in steps])
        weights = posterior.weights
        if weights is not None:
            weights = weights + by_output([step.weights for step in steps]) * innovation[:, None]
        return replace(posterior, shift=posterior.shift + columns * innovation[:, None], weights=weights)

    @checked
    def absorb(self, posterior: Posterior, index: OutputPoints, present: Present | None = None) -> tuple[Posterior, list[Step]]:
        """Update all but the mean, and return the steps for :meth:`moved`."""
        index, present = jnp.asarray(index), None if present is None else jnp.asarray(present)
        factors, variances, gains, steps, grouped = [], [], [], [], self.grouped
        for batch, factor in grouped.pairs(posterior.factors):
            own = index if jnp.ndim(index) == 0 else index[batch.first]
            noise = batch.noises(self.noise_variance, own)
            seen = None if present is None else present[batch.first]
            factor, weights, column, s = batch.observe(factor, own, noise, seen)
            # The precision is multiplied in, so that no division runs over the grid.
            step = Step(weights=weights, column=column, precision=1 / s)
            more = 0.5 * jnp.log(s * (1 / noise))
            factors.append(factor)
            steps.append(step)
            variances.append(of(posterior.variance, batch.groups) - column * column * step.precision[:, None])
            gains.append(of(posterior.gain, batch.groups) + (more if seen is None else jnp.where(seen, more, 0)))
        variance, gain = grouped.joined(variances), grouped.joined(gains)
        return replace(posterior, factors=tuple(factors), variance=variance, gain=gain), steps

    def arrive(self, before: Arrived, points: Array, values: Array, present: Array) -> Arrived:
        """Update factors and weights alone by the outputs' values that arrived.

        The update is ``weights += u (y - mean - phi.weights) / s`` for the values ``y`` in ``values [k]`` at ``points [k]``. Outputs with
        false ``present [k]`` have no value.
        """
        factors, weights = [], list(before[1])
        target = jnp.where(present, values - jnp.asarray(self.prior_mean, values.dtype), 0)
        for batch, factor in self.grouped.pairs(before[0]):
            noise = batch.noises(self.noise_variance, points[batch.first])
            factor, phi, u, s = batch.absorb(factor, points[batch.first], noise, present[batch.first])
            factors.append(factor)
            own = jnp.stack([weights[j] for j in np.ravel(batch.outputs)]).reshape(*np.shape(batch.outputs), -1)
            away = of(target, batch.outputs) - jnp.sum(phi[:, None] * own, axis=2)
            own += u[:, None] * (away * (1 / s)[:, None])[:, :, None]
            for b, outputs in enumerate(batch.outputs):
                for c, j in enumerate(outputs):
                    weights[j] = own[b, c]
        return tuple(factors), tuple(weights)

    @checked
    def noise_at(self, group: WholeNumber, points: Annotated[Array, fields.index]) -> Array:
        """Return a group's noise variance at ``points``, ``[]`` if they share it."""
        checks.integer("group", group, least=0, most=len(self.forms) - 1)
        noise = self.noise_variance[group]
        return noise[points] if jnp.ndim(noise) else noise

    def separate(self) -> Self:
        """Return the model with a factor per output, for outputs observed apart."""
        return self.regrouped(self.groups, range(self.outputs))

    def regrouped(self, numbers: Sequence[int], groups: Sequence[int], **fields: Any) -> Self:
        """Return the model with new ``groups [k]``, and with other ``fields``.

        The new groups are the present groups of these ``numbers [G]``.
        """
        tables = {name: value for name, axes in self.by_group.items() if jnp.ndim(value := getattr(self, name)) >= axes}
        own = {name: (value if checks.is_traced(value) else np.asarray(value))[np.asarray(numbers)] for name, value in tables.items()}
        return replace(self, forms=tuple(self.forms[g] for g in numbers), groups=tuple(groups), **own, **fields)

    @checked
    def needs(self, horizon: Annotated[int, whole(1)]) -> Need:
        """Return the arithmetic that ``horizon`` rounds need."""
        refreshable = all(form.refreshable for form in self.forms)
        return needed(self.largest_variances(), least_variances(self.noise_variance), self.prior_mean, horizon, refreshable=refreshable)

    def largest_variances(self) -> list[float]:
        """Return the largest prior variance of each group."""
        return [float(np.max(np.asarray(form.prior_variance, np.float64))) for form in self.forms]

    def factorised(self) -> Surrogate:
        """Return the model with its features, by default the model itself."""
        return self

    @property
    def kernels_in_force(self) -> tuple[Kernel, ...]:
        """Kernel of each output with the model's hyper-parameters, for records."""
        return self.kernels

    @checked
    @one_program
    def belief(self, posterior: Posterior) -> Belief:
        mean = jnp.asarray(self.prior_mean, posterior.shift.dtype)[:, None] + posterior.shift
        sd = self.grouped.of_outputs(deviation(posterior.variance))
        return Belief(mean=mean, sd=sd, gain=posterior.gain[jnp.asarray(self.groups)], model=self, posterior=posterior)

    def describe(self) -> str:
        """Return each group's form, rank and residual, and the precision, in lines."""
        lines = []
        for g, form in enumerate(self.forms):
            names = ", ".join(_name_of(j) for j, group in enumerate(self.groups) if group == g)
            if form.name == "pool":
                said = "exact at every point of the box"
            elif form.name == "rows":
                said = f"room for {form.capacity} of {self.domain.size} points, exact at visited points"
            else:
                # A smaller share may be rounding of float64, which differs between processors.
                left, rounding = float(form.residual), 1e-13
                of = "candidates, residual there" if isinstance(self.domain, Box) else "points, residual"
                said = f"rank {form.rank} of {self.domain.size} {of} {left if left > rounding else 0:.1e}"
            kernels = [kernel for kernel, group in zip(self.kernels, self.groups, strict=False) if group == g]
            means = sum(isinstance(part, PosteriorMean) for kernel in kernels[:1] for part in (kernel, *all_parts(kernel)))
            said += f", prior mean a multiple of {means} known" if means else ""
            lines.append(f"{names}: form {form.name!r}, {said}")
        if jnp.ndim(self.noise_variance) == 2:
            lines.append(f"noise variance {np.min(self.noise_variance):.3g} to {np.max(self.noise_variance):.3g}, by point")
        exact = f", variance refreshed every {self.refresh} rounds" if self.refresh else ""
        return "\n".join([*lines, f"precision {self.precision}{exact}"])

    def _repr_html_(self) -> str:
        """Return an HTML table of the model and its :meth:`describe`."""
        if checks.is_traced(self):
            return html_fields(type(self).__name__, fields_in_brief(self))
        axes = f"{', '.join(self.domain.names)}: any point of the box" if isinstance(self.domain, Box) else in_words(self.domain)
        noise = [] if jnp.ndim(self.noise_variance) == 2 else [np.asarray(self.noise_variance)[group] for group in self.groups]
        facts = {"kernel": [repr(kernel) for kernel in self.kernels], "noise variance": [f"{variance:.4g}" for variance in noise]}
        facts |= {"prior mean": [f"{mean:.4g}" for mean in np.asarray(self.prior_mean)]}
        named = {name: [f"{_name_of(output)}: {text}" for output, text in enumerate(texts)] for name, texts in facts.items()}
        rows = [(name, texts[0] if len(set(texts)) == 1 else "\n".join(named[name])) for name, texts in facts.items() if texts]
        return html_fields(type(self).__name__, [("points", axes), *rows, ("computation", self.describe())])

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise ``InvalidArgument`` unless noise variances are > 0 and means finite."""
        check_fields(self, "surrogate")
        checks.positive("surrogate.noise_variance", self.noise_variance, remedy="lambda is a variance > 0")
        checks.finite("surrogate.prior_mean", self.prior_mean)
        checks.shape("surrogate.prior_mean", self.prior_mean, (self.outputs,))
        if checks.shape_of("surrogate.noise_variance", self.noise_variance) != (len(self.forms), self.domain.size):
            checks.shape("surrogate.noise_variance", self.noise_variance, (len(self.forms),))
