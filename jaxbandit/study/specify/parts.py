"""The parts of which a grid makes its runs, by their labels, as they were given: as objects, or as tables."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jaxbandit.core.codec import to_plain
from jaxbandit.core.sweep import combinations
from jaxbandit.engine import InitialDesign
from jaxbandit.results.schema import value_words
from jaxbandit.study.specify.model import Model


@dataclasses.dataclass(frozen=True)
class Row:
    """One run of a grid by the labels of its parts.

    Attributes:
      label: the run's own label.
      problem, algorithm, delay: labels of its parts.
      sweep: values of hyper-parameters by their dotted paths, in place of those that the parts have.
    """

    label: str
    problem: str
    algorithm: str
    delay: str
    sweep: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Parts:
    """All that :func:`~jaxbandit.study.grid` is given; attributes as its arguments."""

    problems: Mapping[str, Any]
    delays: Mapping[str, Any]
    algorithms: Mapping[str, Any]
    sweeps: Mapping[str, Mapping[str, Sequence[Any]]] = dataclasses.field(default_factory=dict)
    zipped: Collection[str] = ()
    model: Model = Model()
    models: Mapping[str, Model] = dataclasses.field(default_factory=dict)
    feedback: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    informed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    initial: InitialDesign = InitialDesign()
    horizon: int = 1

    def rows(self) -> list[Row]:
        """Return every combination; labels have no commas, which separate columns: ``rpol reward_width=2 on sine delay poisson``."""
        rows, seen = [], dict[str, int]()
        for problem, algorithm in itertools.product(self.problems, self.algorithms):
            values = combinations(self.sweeps.get(algorithm, {}), zipped=algorithm in self.zipped, where=f"algorithm.{algorithm}.sweep")
            for delay, swept in itertools.product(self.delays, values):
                words = [algorithm, *value_words(swept)]
                words += [f"on {problem}"] if len(self.problems) > 1 and problem else []
                words += [f"delay {delay}"] if len(self.delays) > 1 and delay else []
                label = " ".join(words)
                seen[label] = number = seen.get(label, 0) + 1  # of values that differ in their last digits only
                rows.append(Row(label if number == 1 else f"{label} #{number}", problem, algorithm, delay, swept))
        return rows

    def table(self, kind: str, label: str, where: str, common: Model) -> dict[str, Any]:
        """Return what a study file says of a problem, delay or algorithm; ``common`` is the file's model of all learners.

        Raises:
          InvalidArgument: on what cannot be written as a table.
        """
        given = {"problem": self.problems, "delay": self.delays, "algorithm": self.algorithms}[kind][label]
        table: dict[str, Any] = dict(to_plain(given, where))
        if kind != "algorithm":
            return table
        if label in self.sweeps:
            sweep = {path: to_plain(list(values), f"{where}.sweep.{path}") for path, values in self.sweeps[label].items()}
            table |= {"sweep": sweep, "zipped": label in self.zipped}
        if label in self.models or self.model is not common:
            table["model"] = self.models.get(label, self.model).table()
        for name, parts in (("feedback", self.feedback), ("informed", self.informed)):
            if label in parts:
                table[name] = to_plain(parts[label], f"{where}.{name}")
        return table


@dataclasses.dataclass(frozen=True)
class Origin:
    """How a grid made a run: the parts, which of them, and the fields of the run that it made from them."""

    parts: Parts
    row: Row
    made: Mapping[str, Any]
