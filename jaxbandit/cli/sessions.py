"""Commands of sessions: ``python -m jaxbandit session COMMAND``."""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import datetime
import importlib.util
import json
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument, integer
from jaxbandit.core.codec import digest, from_plain
from jaxbandit.core.doors import decimal
from jaxbandit.core.status import explain
from jaxbandit.core.text import aligned
from jaxbandit.delays import Delay
from jaxbandit.host.files import prepare_file, write_whole
from jaxbandit.session import Session, Settled, Settlement, Ticket, forecast, read_toml
from jaxbandit.session.history import FAILURE
from jaxbandit.session.journal import WAIT, salvage_journal
from jaxbandit.session.quantities import STATES, counts_of, readable

EXPERIMENT = Path(__file__).parents[1] / "examples" / "experiment.toml"
FIGURE_FORMATS = ("png", "pdf", "svg")
Reply: TypeAlias = dict[str, object]
"""Answer of a command, plain values by name."""


def add_style(parser: argparse.ArgumentParser) -> None:
    """Add the option for the style of figures."""
    words = "paper: for a column of a page, in 8 pt (default %(default)s)"
    parser.add_argument("--style", choices=("screen", "paper"), default="screen", help=words)


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

    example = {"epilog": EXPERIMENT.read_text(encoding="utf-8"), "formatter_class": argparse.RawDescriptionHelpFormatter}
    new = command("new", "begin a session", **example)
    new.add_argument("experiment", type=Path, metavar="EXPERIMENT.toml")
    new.add_argument("--out", type=Path, metavar="DIR", help="where to write (default the file's name without .toml)")
    new.add_argument("--history", type=Path, metavar="FILE", help="tell what was measured before, the rows of a CSV file, as tell --csv")
    words = "a session of the same axes and outputs, whose posterior means are prior means here; may be given several times"
    new.add_argument("--similar", type=Path, action="append", default=[], metavar="DIR", help=words)
    new.add_argument("--example", action="store_true", help="write the example below to EXPERIMENT.toml, to start from, and stop")
    ask = command("ask", "print the next point to measure")
    words = "ask for nothing where the recommended point is within this LOSS of the best one, in the objective's units"
    ask.add_argument("--within", type=float, metavar="LOSS", help=words)
    words = "the probability of that from which on nothing is asked for (default %(default)s)"
    ask.add_argument("--probability", type=float, default=0.95, metavar="P", help=words)
    ask.add_argument("-n", "--count", type=int, metavar="N", help="ask for the next N points at once")
    words = "value that an axis with context = true has now; once for each such axis"
    ask.add_argument("--context", type=partial(named, "VALUE"), action="append", default=[], metavar="NAME=VALUE", help=words)
    tell = command("tell", "tell what was measured at a ticket's point, or the part that is there; or at other points, from a file")
    tell.add_argument("ticket", type=int, nargs="?", metavar="TICKET")
    words = "tell rows: of tickets by a column ticket, or of other points by one for each axis; values are blank where they are not there"
    tell.add_argument("--csv", dest="history", type=Path, metavar="FILE", help=words)
    for of_rows in (new, tell):
        of_rows.add_argument("--ignore", action="append", default=[], metavar="NAME", help="a column of the file to leave out")
        words = "what to do with a point between those of the axes: round takes the nearest (default %(default)s)"
        of_rows.add_argument("--off-grid", choices=("refuse", "round"), default="refuse", help=words)
        words = "what to do with a point beyond the ends of an axis: drop leaves its row out (default %(default)s)"
        of_rows.add_argument("--outside", choices=("refuse", "drop"), default="refuse", help=words)
    tell.add_argument("--reward", type=float, action="append", metavar="X", help="value of the objective")
    words = "value of a constraint, in order; - where it is not there yet"
    tell.add_argument(
        "--constraint",
        dest="constraints",
        type=lambda text: None if text == "-" else decimal(text),
        action="append",
        metavar="X",
        help=words,
    )
    tell.add_argument(
        "--value",
        dest="values",
        type=partial(named, "X"),
        action="append",
        default=[],
        metavar="NAME=X",
        help="value of an output by its name",
    )
    tell.add_argument("--correct", action="store_true", help="replace values that were told before")
    fail = command("fail", "say that a run failed, from which the session learns where runs fail")
    fail.add_argument("ticket", type=int, metavar="TICKET")
    fail.add_argument("--retry", action="store_true", help="it was an accident: ask for the point again, and learn nothing from it")
    fail.add_argument("--correct", action="store_true", help="replace what was said before of how the run ended")
    command("drop", "give a run up that was never made").add_argument("ticket", type=int, metavar="TICKET")
    status = command("status", "print how far the session is and what is under way")
    words = "print how likely the recommended point is within this LOSS of the best one, in the objective's units"
    status.add_argument("--within", type=float, metavar="LOSS", help=words)
    command("list", "print all tickets: when they were asked and told, and which values are blank")
    history = command("history", "print what was measured, with the best allowed value so far")
    history.add_argument("--csv", dest="out", type=Path, metavar="FILE", help="write it, with all tickets, as CSV")
    history.add_argument("--force", action="store_true", help="replace a file that is there")
    best = command("recommend", "print the best measured point where the constraints hold")
    best.add_argument("--probability", type=float, default=0.5, metavar="P", help="least chance of feasibility (default %(default)s)")
    best.add_argument(
        "--context", type=partial(named, "VALUE"), action="append", default=[], metavar="NAME=VALUE", help="context of the point"
    )
    best.add_argument("--anywhere", action="store_true", help="what is believed of points that nobody has measured, too")
    ahead = command("forecast", "print what further evaluations bring, by algorithm")
    ahead.add_argument("evaluations", type=int, metavar="N", help="number of further evaluations")
    ahead.add_argument("--in-flight", type=int, nargs="+", default=[1], metavar="Q", help="numbers of runs under way at once (default 1)")
    words = "delays of values in rounds, each a model with its numbers as in files, such as NoDelay 'Poisson mean=3' (default none)"
    ahead.add_argument("--delay", nargs="+", metavar="MODEL", help=words)
    ahead.add_argument("--trials", type=int, default=500, metavar="N", help="number of futures drawn (default %(default)s)")
    ahead.add_argument("--out", type=Path, metavar="FILE", help="a file to draw it into, too")
    command("check", "print whether the model predicts what was measured, and which values look mistaken")
    command("why", "print why a ticket's point was asked for").add_argument("ticket", type=int, metavar="TICKET")
    command("fit", "fit the model to what has been told")
    for name, words, file in (
        ("plot", "draw what is believed and what was measured", "belief.png"),
        ("report", "write a self-contained HTML report", "report.html"),
        ("export", "write all events as lines of JSON", "events.jsonl"),
    ):
        added = command(name, words)
        added.add_argument("--out", type=Path, metavar="FILE", help=f"default DIR/{file}")
        if name == "report":
            words = "forecast N further evaluations in it, too, which takes a minute"
            added.add_argument("--forecast", type=int, metavar="N", help=words)
        for drawing in (added, ahead) if name == "plot" else ():
            drawing.add_argument("--format", choices=FIGURE_FORMATS, help="of the figure (default as FILE ends, or png)")
            add_style(drawing)
    added.add_argument("--optuna", metavar="STORAGE", help="write the tickets as trials of Optuna, to a journal FILE or a database's URL")
    command("salvage", "go on with the events before the damage to a journal; its files are kept beside it")
    command("watch", "keep the report (DIR/report.html) up to date while the session goes on")


def named(kind: str, text: str) -> tuple[str, Any]:
    """Return name and number of ``NAME=X``, or number or label of ``NAME=VALUE``."""
    name, _, given = text.rpartition("=") if kind == "X" else text.partition("=")
    if not name.strip() or not (given.strip() or kind == "X"):
        raise argparse.ArgumentTypeError(f"must be NAME={kind}, got {text!r}")
    try:
        return name.strip(), decimal(given)
    except argparse.ArgumentTypeError:
        # A context may be a category.
        if kind == "X":
            raise
        return name.strip(), given.strip()


def delay_model(text: str) -> Delay:
    """Return the delay model of a text such as ``"Poisson mean=3"``."""
    kind, _, fields = text.strip().partition(" ")
    try:
        table = tomllib.loads("\n".join(fields.split()))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"--delay: must be a model with its numbers, such as 'Poisson mean=3', got {text!r}") from error
    found: Delay = from_plain(Delay, {**table, "type": kind}, "--delay")
    return found


def given_once(words: str, values: Sequence[float]) -> float:
    """Return an option's value, or raise ``InvalidArgument`` on several."""
    if len(values) > 1:
        raise InvalidArgument(f"{words} must be given once, got {' and '.join(map(repr, values))}")
    return values[0]


def session(args: argparse.Namespace) -> None:
    """Run a command on a session: the commands ``session ...``."""
    said: Reply | str
    labels: Mapping[str, str] = {}
    match args.session_command:
        case "new" if args.example:
            path = prepare_file(args.experiment)
            write_whole(path, lambda temporary: temporary.write_bytes(EXPERIMENT.read_bytes()))
            said = {"wrote": str(path)}
        case "new":
            if not args.experiment.exists():
                raise InvalidArgument(
                    f"experiment: cannot read {str(args.experiment)!r}: it is not there; --example writes one to start from"
                )
            specification = read_toml(args.experiment)
            directory, outputs = args.experiment.with_suffix("") if args.out is None else args.out, specification.outputs
            Session.begin(directory, specification, args.history, **how_of(args), similar=args.similar).close()
            said = {"session": str(directory), "points": specification.space.choices}
            said |= {"similar to": list(map(str, args.similar))} if args.similar else {}
            said |= {"outputs": list(map(str, (outputs.objective, *outputs.constraints))), "fingerprint": digest(specification.table())}
        case "salvage":
            events, aside = salvage_journal(args.directory, wait=args.wait)
            said = {"events": events, "damaged files": None if aside is None else str(aside)}
        case "report":
            from jaxbandit.report.session import write_session_report

            if args.forecast is not None:
                integer("--forecast", args.forecast, least=1, most=10_000)
            said = {"wrote": str(write_session_report(args.directory, args.out, evaluations=args.forecast))}
        case "watch":
            from jaxbandit.report.watching import watch_session

            # Ctrl-C is how a user stops watching.
            with contextlib.suppress(KeyboardInterrupt):
                watch_session(args.directory, say=partial(print, flush=True))
            return
        case _:
            reading = ("status", "list", "history", "recommend", "forecast", "check", "why", "plot", "export")
            with Session.open(args.directory, read_only=args.session_command in reading, wait=args.wait) as session:
                said, space, outputs = answer(session, args), session.specification.space, session.specification.outputs
                labels = {name: space.label(name) for name in space.names} | {name: outputs.label(name) for name in outputs.names}
    print(said if isinstance(said, str) else json.dumps(said, ensure_ascii=False) if args.json else in_lines(said, labels))


def how_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options on rows of a file, as arguments of sessions."""
    return {name: getattr(args, name) for name in ("off_grid", "outside", "ignore")}


def answer(session: Session, args: argparse.Namespace) -> Reply | str:
    """Return the result of a command on an open session."""
    match args.session_command:
        case "ask":
            stop = None if args.within is None else Settled(args.within, args.probability)
            asked = session.ask(1 if args.count is None else args.count, stop=stop, context=dict(args.context) or None)
            if not asked:
                return described_settlement(session.settlement)
            return described_ticket(*asked) if args.count is None else {"tickets": list(map(described_ticket, asked))}
        case "tell" if args.history is not None:
            if args.ticket is not None or args.values or args.reward or args.constraints:
                raise InvalidArgument("--csv: the rows of the file are told; leave the ticket and its values out")
            tickets = session.tell_all(args.history, **how_of(args), correct=args.correct)
            return {"tickets": [ticket.number for ticket in tickets]}
        case "tell":
            if args.ticket is None:
                raise InvalidArgument("ticket: say which, or --csv FILE with a row for each")
            values = {name: given_once(f"--value: {name}", [x for other, x in args.values if other == name]) for name, _ in args.values}
            reward = given_once("--reward:", args.reward) if args.reward else None
            session.tell(args.ticket, values or None, reward=reward, constraints=args.constraints, correct=args.correct)
            return {"ticket": args.ticket, "told": session.told[args.ticket]}
        case "drop":
            session.drop(args.ticket)
            return {"ticket": args.ticket, "state": "dropped"}
        case "fail":
            session.tell(args.ticket, failed="retry" if args.retry else True, correct=args.correct)
            return {"ticket": args.ticket, "state": "retry" if args.retry else "failed"}
        case "status":
            history = session.columns()
            numbers = counts_of(history["state"].tolist())
            best = history["best_so_far"][np.isfinite(history["best_so_far"])].tolist()
            waiting = [described_ticket(ticket) | {"told": session.told[ticket.number]} for ticket in session.pending]
            summary = {"best so far": best[-1] if best else None, "under way": waiting}
            summary |= {} if args.within is None else described_settlement(session.settled(args.within))
            summary |= {"learner changed at ticket": number} if (number := session.learner_changed_at) else {}
            return {"session": str(args.directory), "tickets": len(history["state"]), **numbers, **summary}
        case "list":
            names = ("ticket", "state", *session.specification.space.names, *session.specification.outputs.names)
            return {"tickets": ticket_rows(session.columns(), [*names, "asked_at", "told_at"])}
        case "history":
            return history_of(session, args)
        case "plot":
            path = args.directory / f"belief.{args.format or 'png'}" if args.out is None else args.out
            return drawn(partial(session.plot, feasibility=bool(session.specification.outputs.constraints)), path, args)
        case "recommend":
            return dataclasses.asdict(session.recommend(args.probability, anywhere=args.anywhere, context=dict(args.context) or None))
        case "forecast":
            delays = None if args.delay is None else {text: delay_model(text) for text in args.delay}
            found = forecast(session, args.evaluations, in_flight=args.in_flight, delays=delays, trials=args.trials)
            said: Reply = {"in words": found.said, "forecast": found.table.to_dict("records")}
            said["recommended"] = dict(zip(("algorithm", "in flight"), found.recommended, strict=True))
            return said if args.out is None else said | drawn(found.plot, args.out, args)
        case "check":
            checked = session.check()
            if not args.json:
                return str(checked)
            rows = [
                {"output": name, "values": int(checked.table["value"].sel(output=name).count()), "inside 80%": inner, "inside 95%": outer}
                | {"drift": checked.drift[name]}
                for name, (inner, outer) in checked.inside.items()
            ]
            return {"mistakes": list(checked.flags), "outputs": rows, "least expected tickets": list(checked.least_expected)}
        case "why":
            why = session.why(args.ticket)
            if not args.json:
                return why.text
            plain: Reply = {"ticket": why.ticket, "term": why.term, "text": why.text, "nearest": dict(why.nearest)}
            plain |= {"belief": why.belief and dataclasses.asdict(why.belief), "best_ticket": why.best and why.best[0]}
            return plain | {"without_runs_under_way": why.alone}
        case "fit":
            return {"model": session.fit().table()}
        case _:
            if args.optuna is None:
                return {"wrote": str(session.export(args.out)), "events": len(session.events)}
            if importlib.util.find_spec("optuna") is None:
                raise InvalidArgument("--optuna: Optuna is not installed; pip install 'jaxbandit[optuna]'")
            from jaxbandit.optuna import export

            study = export(session, args.optuna)
            return {"wrote": args.optuna, "study": study.study_name, "trials": len(study.trials)}


def history_of(session: Session, args: argparse.Namespace) -> Reply:
    """Return measurements by ticket, or write all tickets as CSV."""
    history, outputs = session.columns(), session.specification.outputs
    failed = [FAILURE] if "failed" in history["state"] else []
    measured = [*session.specification.space.names, *outputs.names, *failed]
    measured += ["best_so_far", *(f"violation of {c.name}" for c in outputs.constraints)]
    if args.out is None:
        is_told = np.isfinite([history[name] for name in outputs.names]).any(axis=0)
        return {"measured": ticket_rows({name: column[is_told] for name, column in history.items()}, ["ticket", *measured])}
    names = ["ticket", "state", *measured, "asked_at", "told_at"]
    path, rows = prepare_file(args.out, force=args.force), ticket_rows(history, names)

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows({**row, "state": STATES[str(row["state"])]} for row in rows)

    write_whole(path, write)
    return {"wrote": str(path), "tickets": len(rows)}


def ticket_rows(history: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Reply]:
    """Return columns as a row for each ticket, ``None`` where empty."""
    columns = [history[name] for name in names]
    columns = [(column.astype("datetime64[s]") if column.dtype.kind == "M" else column).tolist() for column in columns]

    def plain(value: object) -> object:
        return None if value != value else str(value) if isinstance(value, datetime.datetime) else value

    return [dict(zip(names, map(plain, row), strict=True)) for row in zip(*columns, strict=True)]


def drawn(draw: Callable[[], Any], path: Path, args: argparse.Namespace) -> Reply:
    """Write a figure into a file, and return path and paper's caption."""
    # Matplotlib is slow to load.
    from matplotlib.backend_bases import FigureCanvasBase

    from jaxbandit.host.figures import caption_of, style, write_figure

    kind = args.format or path.suffix[1:]
    if kind not in (known := FigureCanvasBase.get_supported_filetypes()):
        raise InvalidArgument(f"out: must end in one of {', '.join(f'.{kind}' for kind in known)}, got {str(path)!r}")
    with style(args.style):
        figure = draw()
        caption = {"caption": caption_of(figure)} if args.style == "paper" else {}
        prepare_file(path, force=True)
        write_whole(path, partial(write_figure, figure, kind=kind))
    return {"wrote": str(path), **caption}


def described_settlement(found: Settlement | None) -> Reply:
    """Return how sure a session is of its recommendation, as plain values."""
    return {} if found is None else {"settled": {"within": found.within, "probability": found.probability, "expected_gain": found.gain}}


def described_ticket(ticket: Ticket) -> Reply:
    """Return a ticket as plain values."""
    said = {"ticket": ticket.number} | {name: getattr(ticket, name) for name in ("round", "index", "point")}
    return said | ({"note": explain(int(ticket.status))} if ticket.status else {})


def in_lines(said: Reply, labels: Mapping[str, str], indent: str = "") -> str:
    """Return plain values as lines of text, with names on the left."""
    known = {
        **STATES,
        "asked_at": "asked (UTC)",
        "told_at": "told (UTC)",
        "best_so_far": "best so far",
        "sd": "standard deviation",
        "expected_gain": "expected gain of a further run",
        "probability_of_feasibility": "chance that all constraints hold",
        **labels,
    }
    shown = {known.get(name, name): value for name, value in said.items() if name not in ("index", "round", "fingerprint")}
    width, lines = max(map(len, shown), default=0), list[str]()
    for name, value in shown.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) and not isinstance(item.get("point"), dict) for item in value):
            rows = [{**row, "state": STATES[row["state"]]} if "state" in row else row for row in value]
            cells = [[readable(cell) or "-" for cell in row.values()] for row in rows]
            lines.append(aligned([[known.get(head, head) for head in value[0]], *cells], width=shutil.get_terminal_size().columns))
        elif nested := [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]:
            lines += [f"{indent}{name}", *(in_lines(item, labels, indent + "  ") for item in nested)]
        else:
            text = (", ".join(map(str, value)) or "none") if isinstance(value, list) else readable(value) or "none"
            lines.append(f"{indent}{name:{width}s}  {text}")
    return "\n".join(line for line in lines if line)
