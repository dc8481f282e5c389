"""Experiments as values: an experiment, the options that all of them share, and the study of its runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxbandit import ALGORITHMS, Algorithm, InvalidArgument
from jaxbandit.report.tables import summary_rows
from jaxbandit.study import Run, Study

PARAMETER_SETS = ("recommended", "paper", "code")


def with_defaults() -> list[type[Algorithm]]:
    """Return the library's algorithms whose fields all have defaults: all but wrappers of others."""
    return [kind for kind in ALGORITHMS.values() if all(f.default is not dataclasses.MISSING for f in dataclasses.fields(kind))]  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that a user can set in any experiment.

    ``points_per_axis`` is 0 where the arms are fixed, and then has no effect. ``extra`` holds the options that an experiment adds.
    """

    trials: int
    horizon: int
    points_per_axis: int
    seed: int
    parameters: str
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One study of a paper.

    Attributes:
      name: name on the command line: the module's name, with hyphens.
      title: one line for lists and figures.
      defaults: options of the full size.
      build: function that makes the study of some options; ``None`` for an experiment that is no study, which has ``play``.
      notes: function that returns the lines printed under the table: facts that a reader of the numbers must know.
      draw: function that returns the figure of a dataset, which is written to ``figure.png``.
      position: place in lists, ascending; experiments of one paper have numbers of one ten.
      text: text of ``--help``.
      quick: options of a reduced size, for a run of minutes over all experiments.
      add_arguments: adds the experiment's own options to a parser; their names and defaults are the keys and values of
        ``defaults.extra``.
      play: function that plays an experiment which is no study, in a directory, and returns its dataset.
      rows: function that returns the rows of the table of a dataset.
      files: further files by name, each with a function that writes it to a path, from the dataset and the table's rows.
    """

    name: str
    title: str
    defaults: Options
    build: Callable[[Options], Study] | None
    notes: Callable[[Any], list[str]]
    draw: Callable[[Any], Any]
    position: int
    text: str = ""
    quick: Options | None = None
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    play: Callable[[Options, Path], Any] | None = None
    rows: Callable[[Any], list[dict[str, Any]]] = summary_rows
    files: Callable[[Any, Sequence[dict[str, Any]]], Mapping[str, Callable[[Path], object]]] | None = None

    def study(self, options: Options) -> Study:
        """Return the study of some options; raises ``InvalidArgument`` for an experiment that is none."""
        if self.build is None:
            raise InvalidArgument(f"experiment: {self.name} is no study of simulated trials, so that it has no traces")
        return self.build(options)

    def reduced(self) -> Experiment:
        """Return the same experiment with the reduced size as its default, if it has one."""
        return self if self.quick is None else dataclasses.replace(self, defaults=self.quick)


def study(name: str, runs: Iterable[Run], options: Options, recorded: Mapping[str, Any]) -> Study:
    """Return the study of an experiment's runs, which keeps everything; ``recorded`` goes into the results' attributes."""
    return Study(
        name=name,
        runs=tuple(runs),
        trials=options.trials,
        horizon=options.horizon,
        seed=options.seed,
        parameters={"set": options.parameters, **recorded},
    ).keeping_everything()


def no_code_note(dataset: Any) -> list[str]:
    """Return a note for a run of the ``code`` set where it is the paper's."""
    known = json.loads(dataset.attrs["parameters"])
    return ["no code was published with this paper: --parameters code runs the paper's set"] if known["set"] == "code" else []
