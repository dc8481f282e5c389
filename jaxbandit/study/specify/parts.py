"""The parts of which a grid makes its runs, by their labels, as they were given: as objects, or as tables."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from jaxbandit.core.codec import Table, to_plain
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
    sweep: Table = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Learner:
    """An algorithm of a grid with what is its own; attributes as the arguments of :func:`~jaxbandit.study.grid` by its label."""

    algorithm: object
    sweep: Mapping[str, Sequence[object]] | None = None
    zipped: bool = False
    model: Model | None = None
    feedback: object = None
    informed: object = None

    def table(self, where: str) -> dict[str, Any]:
        """Return what a study file says of it; raises ``InvalidArgument`` on what cannot be written as a table."""
        table = dict(to_plain(self.algorithm, where))
        if self.sweep is not None:
            sweep = {path: to_plain(list(values), f"{where}.sweep.{path}") for path, values in self.sweep.items()}
            table |= {"sweep": sweep, "zipped": self.zipped}
        if self.model is not None:
            table["model"] = self.model.table()
        own = {"feedback": self.feedback, "informed": self.informed}
        return table | {name: to_plain(item, f"{where}.{name}") for name, item in own.items() if item is not None}


@dataclasses.dataclass(frozen=True)
class Parts:
    """All that :func:`~jaxbandit.study.grid` is given; attributes as its arguments, those by the label of an algorithm in its learner."""

    problem: Table
    delay: Table
    algorithm: Mapping[str, Learner]
    model: Model = Model()
    initial: InitialDesign = InitialDesign()
    horizon: int = 1

    def rows(self) -> list[Row]:
        """Return every combination; labels have no commas, which separate columns: ``rpol reward_width=2 on sine delay poisson``."""
        rows, seen = [], dict[str, int]()
        for problem, (name, learner) in itertools.product(self.problem, self.algorithm.items()):
            values = combinations(learner.sweep or {}, zipped=learner.zipped, where=f"algorithm.{name}.sweep")
            for delay, swept in itertools.product(self.delay, values):
                words = [name, *value_words(swept)]
                words += [f"on {problem}"] if len(self.problem) > 1 and problem else []
                words += [f"delay {delay}"] if len(self.delay) > 1 and delay else []
                label = " ".join(words)
                seen[label] = number = seen.get(label, 0) + 1  # of values that differ in their last digits only
                rows.append(Row(label if number == 1 else f"{label} #{number}", problem, name, delay, swept))
        return rows

    def table(self, kind: str, label: str, where: str, common: Model) -> dict[str, Any]:
        """Return what a study file says of a problem, delay or algorithm; ``common`` is the file's model of all learners."""
        if kind != "algorithm":
            return dict(to_plain({"problem": self.problem, "delay": self.delay}[kind][label], where))
        learner = self.algorithm[label]
        differs = learner.model is None and self.model is not common
        return (dataclasses.replace(learner, model=self.model) if differs else learner).table(where)


@dataclasses.dataclass(frozen=True)
class Origin:
    """How a grid made a run: the parts, which of them, and the fields of the run that it made from them."""

    parts: Parts
    row: Row
    made: Table
