"""Commands of sessions: ``python -m jaxbandit session new EXPERIMENT.toml``, then ``ask DIR``, ``tell DIR TICKET`` and more."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jaxbandit.core.cache import enable_cache
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import digest
from jaxbandit.core.status import explain
from jaxbandit.session import Session, Ticket, read_toml
from jaxbandit.session.journal import WAIT

EXPERIMENT = Path(__file__).parents[1] / "examples" / "experiment.toml"
READING = ("status", "recommend", "export")  # commands that change nothing
Said: TypeAlias = dict[str, object]


def add_session_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of sessions to the parser of ``session``."""
    commands = parser.add_subparsers(dest="session_command", required=True, metavar="COMMAND")

    def command(name: str, words: str, **options: Any) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".", **options)
        if name != "new":
            added.add_argument("directory", type=Path, metavar="DIR", help="where the session lies")
        added.add_argument("--json", action="store_true", help="print one JSON object")
        added.add_argument("--wait", type=float, default=WAIT, metavar="S", help="seconds to wait for others (default %(default)s)")
        return added

    new = command("new", "begin a session", epilog=EXPERIMENT.read_text(encoding="utf-8"), formatter_class=argparse.RawTextHelpFormatter)
    new.add_argument("experiment", type=Path, metavar="EXPERIMENT.toml")
    new.add_argument("--out", type=Path, metavar="DIR", help="where to write (default the file's name without .toml)")
    command("ask", "print the next point to measure")
    tell = command("tell", "tell what was measured at a ticket's point, or the part that is there")
    tell.add_argument("ticket", type=int, metavar="TICKET")
    tell.add_argument("--reward", type=decimal, action="append", metavar="X", help="value of the objective")
    words = "value of a constraint, in order; - where it is not there yet"
    tell.add_argument("--constraint", type=number_or_none, action="append", metavar="X", help=words)
    tell.add_argument("--value", type=named_number, action="append", default=[], metavar="NAME=X", help="value of an output by its name")
    tell.add_argument("--correct", action="store_true", help="replace values that were told before")
    command("drop", "give a run up that failed").add_argument("ticket", type=int, metavar="TICKET")
    command("status", "print what is under way and what has been told")
    best = command("recommend", "print the best feasible point")
    best.add_argument("--probability", type=float, default=0.5, metavar="P", help="least chance of feasibility (default %(default)s)")
    best.add_argument("--measured", action="store_true", help="among points that have been measured")
    command("fit", "fit the model to what has been told")
    for name, words, file in (
        ("report", "write a self-contained HTML report", "report.html"),
        ("export", "write all events as lines of JSON", "events.jsonl"),
    ):
        command(name, words).add_argument("--out", type=Path, metavar="FILE", help=f"default DIR/{file}")


def number_or_none(text: str) -> float | None:
    """Return the number that a text writes, ``None`` for ``-``."""
    return None if text == "-" else decimal(text)


def decimal(text: str) -> float:
    """Return the number that a text writes; Python reads ``1_0`` as 10, which a user of a plant does not."""
    if "_" in text:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return float(text)


def named_number(text: str) -> tuple[str, float]:
    """Return the name and the number of ``NAME=X``."""
    name, _, number = text.rpartition("=")
    if not name.strip():
        raise argparse.ArgumentTypeError(f"must be NAME=X, got {text!r}")
    return name.strip(), decimal(number)


def given_once(words: str, values: Sequence[float]) -> float:
    """Return the one value of an option; raise ``InvalidArgument`` on several, of which one would win."""
    if len(values) > 1:
        raise InvalidArgument(f"{words} must be given once, got {' and '.join(map(repr, values))}")
    return values[0]


def session(args: argparse.Namespace) -> None:
    """Run a command on a session: the commands ``session ...``."""
    from jaxbandit.report.session import write_session_report

    enable_cache()
    said: Said
    if args.session_command == "new":
        specification = read_toml(args.experiment)
        directory, outputs = args.experiment.with_suffix("") if args.out is None else args.out, specification.outputs
        Session.begin(directory, specification).close()
        said = {"session": str(directory), "points": specification.space.domain.size}
        said |= {"outputs": list(map(str, (outputs.objective, *outputs.constraints))), "fingerprint": digest(specification.table())}
    elif args.session_command == "report":
        said = {"wrote": str(write_session_report(args.directory, args.out))}
    else:
        with Session.open(args.directory, read_only=args.session_command in READING, wait=args.wait) as session:
            said = answer(session, args)
    print(json.dumps(said, ensure_ascii=False) if args.json else in_lines(said))


def answer(session: Session, args: argparse.Namespace) -> Said:
    """Return what a command on an open session gives, as plain values."""
    match args.session_command:
        case "ask":
            return described_ticket(session.ask())
        case "tell":
            values = {name: given_once(f"--value: {name}", [x for other, x in args.value if other == name]) for name, _ in args.value}
            reward = given_once("--reward:", args.reward) if args.reward else None
            session.tell(args.ticket, values or None, reward=reward, constraints=args.constraint, correct=args.correct)
            return {"ticket": args.ticket, "told": session.told[args.ticket]}
        case "drop":
            session.drop(args.ticket)
            return {"ticket": args.ticket, "state": "dropped"}
        case "status":
            history = session.history()
            counts = Counter(history["state"].values.tolist())
            numbers = {state: counts[state] for state in ("complete", "partial", "pending", "dropped")}
            best = history["best_so_far"].dropna("ticket").values.tolist()
            waiting = [described_ticket(ticket) | {"told": session.told[ticket.number]} for ticket in session.pending]
            summary = {"best so far": best[-1] if best else None, "under way": waiting}
            return {"session": str(args.directory), "tickets": counts.total(), **numbers, **summary}
        case "recommend":
            return dataclasses.asdict(session.recommend(args.probability, measured=args.measured))
        case "fit":
            return {"model": session.fit().table()}
        case _:
            return {"wrote": str(session.export(args.out)), "events": len(session.events)}


def described_ticket(ticket: Ticket) -> Said:
    """Return a ticket as plain values."""
    said = {"ticket": ticket.number} | {name: getattr(ticket, name) for name in ("round", "index", "point")}
    return said | ({"note": explain(int(ticket.status))} if ticket.status else {})


def in_lines(said: Said, indent: str = "") -> str:
    """Return plain values as lines of text, names on the left."""
    width = max(map(len, said), default=0)
    lines: list[str] = []
    for name, value in said.items():
        nested = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        if nested:
            lines += [f"{indent}{name}", *(in_lines(item, indent + "  ") for item in nested)]
            continue
        text = ", ".join(map(str, value)) or "none" if isinstance(value, list) else f"{value:.6g}" if isinstance(value, float) else value
        lines.append(f"{indent}{name:{width}s}  {text}")
    return "\n".join(line for line in lines if line)
