"""Record of the trials of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Array, KeyOrSeed, checked
from jaxbandit.core.fields import Described, Trials, Words, whole
from jaxbandit.core.pytree import pytree, remember, static
from jaxbandit.delays import Delay
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.dataset import to_dataframe
from jaxbandit.results.summary import Made, RunArrays, RunSummary, results_of, summary_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@pytree
class Trajectory(Described):
    """Record of one trial, or of ``[trials]`` or ``[variants, trials]``.

    :meth:`summary` reports how a run went, :meth:`to_xarray` and :meth:`to_dataframe` label it as the results of a study are labelled, and
    :mod:`jaxbandit.report.plots` draws it. Rounds are counted from 1, and arrays store round ``t`` at ``t - 1``.

    Of the arrays of every round ``record="indices"`` stores ``indices`` and ``points`` only. Fields are ``None`` where they do not apply:
    points on a grid, ``arrivals`` (see ``delays.NEVER``) and ``lost`` without delays, candidates unless the algorithm eliminates points,
    ``evaluations`` unless it can stop by itself, length-scales unless models are fitted. ``draws`` need ``record="audit"``; ``candidates``
    and ``shown``, further arrays of the algorithm, need ``"all"`` or ``"audit"``. On a box ``indices`` number its candidates first and then
    the trial's own points.
    """

    described: ClassVar[str] = "what simulate returns, a Trajectory"
    indices: Array  # [T] int32, chosen points
    status: Array  # [] int32, bits of Status
    failed_round: Array  # [] int32, first failure or 0
    declared_round: Array  # [] int32, first declared infeasibility or 0
    information_gain: Array  # [G] realised, per group
    initial_indices: Array  # [n] int32
    initial_values: Array  # [n, 1 + m]
    initial_points: Array | None = None  # [n, d] units of the axes
    points: Array | None = None  # [T, d] units of the axes
    values: Array | None = None  # [T, 1 + m] rewards and costs, NaN if not evaluated
    multipliers: Array | None = None  # [T + 1, m] at rounds 1..T+1, or 0
    widths: Array | None = None  # [T, 1 + m] beta_t
    draws: Array | None = None  # [T, 1 + m] or [T, 1 + m, M]
    arrivals: Array | None = None  # [T, 1 + m] int32, rounds
    lost: Array | None = None  # [1 + m] int32, lost values
    candidates: Array | None = None  # [M] bool, left at the end
    candidate_count: Array | None = None  # [] int32
    optimum_kept: Array | None = None  # [] bool, optimum is a candidate
    evaluations: Array | None = None  # [] int32, rounds with evaluations
    length_scales: Array | None = None  # [T, G, a] at rounds 1..T
    fitted_length_scales: Array | None = None  # [G, a] at the end
    shown: Mapping[str, Array] | None = None  # [...] by name, at the end
    initial_counted: bool = static(default=False)
    made: ClassVar[Made | None] = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "made"}

    @property
    def label(self) -> str:
        """Default name of the run in tables and figures: its algorithm's."""
        return self.made.label if self.made else "run"

    @property
    def scored_indices(self) -> Array:
        """Chosen points, after the initial design's if metrics count it."""
        return jnp.concatenate([self.initial_indices, self.indices], axis=-1) if self.initial_counted else self.indices

    @property
    def scored_points(self) -> Array:
        """Scored points ``[..., d]`` of a box, or :attr:`scored_indices`."""
        if self.points is None or self.initial_points is None:
            return self.scored_indices
        return jnp.concatenate([self.initial_points, self.points], axis=-2) if self.initial_counted else self.points

    @checked
    def trial(self, number: Annotated[int, whole(0)], *, variant: Annotated[int, whole(0)] | None = None) -> Trajectory:
        """Return one trial of many, without leading axes.

        Args:
          number: index of the trial, from 0.
          variant: index of the variant, from 0. A sweep, with axes ``[variants, trials]``, needs it.

        Raises:
          InvalidArgument: when there is no such trial or variant, or this is one trial already.
        """
        run = self if variant is None else self.variant(variant)
        leading = np.shape(run.status)
        if len(leading) == 2:
            raise InvalidArgument(f"variant: the run has {leading[0]} variants of a sweep; choose one, trial({number}, variant=0)")
        return run._entry(number, "trials")

    @checked
    def variant(self, number: Annotated[int, whole(0)]) -> Trajectory:
        """Return all trials of one variant, or raise ``InvalidArgument``."""
        if np.ndim(self.status) != 2:
            raise InvalidArgument("number: the run is no sweep, it has no variants")
        return self._entry(number, "variants")

    def _entry(self, number: int, axis: str) -> Trajectory:
        """Return one entry of the first axis, by a single program."""
        leading = np.shape(self.status)
        if not leading:
            raise InvalidArgument(f"number: the run is one trial, it has no axis of {axis}")
        if number >= leading[0]:
            raise InvalidArgument(f"number: the run has {axis} 0 to {leading[0] - 1}, got {short(number)}")
        entry: Trajectory = _entry_of_tree(self, number)
        return entry if self.made is None else remember(entry, made=self.made.entry(axis, number))

    @checked
    def to_xarray(
        self,
        problem: AbstractProblem | None = None,
        *,
        label: str | None = None,
        key: KeyOrSeed | None = None,
        trials: Trials | None = None,
        delay: Delay | None = None,
        swept: Annotated[Mapping[str, Sequence[Any]], Words("a mapping from fields to values")] | None = None,
    ) -> xr.Dataset:
        """Return all measures in every round, labelled as study results.

        A run remembers the arguments of :func:`~jaxbandit.simulate`. Changed copies, and copies that JAX or a file made, need them again.

        Args:
          problem: the problem that was run.
          label: name of the run along ``algorithm``; default the algorithm's.
          key: the run's key. A random family needs it to draw its instances again.
          trials: numbers of the trials; default from 0.
          delay: the delay model, which names the run's delay; default the problem's own.
          swept: for a run of variants, the values given to :func:`~jaxbandit.sweep` by their dotted paths. Lists with a value for each
            variant vary together; others make every combination, the last field varying fastest.

        Returns:
          A dataset with dimensions ``algorithm`` (the variants), ``trial``, ``round``, and with recorded values ``played`` and
          ``output``; see :func:`~jaxbandit.study.run_study`. It has all measures but strong regret.

        Raises:
          InvalidArgument: when the problem, the trials or the swept values are not those of the run, or a key is missing.
        """
        return results_of({label or self.label: self.played()}, problem, key=key, trials=trials, delay=delay, swept=swept)

    def to_dataframe(self, problem: AbstractProblem | None = None, *, last: bool = False, **labelled: Any) -> pd.DataFrame:
        """Return a tidy table with rows of variants, trials and rounds.

        Args:
          problem: the problem that was run, as for :meth:`to_xarray`.
          last: whether to return the last round only.
          **labelled: further arguments of :meth:`to_xarray`.

        Raises:
          InvalidArgument: where :meth:`to_xarray` does.
        """
        return to_dataframe(self.to_xarray(problem, **labelled), last=last)

    @checked
    def summary(
        self,
        problem: AbstractProblem | None = None,
        *,
        label: str | None = None,
        key: KeyOrSeed | None = None,
        trials: Trials | None = None,
        swept: Annotated[Mapping[str, Sequence[Any]], Words("a mapping from fields to values")] | None = None,
    ) -> RunSummary:
        """Return a table of means over trials after the last round.

        It has 95% confidence half-widths and counts failed trials. Arguments and errors are those of :meth:`to_xarray`.
        """
        return summary_of({label or self.label: self.played()}, problem, key=key, trials=trials, swept=swept)

    def played(self) -> RunArrays:
        """Return the arrays of all trials by name."""
        leading = np.shape(self.status)
        shape = (1,) * (2 - len(leading)) + leading
        ended = "status failed_round declared_round candidate_count optimum_kept evaluations lost fitted_length_scales"
        given = {f"end_{name}": getattr(self, name) for name in ended.split()}
        given |= {f"seen_{name}": getattr(self, name) for name in ("indices", "points", "values", "arrivals")}
        if self.initial_counted:
            given |= {"before_index": self.initial_indices, "before_point": self.initial_points}
        arrays = {name: np.asarray(array) for name, array in given.items() if array is not None}
        shaped = {name: array.reshape(shape[0] * shape[1], *array.shape[len(leading) :]) for name, array in arrays.items()}
        precision = str(np.asarray(self.initial_values).dtype)
        return RunArrays(arrays=shaped, variants=shape[0], trials=shape[1], precision=precision, made=self.made)


_entry_of_tree = jax.jit(lambda run, number: jax.tree.map(lambda x: x[number], run))
