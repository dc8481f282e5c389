"""Report of a session as one self-contained HTML file: history, beliefs, recommendation and what is under way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxbandit.core.files import prepare_file, write_whole
from jaxbandit.core.status import MESSAGES
from jaxbandit.report.markup import Markup, document, element, joined, section, table
from jaxbandit.report.vector import figure_with_values
from jaxbandit.session import Session
from jaxbandit.session.figures import history_figure

__all__ = ["write_session_report"]
__dir__ = __all__.copy  # what completion shows

MOST_ROWS = 200  # tickets in the table, the last ones


def write_session_report(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a session, which another process may hold meanwhile, and return its path.

    Args:
      directory: where the session's journal lies.
      out: path of the report, which is overwritten; default ``report.html`` in ``directory``.

    Raises:
      SessionError: when there is no session, or it cannot be read.
    """
    with Session.open(directory, read_only=True) as session:
        text = render(session)
    path = prepare_file(Path(directory) / "report.html" if out is None else out, force=True)
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def render(session: Session) -> str:
    """Return the report of a session as HTML."""
    name = session.directory.resolve().name
    sections: list[tuple[str, str, list[Markup]]] = [
        ("recommendation", "Recommendation", _recommendation(session)),
        ("history", "History", _history(session)),
        ("belief", "Beliefs", _belief(session)),
        ("pending", "Under way", _pending(session)),
        ("tickets", "Tickets", _tickets(session)),
        ("made-of", "Specification", _specification(session)),
    ]
    shown = [(key, heading, parts) for key, heading, parts in sections if parts]
    links = joined([element("a", heading, href=f"#{key}") for key, heading, _ in shown], " ")
    body = [section(key, heading, *parts) for key, heading, parts in shown]
    return document(f"{name}: session", element("h1", name), element("p", _facts(session), class_="quiet"), element("nav", links), *body)


def _facts(session: Session) -> str:
    states = session.history()["state"].values
    counts = ", ".join(f"{np.count_nonzero(states == state)} {state}" for state in ("complete", "partial", "pending", "dropped"))
    first, last = session.events[0], session.events[-1]
    return f"{len(states)} tickets: {counts}; begun {first.at}, last event {last.at} (UTC)"


def _recommendation(session: Session) -> list[Markup]:
    best, outputs = session.recommend(), session.specification.outputs
    rows = [[name, _number(best.mean[name]), _number(best.sd[name])] for name in outputs.names]
    point = [[name, _number(value)] for name, value in best.point.items()]
    how = (
        "the best posterior mean among points that are feasible with probability 0.5"
        if best.feasible
        else ("the point most likely to be feasible: none is with probability 0.5")
    )
    note = f"Probability that all constraints hold there: {best.probability_of_feasibility:.3f}. It is {how}."
    return [table(["coordinate", "value"], point), table(["output", "mean", "sd"], rows), element("p", note, class_="quiet")]


def _history(session: Session) -> list[Markup]:
    if not len(session.history()["ticket"]):
        return []
    caption = "What was measured by ticket, the best objective where all constraints were measured to hold, and the bounds."
    violations = [
        [c.name, _number(float(session.history()[f"violation of {c.name}"][-1]))] for c in session.specification.outputs.constraints
    ]
    sums = [table(["constraint", "cumulative violation"], violations)] if violations else []
    return [figure_with_values(history_figure(session.specification.outputs, session.history()), caption), *sums]


def _belief(session: Session) -> list[Markup]:
    kinds = {1: "Posterior means with bands of two standard deviations", 2: "Posterior means and standard deviations"}
    kind = kinds.get(session.specification.space.domain.dimension, "Posterior means with bands of two standard deviations, in slices")
    constrained = bool(session.specification.outputs.constraints)
    last = " The last row is the probability that all constraints hold." if constrained else ""
    caption = f"{kind}; white dots were measured, orange marks what is recommended.{last}"
    return [figure_with_values(session.plot(feasibility=constrained), caption)]


def _pending(session: Session) -> list[Markup]:
    if not session.pending:
        return [element("p", "Nothing is under way.")]
    told = {number: ", ".join(names) or "nothing yet" for number, names in session.told.items()}
    names = session.specification.space.names
    rows = [[ticket.number, *(_number(ticket.point[name]) for name in names), told[ticket.number]] for ticket in session.pending]
    return [table(["ticket", *names, "told"], rows, words=[1 + len(names)])]


def _tickets(session: Session) -> list[Markup]:
    history = session.history()
    names = [*session.specification.space.names, *session.specification.outputs.names]
    rows = [
        [int(history["ticket"][row]), str(history["state"].values[row]), *(_number(history[name].values[row].item()) for name in names)]
        for row in range(len(history["ticket"]))
    ]
    flags = [flag for flag in MESSAGES if any(int(event.body.get("status", 0)) & int(flag) for event in session.events)]
    said = [element("ul", joined([element("li", MESSAGES[flag]) for flag in flags]))] if flags else []
    hidden = [element("p", f"The first {len(rows) - MOST_ROWS} are not shown.", class_="quiet")] if len(rows) > MOST_ROWS else []
    return [*said, table(["ticket", "state", *names], rows[-MOST_ROWS:]), *hidden] if rows else []


def _specification(session: Session) -> list[Markup]:
    own = session.specification.table()
    rows = [[name, str(value)] for name, value in own.items() if name not in ("space", "key") and value is not None]
    return [table(["part", "value"], rows, words=[1])]


def _number(value: float | str) -> str:
    """Return a number in a few digits, nothing for NaN; the label of a category as it is."""
    if isinstance(value, str):
        return value
    return "" if np.isnan(value) else f"{value:.5g}"
