"""The record of trials that ``simulate`` returns, which can be labelled, tabulated and summarised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Described, Words, whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Array, Key
from jaxbandit.delays import Delay
from jaxbandit.engine.arguments import Trials
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.dataset import to_dataframe
from jaxbandit.results.measured import Played, RunSummary, results_of, summary_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@pytree
class Trajectory(Described):
    """Record of one trial, or of many with leading axes ``[trials]`` or ``[variants, trials]``.

    Rounds are counted from 1; arrays hold round ``t`` at ``t - 1``. With ``record="indices"`` the optional fields are ``None``.

    :meth:`summary` says how a run went, :meth:`to_xarray` and :meth:`to_dataframe` label it as the results of a study are labelled, and
    :mod:`jaxbandit.report.plots` draws it.
    """

    described: ClassVar[str] = "what simulate returns, a Trajectory"
    indices: Array  # [T] int32, the points chosen
    status: Array  # [] int32, bits of core.status.Status
    failed_round: Array  # [] int32, first round with a failure flag, 0 for none
    declared_round: Array  # [] int32, first round in which infeasibility was declared, 0 for none
    information_gain: Array  # [G] realised, at the end, per group of outputs
    initial_indices: Array  # [n] int32
    initial_values: Array  # [n, 1 + m]
    values: Array | None = None  # [T, 1 + m] noisy rewards and costs
    multipliers: Array | None = None  # [T + 1, m] in force at rounds 1..T+1, zero for algorithms without
    widths: Array | None = None  # [T, 1 + m] beta_t
    draws: Array | None = None  # [T, 1 + m] or [T, 1 + m, M] what a randomised strategy drew; with record="audit" only
    arrivals: Array | None = None  # [T, 1 + m] int32, round at whose end each value arrives (see delays.NEVER); with delayed feedback only
    lost: Array | None = None  # [1 + m] int32, values that the buffer had no place for; with delayed feedback only
    candidates: Array | None = None  # [M] bool, points not struck out by the end; of algorithms that eliminate only
    candidate_count: Array | None = None  # [] int32, their number
    optimum_kept: Array | None = None  # [] bool, whether the best feasible point is one of them
    evaluations: Array | None = None  # [] int32, rounds that evaluated something; of algorithms that stop by themselves only
    length_scales: Array | None = None  # [T, G, a] in force at rounds 1..T, of a group's outputs on each axis or all; of fitted models only
    fitted_length_scales: Array | None = None  # [G, a] in force at the end; of models that are fitted on the way only
    shown: Mapping[str, Array] | None = None  # arrays of other names that the algorithm shows at the end; with record="all" and "audit"
    initial_counted: bool = static(default=False)

    @property
    def scored_indices(self) -> Array:
        """The points that metrics count: the rounds', after the initial design's where the study counts it."""
        return jnp.concatenate([self.initial_indices, self.indices], axis=-1) if self.initial_counted else self.indices

    @checked
    def trial(self, number: Annotated[int, whole(0)], *, variant: Annotated[int, whole(0)] | None = None) -> Trajectory:
        """Return one trial of many, without leading axes.

        Args:
          number: place of the trial, from 0.
          variant: place of the variant, from 0; needed for a sweep, whose axes are ``[variants, trials]``.

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
        """Return all trials of one variant of a sweep, with leading axis ``[trials]``; raises ``InvalidArgument`` where there is none."""
        if np.ndim(self.status) != 2:
            raise InvalidArgument("number: the run is no sweep, it has no variants")
        return self._entry(number, "variants")

    def _entry(self, number: int, axis: str) -> Trajectory:
        """Return one entry of the first axis, all fields by one program."""
        leading = np.shape(self.status)
        if not leading:
            raise InvalidArgument(f"number: the run is one trial, it has no axis of {axis}")
        if number >= leading[0]:
            raise InvalidArgument(f"number: the run has {axis} 0 to {leading[0] - 1}, got {checks.short(number)}")
        entry: Trajectory = _at(self, number)
        return entry

    @checked
    def to_xarray(
        self,
        problem: AbstractProblem,
        *,
        label: str = "run",
        key: Key | None = None,
        trials: Trials | None = None,
        delay: Delay | None = None,
        swept: Annotated[Mapping[str, Sequence[Any]], Words("a mapping from fields to values")] | None = None,
    ) -> xr.Dataset:
        """Return the run with all measures in every round, labelled as the results of a study are.

        Args:
          problem: the problem that was run.
          label: name of the run along ``algorithm``.
          key: the key that :func:`~jaxbandit.simulate` was given; needed for a random family, whose instances it draws again.
          trials: numbers of the trials, where :func:`~jaxbandit.simulate` was given such; default from 0.
          delay: the delay model that :func:`~jaxbandit.simulate` was given, which names the run's delay; default the problem's own.
          swept: the values that :func:`~jaxbandit.sweep` was given, by their dotted paths; of a run of variants. Lists with a value for
            each variant go together; others make every combination, the last field varying fastest.

        Returns:
          A dataset with dimensions ``algorithm`` (the variants), ``trial``, ``round``, and with recorded values ``played`` and
          ``output``; see :func:`~jaxbandit.study.run_study`. It has all measures but strong regret.

        Raises:
          InvalidArgument: when the problem, the trials or the swept values are not those of the run, or a key is missing.
        """
        return results_of({label: self.played()}, problem, key=key, trials=trials, delay=delay, swept=swept)

    def to_dataframe(self, problem: AbstractProblem, *, last: bool = False, **labelled: Any) -> pd.DataFrame:
        """Return the run as a tidy table: a row for each variant, trial and round, a column for each label and measure.

        Args:
          problem: the problem that was run.
          last: whether to keep the last round only.
          **labelled: further arguments of :meth:`to_xarray`.

        Raises:
          InvalidArgument: where :meth:`to_xarray` does.
        """
        return to_dataframe(self.to_xarray(problem, **labelled), last=last)

    @checked
    def summary(
        self,
        problem: AbstractProblem,
        *,
        label: str = "run",
        key: Key | None = None,
        trials: Trials | None = None,
        swept: Annotated[Mapping[str, Sequence[Any]], Words("a mapping from fields to values")] | None = None,
    ) -> RunSummary:
        """Return means over trials after the last round with 95% confidence half-widths, a row for each variant, as a table.

        Arguments and errors are those of :meth:`to_xarray`. Trials that failed are counted and left out.
        """
        return summary_of({label: self.played()}, problem, key=key, trials=trials, swept=swept)

    def played(self) -> Played:
        """Return the arrays of all trials by name, with leading axes ``[variants, trials]`` whatever the run's own axes."""
        leading = np.shape(self.status)
        shape = (1,) * (2 - len(leading)) + leading
        ended = "status failed_round declared_round candidate_count optimum_kept evaluations lost fitted_length_scales"
        given = {f"end_{name}": getattr(self, name) for name in ended.split()}
        given |= {f"seen_{name}": getattr(self, name) for name in ("indices", "values", "arrivals")}
        if self.initial_counted:
            given["before_index"] = self.initial_indices
        arrays = {name: np.asarray(array) for name, array in given.items() if array is not None}
        shaped = {name: array.reshape(shape[0] * shape[1], *array.shape[len(leading) :]) for name, array in arrays.items()}
        return Played(arrays=shaped, variants=shape[0], trials=shape[1], precision=str(np.asarray(self.initial_values).dtype))


_at = jax.jit(lambda run, number: jax.tree.map(lambda x: x[number], run))
