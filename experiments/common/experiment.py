"""Experiments as values.

An experiment has options on the command line and a study of its runs. All experiments are found here.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import experiments
from jaxbandit import ALGORITHMS, Algorithm, InvalidArgument, checks
from jaxbandit.delays import NEVER
from jaxbandit.report.tables import summary_rows
from jaxbandit.study import Run, Study

PARAMETER_SETS = ("recommended", "paper", "code")
# Larger numbers are refused before any problem is made.
MAX_TRIALS = 2**31 - 1
MAX_SEED = 2**63 - 1


def with_defaults() -> list[type[Algorithm]]:
    """Return the library's algorithms whose fields all have defaults."""
    return [kind for kind in ALGORITHMS.values() if all(f.default is not dataclasses.MISSING for f in dataclasses.fields(kind))]  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that a user can set in any experiment.

    ``points_per_axis`` is 0 where the arms are fixed, and then has no effect. ``extra`` holds the options that an experiment adds.
    """

    trials: int
    horizon: int
    points_per_axis: int = 0
    seed: int = 0
    parameters: str = "recommended"
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One study of a paper.

    Attributes:
      module: name of its module.
      title: one line for lists and figures.
      defaults: options of the full size.
      build: function that makes the study of some options; ``None`` for an experiment that is no study, which has ``play``.
      notes: function that returns the lines printed under the table: facts that a reader of the numbers must know.
      draw: function that returns the figure of a dataset, which is written to ``figure.png``.
      quick: options of a reduced size, for a run of minutes over all experiments.
      position: place in lists, ascending, by default the last; experiments of one paper have numbers of one ten.
      add_arguments: adds the experiment's own options to a parser; their names and defaults are the keys and values of
        ``defaults.extra``.
      choices: by the name of an option that lists names, the names that there are. With ``runs`` among the options a further option says
        where runs are kept.
      play: function that plays an experiment which is no study, in a directory, and returns its dataset.
      rows: function that returns the rows of the table of a dataset.
      files: further files by name, each with a function that writes it to a path, from the dataset and the table's rows.
    """

    module: str
    title: str
    defaults: Options
    build: Callable[[Options], Study] | None
    notes: Callable[[Any], list[str]]
    draw: Callable[[Any], Any]
    quick: Options
    position: int = 99
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    choices: Mapping[str, Collection[str]] = dataclasses.field(default_factory=dict)
    play: Callable[[Options, Path], Any] | None = None
    rows: Callable[[Any], list[dict[str, Any]]] = summary_rows
    files: Callable[[Any, Sequence[dict[str, Any]]], Mapping[str, Callable[[Path], object]]] | None = None

    @property
    def name(self) -> str:
        """Name on the command line: the module's name, with hyphens."""
        return self.module.rpartition(".")[2].replace("_", "-")

    @property
    def text(self) -> str:
        """Text of ``--help``: the docstring of the module."""
        return sys.modules[self.module].__doc__ or ""

    def study(self, options: Options) -> Study:
        """Return the study of some options.

        Raises ``InvalidArgument`` for an experiment that is no study.
        """
        if self.build is None:
            raise InvalidArgument(f"experiment: {self.name} is no study of simulated trials, so that it has no traces")
        return self.build(options)

    def reduced(self) -> Experiment:
        """Return the same experiment with the reduced size as its default."""
        return dataclasses.replace(self, defaults=self.quick)


@functools.cache
def find_experiments() -> dict[str, Experiment]:
    """Return all experiments by name, in the order of ``position``.

    Experiments of equal position are in the order of their names. Modules are imported here, which can start a JAX device, so call
    :func:`jaxbandit.study.use_all_cores` before.
    """
    found = [module.EXPERIMENT for module in map(importlib.import_module, module_names()) if "EXPERIMENT" in vars(module)]
    return {experiment.name: experiment for experiment in sorted(found, key=lambda experiment: (experiment.position, experiment.name))}


def module_names() -> list[str]:
    """Return the names of all modules that may define an experiment.

    Modules named ``__main__`` are left out, because they run something when imported.
    """
    modules = pkgutil.walk_packages(experiments.__path__, f"{experiments.__name__}.")
    return [module.name for module in modules if not module.name.endswith(".__main__")]


def study(name: str, runs: Iterable[Run], options: Options, recorded: Mapping[str, Any]) -> Study:
    """Return the study of an experiment's runs, with ``recorded`` in its results."""
    return Study(
        name=name,
        runs=tuple(runs),
        trials=options.trials,
        horizon=options.horizon,
        seed=options.seed,
        parameters={"set": options.parameters, **recorded},
    ).keeping_everything()


def no_code_note(dataset: Any) -> list[str]:
    """Return a note if the ``code`` set is the paper's."""
    known = json.loads(dataset.attrs["parameters"])
    return ["no code was published with this paper: --parameters code runs the paper's set"] if known["set"] == "code" else []


def spelling(known: Iterable[str]) -> Callable[[str], str]:
    """Return a function from any spelling of an algorithm to its name."""
    alike = [(name, *kind.also_called()) for name, kind in ALGORITHMS.items()]
    return lambda name: checks.spelled(name, tuple(known), alike)


def add_options(parser: argparse.ArgumentParser, of: Experiment) -> None:
    """Add the options of an experiment, its own ones too."""
    defaults = of.defaults
    parser.add_argument("--trials", type=int, default=defaults.trials, metavar="N", help="independent trials (default %(default)s)")
    parser.add_argument("--horizon", type=int, default=defaults.horizon, metavar="T", help="rounds per trial (default %(default)s)")
    resolution = "grid resolution (default %(default)s)" if defaults.points_per_axis else "no effect here"
    parser.add_argument("--points-per-axis", type=int, default=defaults.points_per_axis, metavar="n", help=resolution)
    parser.add_argument("--seed", type=int, default=defaults.seed, metavar="S", help="seed of every random number (default %(default)s)")
    parser.add_argument(
        "--parameters", choices=PARAMETER_SETS, default=defaults.parameters, help="named parameter set (default %(default)s)"
    )
    parser.set_defaults(option_defaults=defaults, option_choices=of.choices)
    for name, known in of.choices.items():
        words = f"some of {'; '.join(known)} (default: all)".replace("%", "%%")
        parser.add_argument(f"--{name}", type=spelling(known), nargs="+", metavar="NAME", help=words)
    if "runs" in defaults.extra:
        parser.add_argument(
            "--runs", metavar="FILE", help="keep every run in this file, and play only the runs that it lacks (default: none)"
        )
    if of.add_arguments is not None:
        of.add_arguments(parser)
    # The values are those of the reduced size if it is asked for.
    parser.set_defaults(**defaults.extra)


def options_from(args: argparse.Namespace) -> Options:
    """Return the options as parsed.

    Raises ``InvalidArgument`` on numbers out of range and unknown names.
    """
    checks.integer("--trials", args.trials, least=1, most=MAX_TRIALS)
    checks.integer("--horizon", args.horizon, least=1, most=NEVER - 1)
    if args.option_defaults.points_per_axis:
        checks.integer("--points-per-axis", args.points_per_axis, least=2)
    checks.integer("--seed", args.seed, least=0, most=MAX_SEED)
    for name, known in args.option_choices.items():
        for one in getattr(args, name):
            checks.one_of(f"--{name}", one, known)
    return Options(
        trials=args.trials,
        horizon=args.horizon,
        points_per_axis=args.points_per_axis,
        seed=args.seed,
        parameters=args.parameters,
        extra={name: getattr(args, name, default) for name, default in args.option_defaults.extra.items()},
    )
