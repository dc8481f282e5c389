"""What is run: the lines of a study, and what every specification of lines says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.kernels import Kernel
from jaxbandit.metrics import Curves
from jaxbandit.simulate import Informed, InitialDesign
from jaxbandit.study.thinning import Keep
from jaxbandit.surrogates import Surrogate

CURVES = tuple(field.name for field in dataclasses.fields(Curves))


@dataclasses.dataclass(frozen=True)
class Entry:
    """One algorithm with all that it is run on.

    Attributes:
      label: what tables and figures call it.
      alg: its name in audit traces (``cbo_ucb``).
      algorithm, surrogate: what is run.
      kernels: kernel of each output, for records.
      informed: what the study tells the learner of each instance, see :func:`~jaxbandit.simulate`.
      problem: its own problem, where a study spans several; ``None`` for the comparison's.
      initial: its own points before round 1, of which equally many count in all entries; ``None`` for the comparison's.
      delay: how late its feedback comes, a model of :mod:`jaxbandit.delays`; ``None`` for the problem's.
      feedback: what it does meanwhile, a policy of :mod:`jaxbandit.feedback`; ``None`` for the algorithm's own.
    """

    label: str
    alg: str
    algorithm: Any
    surrogate: Surrogate
    kernels: tuple[Kernel, ...]
    informed: Informed | None = None
    problem: Any = None
    initial: InitialDesign | None = None
    delay: Any = None
    feedback: Any = None


@dataclasses.dataclass(frozen=True)
class Line:
    """One algorithm with its values on one problem under one delay: a row of the results.

    Attributes:
      entry: what is run, with its own problem, initial design and delay.
      base, problem, delay: what results call the algorithm, the problem and the delay; lines on one problem have one name for it.
      swept: values of the swept fields, by their paths.
    """

    entry: Entry
    base: str
    problem: str
    delay: str
    swept: Mapping[str, Any]


class Specification(Protocol):
    """What the engine runs: a :class:`~jaxbandit.study.Study` or a :class:`~jaxbandit.study.Comparison`, see there."""

    @property
    def name(self) -> str:
        """Of the study."""

    @property
    def trials(self) -> int:
        """Of every line."""

    @property
    def horizon(self) -> int:
        """Rounds of every trial."""

    @property
    def seed(self) -> int:
        """Of all random numbers."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of :class:`~jaxbandit.metrics.Curves`."""

    @property
    def keep(self) -> Keep:
        """Which rounds of the curves are kept."""

    @property
    def trajectories(self) -> bool:
        """Whether points, values and arrivals of every round are kept, too."""

    @property
    def common_random_numbers(self) -> bool:
        """Whether lines see the same noise, delays and instances in trials of a number."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What else the results should say of themselves, as JSON values."""

    @property
    def swept(self) -> Sequence[str]:
        """Paths of all fields that some line sweeps."""

    def lines(self) -> list[Line]:
        """What is run, in the order of the results; raises ``InvalidArgument`` on what cannot be."""

    def fingerprint(self) -> str:
        """A hash of all that the results depend on."""

    def table(self) -> dict[str, Any]:
        """The specification as plain values; raises ``InvalidArgument`` when it cannot be written so."""


def counted_before(lines: Sequence[Line]) -> int:
    """How many points before round 1 the metrics count, in every line.

    Raises:
      InvalidArgument: when some lines count more than others.
    """
    designs = [line.entry.initial for line in lines]
    counts = sorted({design.count if design is not None and design.counted else 0 for design in designs})
    if len(counts) > 1:
        raise InvalidArgument(f"initial: lines of one study count equally many points before round 1, got {counts}")
    return counts[0] if counts else 0
