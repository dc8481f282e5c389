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
from jaxbandit.session.state import Ticket

WAIT = 30.0  # seconds that a command waits for others on the same session
READING = ("status", "recommend", "export")  # commands that change nothing
EXAMPLE = Path(__file__).parents[1] / "examples" / "experiment.toml"
Said: TypeAlias = dict[str, object]


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of sessions to the parser of ``session``."""
    commands = parser.add_subparsers(dest="session_command", required=True, metavar="COMMAND")

    def command(name: str, words: str, **options: Any) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".", **options)
        if name != "new":
            added.add_argument("directory", type=Path, metavar="DIR", help="where the session lies")
        added.add_argument("--json", action="store_true", help="print one JSON object")
        added.add_argument("--wait", type=decimal, default=WAIT, metavar="S", help="seconds to wait for others (default %(default)s)")
        return added

    new = command("new", "begin a session", epilog=EXAMPLE.read_text(encoding="utf-8"), formatter_class=argparse.RawTextHelpFormatter)
    new.add_argument("experiment", type=Path, metavar="EXPERIMENT.toml")
    new.add_argument("--out", type=Path, metavar="DIR", help="where to write (default the file's name without .toml)")
    command("ask", "print the next point to measure")
    tell = command("tell", "tell what was measured at a ticket's point, or the part that is there")
    tell.add_argument("ticket", type=whole_number, metavar="TICKET")
    tell.add_argument("--reward", type=decimal, action="append", metavar="X", help="value of the objective")
    tell.add_argument("--constraint", action="append", metavar="X", help="value of a constraint, in order; - where it is not there yet")
    tell.add_argument("--value", action="append", default=[], metavar="NAME=X", help="value of an output by its name")
    tell.add_argument("--correct", action="store_true", help="replace values that were told before")
    command("drop", "give a run up that failed").add_argument("ticket", type=whole_number, metavar="TICKET")
    command("status", "print what is under way and what has been told")
    best = command("recommend", "print the best feasible point")
    best.add_argument("--probability", type=decimal, default=0.5, metavar="P", help="least chance of feasibility (default %(default)s)")
    best.add_argument("--measured", action="store_true", help="among points that have been measured")
    command("fit", "fit the model to what has been told")
    for name, words, file in (
        ("report", "write a self-contained HTML report", "report.html"),
        ("export", "write all events as lines of JSON", "events.jsonl"),
    ):
        command(name, words).add_argument("--out", type=Path, metavar="FILE", help=f"default DIR/{file}")


def run(args: argparse.Namespace, write_report: Callable[[Path, Path | None], Path]) -> None:
    """Run one command of sessions and print what it gives; ``write_report`` writes the report of a session."""
    name = args.session_command
    if name == "new":
        said = _new(args)
    elif name == "report":
        said = {"wrote": str(write_report(args.directory, args.out))}
    else:
        values = _values(args) if name == "tell" else {}
        with Session.open(args.directory, read_only=name in READING, wait=args.wait) as session:
            said = _tell(session, args, values) if name == "tell" else COMMANDS[name](session, args)
    print(json.dumps(said, ensure_ascii=False) if args.json else _in_words(said))


def _new(args: argparse.Namespace) -> Said:
    specification = read_toml(args.experiment)
    directory = args.experiment.with_suffix("") if args.out is None else args.out
    Session.begin(directory, specification).close()
    goals = [str(specification.outputs.objective), *map(str, specification.outputs.constraints)]
    points = specification.space.domain.size
    return {"session": str(directory), "points": points, "outputs": goals, "fingerprint": specification.fingerprint}


def _values(args: argparse.Namespace) -> dict[str, Any]:
    """Return the values that ``tell`` is given, as arguments of ``Session.tell``."""
    values: dict[str, float] = {}
    for text in args.value:
        name, equals, number = text.rpartition("=")
        if not equals or not name:
            raise InvalidArgument(f"--value: must be NAME=X, got {text!r}")
        name, value = name.strip(), _number("--value", number)
        if name in values:
            raise InvalidArgument(f"--value: {name} must be given once, got {values[name]!r} and {value!r}")
        values[name] = value
    reward, *others = args.reward or [None]
    if others:
        raise InvalidArgument(f"--reward: must be given once, got {' and '.join(map(repr, args.reward))}")
    constraints = None if args.constraint is None else [None if text == "-" else _number("--constraint", text) for text in args.constraint]
    return {"values": values or None, "reward": reward, "constraints": constraints}


def _number(option: str, text: str) -> float:
    try:
        return decimal(text)
    except ValueError as error:
        raise InvalidArgument(f"{option}: must be a number, got {text!r}") from error


def _tell(session: Session, args: argparse.Namespace, values: dict[str, Any]) -> Said:
    session.tell(args.ticket, correct=args.correct, **values)
    return {"ticket": args.ticket, "told": session.told[args.ticket]}


def _drop(session: Session, args: argparse.Namespace) -> Said:
    session.drop(args.ticket)
    return {"ticket": args.ticket, "state": "dropped"}


def _status(session: Session, args: argparse.Namespace) -> Said:
    history = session.history()
    states, best = history["state"].values, history["best_so_far"].values
    counts = {state: int(np.count_nonzero(states == state)) for state in ("complete", "partial", "pending", "dropped")}
    known = float(best[-1]) if len(best) and np.isfinite(best[-1]) else None
    waiting = [_described(ticket) | {"told": session.told[ticket.number]} for ticket in session.pending]
    return {"session": str(args.directory), "tickets": len(states), **counts, "best so far": known, "under way": waiting}


def _described(ticket: Ticket) -> Said:
    """Return a ticket as plain values."""
    said = {"ticket": ticket.number} | {name: getattr(ticket, name) for name in ("round", "index", "point", "scaled")}
    return said | ({"note": explain(int(ticket.status))} if ticket.status else {})


COMMANDS: dict[str, Callable[[Session, argparse.Namespace], Said]] = {
    "ask": lambda session, args: _described(session.ask()),
    "drop": _drop,
    "status": _status,
    "recommend": lambda session, args: dataclasses.asdict(session.recommend(args.probability, measured=args.measured)),
    "fit": lambda session, args: {"model": session.fit().table()},
    "export": lambda session, args: {"wrote": str(session.export(args.out)), "events": len(session.events)},
}


def _in_words(said: Said, indent: str = "") -> str:
    """Return plain values as lines of text, names on the left."""
    width = max(map(len, said), default=0)
    lines: list[str] = []
    for name, value in said.items():
        nested = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        if nested:
            lines += [f"{indent}{name}", *(_in_words(item, indent + "  ") for item in nested)]
            continue
        text = ", ".join(map(str, value)) or "none" if isinstance(value, list) else f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"{indent}{name:{width}s}  {text}")
    return "\n".join(line for line in lines if line)
