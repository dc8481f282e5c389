"""The commands ``session new | ask | tell | drop | status | recommend | export``, usable from shell scripts, as text or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument, decimal, whole_number
from jaxbandit.core.status import explain
from jaxbandit.session.session import Session
from jaxbandit.session.specification import read_toml
from jaxbandit.session.tickets import Ticket

WAIT = 30.0  # seconds that a command waits for others on the same session
Handler: TypeAlias = Callable[[argparse.Namespace], dict[str, Any]]
EXAMPLE = Path(__file__).parents[1] / "examples" / "experiment.toml"


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of sessions to the parser of ``session``."""
    commands = parser.add_subparsers(dest="session_command", required=True, metavar="COMMAND")

    def command(name: str, handler: Handler | None, words: str, **options: Any) -> argparse.ArgumentParser:
        own = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".", **options)
        own.set_defaults(run=handler)
        if handler is not new:
            own.add_argument("directory", type=Path, metavar="DIR", help="where the session lies")
        own.add_argument("--json", action="store_true", help="print one JSON object")
        own.add_argument("--wait", type=decimal, default=WAIT, metavar="S", help="seconds to wait for others (default %(default)s)")
        return own

    begun = command(
        "new", new, "begin a session", epilog=EXAMPLE.read_text(encoding="utf-8"), formatter_class=argparse.RawTextHelpFormatter
    )
    begun.add_argument("experiment", type=Path, metavar="EXPERIMENT.toml")
    begun.add_argument("--out", type=Path, metavar="DIR", help="where to write (default the file's name without .toml)")
    command("ask", ask, "print the next point to measure")
    told = command("tell", tell, "tell what was measured at a ticket's point, or the part that is there")
    told.add_argument("ticket", type=whole_number, metavar="TICKET")
    told.add_argument("--reward", type=decimal, action="append", metavar="X", help="value of the objective")
    told.add_argument("--constraint", action="append", metavar="X", help="value of a constraint, in order; - where it is not there yet")
    told.add_argument("--value", action="append", default=[], metavar="NAME=X", help="value of an output by its name")
    told.add_argument("--correct", action="store_true", help="replace values that were told before")
    command("drop", drop, "give a run up that failed").add_argument("ticket", type=whole_number, metavar="TICKET")
    command("status", status, "print what is under way and what has been told")
    best = command("recommend", recommend, "print the best feasible point")
    best.add_argument("--probability", type=decimal, default=0.5, metavar="P", help="least chance of feasibility (default %(default)s)")
    best.add_argument("--measured", action="store_true", help="among points that have been measured")
    command("fit", fit, "fit the model to what has been told")
    page = command("report", None, "write a self-contained HTML report")
    page.add_argument("--out", type=Path, metavar="FILE", help="default DIR/report.html")
    command("export", export, "write all events as lines of JSON").add_argument(
        "--out", type=Path, metavar="FILE", help="default DIR/events.jsonl"
    )


def run(args: argparse.Namespace, write_report: Callable[[Path, Path | None], Path]) -> None:
    """Run one command of sessions and print what it gives; ``write_report`` writes the report of a session."""
    found = {"wrote": str(write_report(args.directory, args.out))} if args.run is None else args.run(args)
    print(json.dumps(found, ensure_ascii=False) if args.json else in_words(found))


def new(args: argparse.Namespace) -> dict[str, Any]:
    """Begin the session of an experiment file."""
    specification = read_toml(args.experiment)
    directory = args.experiment.with_suffix("") if args.out is None else args.out
    with Session.begin(directory, specification) as session:
        outputs, space = session.specification.outputs, session.specification.space
        goals = [str(outputs.objective), *map(str, outputs.constraints)]
        return {"session": str(directory), "points": space.domain.size, "outputs": goals, "fingerprint": session.specification.fingerprint}


def ask(args: argparse.Namespace) -> dict[str, Any]:
    """Ask for the next point."""
    with _opened(args) as session:
        return described(session.ask())


def tell(args: argparse.Namespace) -> dict[str, Any]:
    """Tell values of a ticket."""
    values: dict[str, float] = {}
    for name, value in map(_named, args.value):
        if name in values:
            raise InvalidArgument(f"--value: {name} must be given once, got {values[name]!r} and {value!r}")
        values[name] = value
    reward, *others = args.reward or [None]
    if others:
        raise InvalidArgument(f"--reward: must be given once, got {' and '.join(map(repr, args.reward))}")
    constraints = None if args.constraint is None else [None if text == "-" else _number("--constraint", text) for text in args.constraint]
    with _opened(args) as session:
        session.tell(args.ticket, values or None, reward=reward, constraints=constraints, correct=args.correct)
        return {"ticket": args.ticket, "told": session.told[args.ticket]}


def drop(args: argparse.Namespace) -> dict[str, Any]:
    """Give a ticket up."""
    with _opened(args) as session:
        session.drop(args.ticket)
        return {"ticket": args.ticket, "state": "dropped"}


def status(args: argparse.Namespace) -> dict[str, Any]:
    """Say what is under way."""
    with _opened(args, read_only=True) as session:
        history = session.history()
        states, best = history["state"].values, history["best_so_far"].values
        counts = {state: int(np.count_nonzero(states == state)) for state in ("complete", "partial", "pending", "dropped")}
        found: dict[str, Any] = {"session": str(args.directory), "tickets": len(states), **counts}
        found["best so far"] = float(best[-1]) if len(best) and np.isfinite(best[-1]) else None
        return found | {"under way": [described(ticket) | {"told": session.told[ticket.number]} for ticket in session.pending]}


def recommend(args: argparse.Namespace) -> dict[str, Any]:
    """Recommend a point."""
    with _opened(args, read_only=True) as session:
        return dataclasses.asdict(session.recommend(args.probability, measured=args.measured))


def fit(args: argparse.Namespace) -> dict[str, Any]:
    """Fit the model."""
    with _opened(args) as session:
        return {"model": session.fit().table()}


def export(args: argparse.Namespace) -> dict[str, Any]:
    """Write the events."""
    with _opened(args, read_only=True) as session:
        return {"wrote": str(session.export(args.out)), "events": len(session.events)}


def described(ticket: Ticket) -> dict[str, Any]:
    """Return a ticket as plain values."""
    said = explain(int(ticket.status))
    own = {"ticket": ticket.number, "round": ticket.round, "index": ticket.index, "point": ticket.point, "scaled": ticket.scaled}
    return own if said == "ok" else own | {"note": said}


def in_words(found: dict[str, Any], indent: str = "") -> str:
    """Return plain values as lines of text, names on the left."""
    width = max((len(str(name)) for name in found), default=0)
    lines: list[str] = []
    for name, value in found.items():
        nested = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
        if isinstance(value, dict) or any(isinstance(item, dict) for item in nested):
            lines += [f"{indent}{name}", *(in_words(item, indent + "  ") for item in nested)]
            continue
        text = ", ".join(map(str, value)) or "none" if isinstance(value, list) else f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"{indent}{name!s:{width}s}  {text}")
    return "\n".join(line for line in lines if line)


def _opened(args: argparse.Namespace, *, read_only: bool = False) -> Session:
    return Session.open(args.directory, read_only=read_only, wait=args.wait)


def _named(text: str) -> tuple[str, float]:
    """Return the name and the number of ``NAME=X``."""
    name, equals, number = text.rpartition("=")
    if not equals or not name:
        raise InvalidArgument(f"--value: must be NAME=X, got {text!r}")
    return name.strip(), _number("--value", number)


def _number(option: str, text: str) -> float:
    try:
        return decimal(text)
    except ValueError as error:
        raise InvalidArgument(f"{option}: must be a number, got {text!r}") from error
