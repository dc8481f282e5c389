"""The GP model of the learners of a study or session, as a table says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import Table, from_plain, origin_of, to_fields
from jaxbandit.core.declare import check_fields, checked
from jaxbandit.core.fields import AtLeast, between, choice, finite_numbers, of_class, positive_numbers, text, whole
from jaxbandit.core.types import PerAxis, PerOutput
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.problems.data import rows_of_csv
from jaxbandit.surrogates import PRECISIONS, Surrogate, ranged, surrogate
from jaxbandit.surrogates.choose import FORMS
from jaxbandit.surrogates.nystroem import with_length_scale
from jaxbandit.surrogates.outputs import VARIANCE_IN_FILES

Range: TypeAlias = tuple[PerAxis, PerAxis]


@dataclasses.dataclass(frozen=True)
class Model:
    """The GP model of a grid's learners, built on each problem's points; fields as for :func:`~jaxbandit.surrogate`.

    With a ``length_scale_range`` the models are those of :func:`~jaxbandit.ranged`: all length-scales that a sweep over
    ``"model.length_scale"`` tries are one program.

    Attributes:
      kernel: a kernel or its table, one for all outputs or a list of one for each.
      noise_variance, prior_mean, form, tolerance, rank, precision: as for :func:`~jaxbandit.surrogate`; noise that differs between points
        is a table, which :func:`~jaxbandit.domains.tabulate` makes of a function.
      length_scale: one number or one for each axis, in place of the kernel's; only with a range.
      length_scale_range: the shortest and the longest length-scale, ``[low, high]`` or ``[[low, ...], [high, ...]]`` for each axis.
      fit_to: data that kernel and noise variance are fitted to before round 1, by maximum posterior as for
        :func:`~jaxbandit.surrogate`: rows ``[n, d + 1 + m]`` of a point's ``d`` coordinates, its reward and its constraints; or the path of
        a CSV file of such rows, below a line of names. A file is read at once, and results hold its rows. All trials share the fit;
        :class:`~jaxbandit.Refitted` fits in each trial to what it has seen.
    """

    kernel: Kernel | Table | Annotated[Sequence[Kernel | Table], AtLeast(1)] = dataclasses.field(
        default_factory=lambda: {"type": "SquaredExponential"}
    )
    noise_variance: Annotated[PerOutput | Sequence[Any], VARIANCE_IN_FILES] = 0.05
    prior_mean: Annotated[PerOutput, finite_numbers] = 0.0
    form: Annotated[str, choice(*FORMS)] = "auto"
    tolerance: Annotated[float, between(0, 1, open_high=True, host=True)] | None = None
    rank: Annotated[int, whole(1)] | None = None
    precision: Annotated[str, choice(*PRECISIONS)] = "auto"
    length_scale: Annotated[PerAxis, positive_numbers] | None = None
    length_scale_range: Annotated[Range, positive_numbers] | None = None
    fit_to: Annotated[object, text | of_class(Path, "the path of a CSV file") | finite_numbers] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model")
        several = self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel]
        kernels = tuple(from_plain(Kernel, kernel, "model.kernel") for kernel in several)
        object.__setattr__(self, "kernel", kernels if several is self.kernel else kernels[0])
        if self.length_scale_range is not None:
            ends = checks.numbers("model.length_scale_range", self.length_scale_range)
            if ends.shape[:1] != (2,) or not np.all(ends[0] < ends[1]):
                raise InvalidArgument(
                    f"model.length_scale_range: expected [low, high] with low < high, got {short(self.length_scale_range)}"
                )
        if self.fit_to is not None:
            object.__setattr__(self, "fit_to", _rows(self.fit_to))

    @staticmethod
    def behind(built: Surrogate) -> Model:
        """Return the model that a surrogate was built by; raises ``InvalidArgument`` where it was changed since."""
        asked = origin_of(built)
        if asked is None:
            raise InvalidArgument("model: a surrogate that was changed since it was built cannot be written as a table")
        data = asked["fit_to"]
        return Model(**{**asked, "fit_to": None if data is None else np.column_stack([np.asarray(array, np.float64) for array in data])})

    def validate(self, where: str) -> None:
        """Raise ``InvalidArgument`` on fields that do not go with each other; what depends on the problem is checked with it."""
        if self.length_scale_range is None and self.length_scale is not None:
            raise InvalidArgument(
                f"{where}.length_scale: needs length_scale_range = [low, high], for which the model is built once (jaxbandit.ranged),"
                f" got {short(self.length_scale)} without one; or set the length-scale of its kernel"
            )
        if self.length_scale_range is not None and self.form != "auto":
            raise InvalidArgument(f"{where}.form: a model with a length_scale_range has a form of its own; use 'auto', got {self.form!r}")
        if self.fit_to is not None and self.length_scale is not None:
            raise InvalidArgument(
                f"{where}.length_scale: is fitted, for there is fit_to; leave one of them out, got {short(self.length_scale)}"
            )

    def at_middle(self) -> Model:
        """Return the model at the middle of its range, from which those of all length-scales are made; one without is returned as it is."""
        if self.length_scale is None or self.length_scale_range is None:
            return self
        return dataclasses.replace(self, length_scale=np.sqrt(np.prod(np.asarray(self.length_scale_range, np.float64), axis=0)).tolist())

    @checked
    def of(
        self, domain: Domain, outputs: Annotated[int, whole(1, 1000)], horizon: Annotated[int, whole(1)] | None, where: str
    ) -> Surrogate:
        """Return the surrogate of ``outputs`` functions on a domain, with room for ``horizon`` observations."""
        kernels: Any = list(self.kernel) if isinstance(self.kernel, tuple) else self.kernel  # one for all outputs is fitted to all of them
        rest = {name: getattr(self, name) for name in ("noise_variance", "prior_mean", "rank", "precision", "tolerance")}
        rest |= {"outputs": outputs, "horizon": horizon}
        try:
            if self.fit_to is not None:
                rest["fit_to"] = _points_and_values(np.asarray(self.fit_to), domain.dimension, outputs)
            if self.length_scale_range is None:
                return surrogate(domain, kernels, form=self.form, **rest)
            if self.length_scale is not None:
                own_scale = partial(with_length_scale, length_scale=self.length_scale)
                kernels = [own_scale(kernel) for kernel in kernels] if isinstance(kernels, list) else own_scale(kernels)
            return ranged(domain, kernels, low=self.length_scale_range[0], high=self.length_scale_range[1], **rest)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from error

    def table(self) -> Mapping[str, object]:
        """Return the table of a study file; raises ``InvalidArgument`` on a kernel that cannot be written as one."""
        table = to_fields(self, "model")
        return {name: table[name] for name in sorted(table, key="kernel".__eq__)}  # the kernel last


def _rows(given: object) -> np.ndarray:
    """Return the rows ``[n, c]`` that a model is fitted to, given as they are or as the path of a CSV file."""
    if isinstance(given, str | Path):
        try:
            given = rows_of_csv(given)
        except InvalidArgument as error:
            raise InvalidArgument(f"model.fit_to: {error}") from error
    rows = np.asarray(given, np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InvalidArgument(f"model.fit_to: must be rows of numbers, the coordinates of a point and its values, got {short(given)}")
    return rows


def _points_and_values(rows: np.ndarray, dimension: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points ``[n, d]`` and values ``[n, 1 + m]`` of the rows that a model is fitted to."""
    if rows.shape[1] != dimension + outputs:
        raise InvalidArgument(
            f"fit_to: must have {dimension + outputs} columns, {dimension} coordinates of a point and the values of {outputs} outputs,"
            f" got {rows.shape[1]}"
        )
    return rows[:, :dimension], rows[:, dimension:]
