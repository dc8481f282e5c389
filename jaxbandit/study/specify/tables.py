"""Studies from tables of plain values and from TOML files."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.paths import check_known
from jaxbandit.engine import InitialDesign
from jaxbandit.study.specify.grid import Model, grid
from jaxbandit.study.specify.keep import Keep
from jaxbandit.study.specify.registry import fields_of
from jaxbandit.study.specify.study import CHECKED, Study, check_metrics, check_plain

T = TypeVar("T")

PLAIN = (*CHECKED, "parameters")
OF_ALGORITHM = ("sweep", "zipped", "model", "feedback", "informed")  # what an algorithm's table holds beside its type and fields


@takes(path=path_check)
def from_toml(path: str | Path, *, precision: str | None = None) -> Study:
    """Return the study of a TOML file, in UTF-8 with or without a byte-order mark, with ``precision`` in place of what it says.

    Raises:
      InvalidArgument: when the file cannot be read, is no TOML, or holds what no study has.
    """
    try:
        with opened_text(path) as file:
            text = file.read()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"study: cannot read {str(path)!r}: {reason_of(error)}") from error
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError of its own
        raise InvalidArgument(f"study: {path} is no TOML: {reason_of(error)}") from error
    return from_table({"name": Path(path).stem} | table, precision=precision)


def from_table(table: Mapping[str, Any], *, precision: str | None = None) -> Study:
    """Return the study that a table describes, as :meth:`Study.table` writes it; raises ``InvalidArgument`` on what no study has."""

    def arithmetic_in_force(model: Model) -> Model:
        return model if precision is None else dataclasses.replace(model, precision=precision)

    _check_table("study", table)
    for name in table:
        check_known(name, [*PLAIN, "metrics", "keep", "initial", "model", "problem", "delay", "algorithm"], name, "a study has")
    if "name" not in table:
        raise InvalidArgument("name: there is none; give the study a name")
    for name in ("problem", "algorithm"):
        if not table.get(name):
            raise InvalidArgument(f"{name}: there is none; add a table [{name}.LABEL] with its type")
    for name in ("problem", "delay", "algorithm"):
        for label, item in _check_table(name, table.get(name, {})).items():
            _check_table(f"{name}.{label}", item)
    given = {name: table[name] for name in PLAIN if name in table}
    check_plain(**{name: value for name, value in given.items() if name in CHECKED})
    metrics = check_metrics(table.get("metrics", Study.metrics))
    keep = _made(Keep, table.get("keep", {}), "keep")
    keep.validate()
    initial = _made(InitialDesign, table.get("initial", {}), "initial")
    initial.validate("initial")
    own = {label: _own(item, f"algorithm.{label}") for label, item in table["algorithm"].items()}
    study = Study(
        runs=grid(
            problems=table["problem"],
            algorithms={
                label: {name: value for name, value in item.items() if name not in OF_ALGORITHM}
                for label, item in table["algorithm"].items()
            },
            horizon=table.get("horizon", Study.horizon),
            delays=table.get("delay"),
            model=arithmetic_in_force(_made(Model, table.get("model", {}), "model")),
            sweeps={label: item["sweep"] for label, item in own.items() if "sweep" in item},
            zipped=[label for label, item in own.items() if item.get("zipped", False)],
            models={label: arithmetic_in_force(item["model"]) for label, item in own.items() if "model" in item},
            feedback={label: item["feedback"] for label, item in own.items() if "feedback" in item},
            informed={label: item["informed"] for label, item in own.items() if "informed" in item},
            initial=initial,
        ),
        keep=keep,
        metrics=metrics,
        **given,
    )
    study.validate()
    return study


def _own(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return what an algorithm's table says of its runs: sweep, model, feedback and what it is told."""
    own = {name: table[name] for name in OF_ALGORITHM if name in table}
    for name in ("sweep", "model", "feedback", "informed"):
        if name in own:
            _check_table(f"{where}.{name}", own[name])
    for path, values in own.get("sweep", {}).items():
        if not isinstance(values, list) or not values:
            raise InvalidArgument(f"{where}.sweep.{path}: expected a list of values, got {short(values)}")
    if "zipped" in own:
        checks.boolean(f"{where}.zipped", own["zipped"])
    if "model" in own:
        own["model"] = _made(Model, own["model"], f"{where}.model")
    return own


def _made(kind: type[T], table: Any, where: str) -> T:
    """Return the ``kind`` that a table describes; raises ``InvalidArgument`` on unknown fields."""
    for name in _check_table(where, table):
        check_known(name, fields_of(kind), f"{where}.{name}", f"{where} takes")
    return kind(**{name: np.asarray(value) if isinstance(value, list) and name == "indices" else value for name, value in table.items()})


def _check_table(where: str, table: Any) -> Mapping[str, Any]:
    """Return a table; raise ``InvalidArgument`` on anything else."""
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{where}: expected a table, got {short(table)}")
    return table
