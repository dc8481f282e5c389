"""Result of a search for hyper-parameters, by grid or by descent."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import T
from jaxbandit.numerics.intervals import NORMAL_95


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Hyper-parameters that a search tried, with their loss.

    Attributes:
      values: the hyper-parameters: values by path for a grid, a pytree of parameters for a descent.
      loss: mean loss over trials, infinite when a trial failed.
      standard_error: standard error of the loss.
      found: where they come from: ``"grid"``, ``"start"``, ``"screened"``, ``"step 10"`` or ``"mean of the last steps"``.
    """

    values: Any
    loss: float
    standard_error: float
    found: str


@dataclasses.dataclass(frozen=True)
class Tuned(Generic[T]):
    """Best hyper-parameters of a search.

    Attributes:
      best: the best run with its hyper-parameters for a grid, the best parameters for a descent; for
        :func:`~jaxbandit.gradients.logarithms` the hyper-parameters by path, in their own units.
      candidates: all candidates that the search compared, in the order tried.
      improvement: mean loss of the start less the loss of ``best``, on trials that served no choice; NaN for a grid.
      interval: 95% confidence interval of the improvement, ``(low, high)``, from paired trials.
      history: arrays by name over the steps of a descent: ``value``, ``standard_error``, ``unchanged``, ``failed``, all ``[steps]``, and
        ``params [steps, d]`` before each step; empty for a grid.
      params: the parameters of ``best`` in the form of the loss of a descent; ``None`` for a grid.
      algorithm, model: the best learner.
    """

    best: T
    candidates: tuple[Candidate, ...]
    improvement: float = float("nan")
    interval: tuple[float, float] = (float("nan"), float("nan"))
    history: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    params: Any = None
    algorithm: Any = None
    model: Any = None

    def to_xarray(self) -> Any:
        """Return the history along ``step``, with the improvement as attributes."""
        import xarray as xr

        variables = {name: (("step", "parameter")[: values.ndim], values) for name, values in self.history.items()}
        attributes = {"improvement": self.improvement, "improvement_low": self.interval[0], "improvement_high": self.interval[1]}
        return xr.Dataset(variables, attrs=attributes)

    def plot(self, axes: Any = None) -> Any:
        """Draw the loss over the steps into ``axes`` or new ones."""
        if not self.history:
            raise InvalidArgument("history: must hold the steps of a descent to be drawn, got none, as a search of a grid has")
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.subplots(layout="constrained")[1]
        steps, value, error = np.arange(len(self.history["value"])), self.history["value"], self.history["standard_error"]
        axes.plot(steps, value, label="loss around the iterate")
        axes.fill_between(steps, value - error, value + error, alpha=0.2, linewidth=0)
        shown = [candidate for candidate in self.candidates if candidate.found.startswith(("start", "step"))]
        places = [0 if candidate.found == "start" else int(candidate.found.split()[1]) for candidate in shown]
        losses, half = [candidate.loss for candidate in shown], [NORMAL_95 * candidate.standard_error for candidate in shown]
        axes.errorbar(places, losses, half, fmt="o", color="black", markersize=3, label="candidates in the validation, 95% intervals")
        axes.set(xlabel="step", ylabel="mean loss of a round")
        axes.legend()
        return axes
