"""Claims of papers beside runs: exponents, information gain and confidence bands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, checked
from jaxbandit.core.fields import of_class, whole
from jaxbandit.core.keys import Stream, stream_key, trial_key, typed
from jaxbandit.core.status import healthy
from jaxbandit.core.text import aligned, html_table
from jaxbandit.delays import NoDelay
from jaxbandit.domains import Box
from jaxbandit.gradients.replay import replay
from jaxbandit.host.figures import Drawing, figure_of
from jaxbandit.numerics.intervals import half_width
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.summary import MEASURED
from jaxbandit.results.trajectory import Trajectory
from jaxbandit.surrogates import Surrogate, arithmetic

__all__ = ["Claim", "TheoryCheck", "check"]
__dir__ = __all__.copy


class Claim(NamedTuple):
    """Bound of a cumulative measure, up to a constant.

    Attributes:
      measure: name of the measure in :class:`~jaxbandit.metrics.Curves`.
      words: the bound.
      bound: its shape as a function of the rounds ``[T]`` and the information gain ``[T]``, the largest of the outputs.
      source: paper and theorem.
    """

    measure: str
    words: str
    bound: Callable[[np.ndarray, np.ndarray], np.ndarray]
    source: str


def _both(words: str, bound: Callable[[np.ndarray, np.ndarray], np.ndarray], source: str, *measures: str) -> tuple[Claim, ...]:
    return tuple(Claim(measure, words, bound, source) for measure in measures)


_ROOT: tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = ("gamma_T sqrt(T)", lambda t, gain: gain * np.sqrt(t))
_EPOCHS: tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = ("gamma_T T^(3/4), epochs of sqrt(T)", lambda t, gain: gain * t**0.75)
#: Claims by the name of the algorithm.
CLAIMS = {
    "rpol": _both(*_ROOT, "Guo et al. (2022), Theorem 5", "regret", "hard_violation"),
    "cbo": _both(*_ROOT, "Zhou and Ji (2022), Theorem 1", "regret", "soft_violation"),
    "config": _both(*_ROOT, "Xu et al. (2023), Theorem 4.3", "positive_regret", "hard_violation"),
    "se2": (
        *_both(*_EPOCHS, "Shi and Eryilmaz (2022), Theorem 1", "regret"),
        Claim("soft_violation", "sqrt(T), epochs of sqrt(T)", lambda t, gain: np.sqrt(t), "Shi and Eryilmaz (2022), Theorem 1"),
    ),
    "se3": (
        *_both(*_EPOCHS, "Shi and Eryilmaz (2022), Theorem 2", "regret"),
        Claim("soft_violation", "T^(3/4), epochs of sqrt(T)", lambda t, gain: t**0.75, "Shi and Eryilmaz (2022), Theorem 2"),
    ),
    "bpe": (Claim("regret", "sqrt(gamma_T T)", lambda t, gain: np.sqrt(gain * t), "Vakili et al. (2023), Theorem 6.1"),),
    "unconstrained": _both(*_ROOT, "Chowdhury and Gopalan (2017), Theorem 3", "regret"),
}


@dataclasses.dataclass(frozen=True, repr=False)
class TheoryCheck:
    """Claims of a paper beside a run, shown as a table.

    Attributes:
      label: name of the algorithm.
      claims: claims of its paper, perhaps none.
      curves: cumulative measures ``[trials, T]`` by name.
      gain: information gain ``[trials, T, k]`` of the chosen points so far, for each output.
      held: whether the confidence bands held at the chosen point, ``[trials, T, k]``.
      informative: number ``[trials]`` of rounds whose point had ``sigma^2 >= lambda / (2 Q)`` for some output, with the noise variance
        ``lambda``, or ``None``.
      batch: ``Q`` of that lemma, at most ``8 Q gamma_T`` rounds (Takeno and Iwazaki 2026), or ``None``.
    """

    label: str
    claims: tuple[Claim, ...]
    curves: dict[str, np.ndarray]
    gain: np.ndarray
    held: np.ndarray
    informative: np.ndarray | None = None
    batch: int | None = None

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: quantity, claim, what the run shows, and source."""
        rows, rounds = [], np.arange(1, self.gain.shape[1] + 1)
        for claim in self.claims:
            bound = _slopes(claim.bound(rounds, self.gain.max(axis=2)))
            title = f"exponent of {claim.measure.replace('_', ' ')}"
            rows.append((title, f"{bound.mean():.2f}: {claim.words}", _with_interval(_slopes(self.curves[claim.measure])), claim.source))
        names = ["reward", *(f"constraint {j}" for j in range(1, self.gain.shape[2]))]
        for j, name in enumerate(names):
            rows.append((f"information gain, {name}", "", _with_interval(self.gain[:, -1, j]), ""))
            rows.append((f"rounds in which the band holds, {name}", "", _with_interval(self.held[:, :, j].mean(axis=1)), ""))
        if self.informative is not None and self.batch is not None:
            most = 8 * self.batch * self.gain[:, -1].sum(axis=1).mean()
            rows.append(("informative rounds", f"at most {most:.0f}", _with_interval(self.informative), "Takeno and Iwazaki (2026), lemma"))
        return rows

    def __repr__(self) -> str:
        return f"{self.label}\n" + aligned([("", "claimed", "seen", "source"), *self.rows])

    def _repr_html_(self) -> str:
        return html_table(("", "claimed", "seen", "source"), self.rows, caption=self.label)

    def plot(self) -> Drawing:
        """Draw every claimed measure beside the shape of its bound.

        Raises:
          InvalidArgument: if no paper claims anything of the algorithm.
        """
        if not self.claims:
            raise InvalidArgument(f"plot: there is no claim for {self.label!r}; known are {', '.join(CLAIMS)}")
        rounds = np.arange(1, self.gain.shape[1] + 1)
        figure, axes = figure_of(1, len(self.claims), title=f"{self.label}: claimed and seen")
        for axis, claim in zip(axes[0], self.claims, strict=True):
            seen, bound = self.curves[claim.measure].mean(axis=0), claim.bound(rounds, self.gain.max(axis=2)).mean(axis=0)
            axis.loglog(rounds, np.where(seen > 0, seen, np.nan), label="seen, mean of trials")
            axis.loglog(rounds, bound * max(seen[-1], 0) / bound[-1], "--", label=f"shape of {claim.words}")
            axis.set(xlabel="rounds", ylabel=f"cumulative {claim.measure.replace('_', ' ')}")
            axis.legend(fontsize="small")
        return figure


def _slopes(curves: np.ndarray) -> np.ndarray:
    """Return least-squares exponents of curves ``[trials, T]``, 0 unless positive."""
    rounds = np.arange(1, curves.shape[1] + 1)
    # Exponents are fitted from this share of the horizon on, because bounds are about many rounds.
    late = rounds >= max(2, 0.2 * len(rounds))
    x = np.log(rounds[late])
    positive = np.all(curves[:, late] > 0, axis=1, keepdims=True)
    y = np.log(np.where(positive, curves[:, late], 1.0))
    slopes: np.ndarray = (y - y.mean(axis=1, keepdims=True)) @ (x - x.mean()) / np.sum(np.square(x - x.mean()))
    return slopes


def _with_interval(values: np.ndarray) -> str:
    """Return the mean over trials with its 95% confidence half-width."""
    return f"{np.mean(values):.3g} +- {half_width(np.asarray(values, np.float64)):.2g}"


@checked
def check(
    run: Annotated[Trajectory, of_class(Trajectory)], model: Surrogate, *, batch: Annotated[int, whole(1)] | None = None
) -> TheoryCheck:
    """Compare the claims of an algorithm's paper with a run.

    Exponents of regret and violation are fitted to the last four fifths of the rounds, trial by trial. The claimed exponent is that of the
    bound's shape with the information gain of the run itself. The model is conditioned on the run's values again, which gives the gain of
    the chosen points and the share of rounds in which the confidence bands held at them, with the widths that the algorithm recorded.

    Args:
      run: trials of :func:`jaxbandit.simulate` without delay, with all arrays recorded.
      model: the model of the run.
      batch: ``Q`` of the lemma on batches: count the rounds whose point was informative, ``sigma^2 >= lambda / (2 Q)``.

    Raises:
      InvalidArgument: on a sweep, a single trial, a run with late feedback or fitted models, or one that does not know its problem.
    """
    made = run.made
    if made is None:
        raise InvalidArgument("run: it does not know its problem; give the value of simulate itself, not a copy")
    if np.ndim(run.status) != 1 or run.values is None or run.widths is None:
        raise InvalidArgument("run: must have trials [N] with values and widths of all rounds, not one trial, a sweep or indices alone")
    if not isinstance(made.delay, NoDelay) or made.learner[0].traits.refits or made.learner[0].traits.decoupled:
        raise InvalidArgument(
            "run: must have feedback at once and a model that stays; late values, fits and single outputs are not replayed"
        )
    on_box = isinstance(model.domain, Box)
    chosen, first = (run.points, run.initial_points) if on_box else (run.indices, run.initial_indices)
    ok = healthy(np.asarray(run.status))
    with arithmetic([model.precision]):
        keys = jax.vmap(lambda number: stream_key(trial_key(typed(made.key), number), Stream.PROBLEM))(np.asarray(made.trials))
        before = [run.initial_values, first, chosen, run.values]
        sds, means, noise, truth = jax.jit(jax.vmap(_replayed, in_axes=(None, None, 0, 0, 0, 0, 0)))(model, made.problem, keys, *before)
    sds, means, noise, truth = (np.asarray(array, np.float64)[ok] for array in (sds, means, noise, truth))
    gain = np.cumsum(0.5 * np.log1p(np.square(sds) / noise), axis=1)
    held = np.abs(truth - means) <= np.asarray(run.widths, np.float64)[ok] * sds + 1e-6 * np.abs(truth)
    measured = run.to_xarray()
    curves = {name: np.asarray(measured[name].values[0], np.float64)[ok] for name in MEASURED}
    informative = None if batch is None else np.sum(np.any(np.square(sds) >= noise / (2 * batch), axis=2), axis=1)
    return TheoryCheck(made.label, CLAIMS.get(made.label, ()), curves, gain, held, informative, batch)


def _replayed(
    model: Surrogate, problem: AbstractProblem, key: Array, before: Array, first: Array, chosen: Array, values: Array
) -> tuple[Array, Array, Array, Array]:
    """Return deviations, means, noise variances and truth ``[T, k]`` of a trial."""
    instance, count = problem.sample(key), len(before)
    beliefs = replay(model, jnp.concatenate([first, chosen]), jnp.concatenate([before, values]))
    if isinstance(model.domain, Box):
        truth, indices = instance.means_of(chosen), jnp.zeros((len(chosen),), jnp.int32)
    else:
        truth, indices = jnp.asarray(instance.means)[:, chosen], chosen
    noise = jnp.stack([jnp.broadcast_to(model.noise_at(group, indices), indices.shape) for group in model.groups], axis=1)
    return beliefs.sd[count:], beliefs.mean[count:], noise, truth.T
