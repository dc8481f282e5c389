"""Studies from tables of plain values and from TOML files."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import Table, check_table, from_fields
from jaxbandit.core.declare import checked, parameters
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.paths import check_known
from jaxbandit.core.types import FilePath
from jaxbandit.engine import InitialDesign
from jaxbandit.study.specify.grid import runs_of
from jaxbandit.study.specify.keep import Keep
from jaxbandit.study.specify.model import Model
from jaxbandit.study.specify.parts import Learner, Parts, Row
from jaxbandit.study.specify.study import PLAIN, Study

OWN = (*PLAIN, "parameters", "metrics")
OF_ALGORITHM = ("sweep", "zipped", "model", "feedback", "informed")  # what an algorithm's table holds beside its type and fields


@checked
def from_toml(path: FilePath, *, precision: str | None = None) -> Study:
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


def from_table(table: Table, *, precision: str | None = None) -> Study:
    """Return the study that a table describes, as :meth:`Study.table` writes it; raises ``InvalidArgument`` on what no study has."""

    def model_of(table: object, where: str) -> Model:
        model = from_fields(Model, table, where)
        return model if precision is None else dataclasses.replace(model, precision=precision)

    check_table(table, "study")
    for name in table:
        check_known(name, [*OWN, "keep", "initial", "model", "problem", "delay", "algorithm", "run"], name, "a study has")
    if "name" not in table:
        raise InvalidArgument("name: there is none; give the study a name")
    for name in ("problem", "algorithm"):
        if not table.get(name):
            raise InvalidArgument(f"{name}: there is none; add a table [{name}.LABEL] with its type")
    for name in ("problem", "delay", "algorithm"):
        for label, item in check_table(table.get(name, {}), name).items():
            check_table(item, f"{name}.{label}")
    given = {name: table[name] for name in OWN if name in table}
    for parameter in parameters(Study):
        if parameter.name in given and parameter.check is not None:
            parameter.check(parameter.name, given[parameter.name])
    keep = from_fields(Keep, table.get("keep", {}), "keep")
    initial = from_fields(InitialDesign, table.get("initial", {}), "initial")
    learners = {label: _learner(item, f"algorithm.{label}", model_of) for label, item in table["algorithm"].items()}
    model = model_of(table.get("model", {}), "model")
    given_rows = table.get("run")
    if given_rows is not None and not (isinstance(given_rows, list) and given_rows):
        raise InvalidArgument(f"run: expected a list of tables, the runs one by one, got {short(given_rows)}")
    rows = None if given_rows is None else [from_fields(Row, row, f"run[{number}]") for number, row in enumerate(given_rows)]
    for number, row in enumerate(rows or ()):
        check_table(row.sweep, f"run[{number}].sweep")
    delays, horizon = table.get("delay", {"none": {"type": "NoDelay"}}), table.get("horizon", Study.horizon)
    runs = runs_of(Parts(table["problem"], delays, learners, model, initial, horizon), rows)
    return Study(runs=runs, keep=keep, **given)


def _learner(table: Table, where: str, model_of: Callable[[object, str], Model]) -> Learner:
    """Return what the table of an algorithm says of it and its runs."""
    own = {name: table[name] for name in OF_ALGORITHM if name in table}
    for name in own.keys() - {"zipped"}:
        check_table(own[name], f"{where}.{name}")
    for path, values in own.get("sweep", {}).items():
        if not isinstance(values, list) or not values:
            raise InvalidArgument(f"{where}.sweep.{path}: expected a list of values, got {short(values)}")
    if "zipped" in own:
        checks.boolean(f"{where}.zipped", own["zipped"])
    if "model" in own:
        own["model"] = model_of(own["model"], f"{where}.model")
    return Learner({name: value for name, value in table.items() if name not in own}, **own)
