"""Report of a session as one self-contained HTML file: history, beliefs, recommendation and what is under way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxbandit.core.files import prepare_file, write_whole
from jaxbandit.core.status import MESSAGES
from jaxbandit.report.html import Picture, Section, page
from jaxbandit.session import Session
from jaxbandit.session.figures import history_figure

__all__ = ["write_session_report"]
__dir__ = __all__.copy  # what completion shows


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
    history, best, parts, told = session.history(), session.recommend(), session.specification, session.told
    outputs, names, states = parts.outputs, parts.space.names, history["state"].values
    counts = ", ".join(f"{np.count_nonzero(states == state)} {state}" for state in ("complete", "partial", "pending", "dropped"))
    first, last = session.events[0], session.events[-1]
    waiting = [
        [ticket.number, *(_number(ticket.point[name]) for name in names), ", ".join(told[ticket.number]) or "nothing yet"]
        for ticket in session.pending
    ]
    columns = [history["ticket"].values, states, *(map(_number, history[name].values.tolist()) for name in (*names, *outputs.names))]
    raised = [int(event.body.get("status", 0)) for event in session.events]
    caption = "What was measured by ticket, the best objective where all constraints were measured to hold, and the bounds."
    violations = [[c.name, _number(float(history[f"violation of {c.name}"][-1]))] for c in outputs.constraints if len(states)]
    domain, constrained = parts.space.domain, bool(outputs.constraints)
    kinds = {1: "Posterior means with bands of two standard deviations", 2: "Posterior means and standard deviations"}
    shown = f"{kinds.get(domain.dimension, f'{kinds[1]}, in slices')}; white dots were measured, orange marks what is recommended."
    shown += " The last row is the probability that all constraints hold." if constrained else ""
    sections: dict[str, Section] = {
        "recommendation": {
            "point": [[name, _number(value)] for name, value in best.point.items()],
            "outputs": [[name, _number(best.mean[name]), _number(best.sd[name])] for name in outputs.names],
            "probability": f"{best.probability_of_feasibility:.3f}",
            "feasible": best.feasible,
        },
        "history": {"pictures": [Picture(caption, history_figure(outputs, history))], "violations": violations} if len(states) else {},
        "belief": [Picture(shown, session.plot(feasibility=constrained))],
        "pending": {"heads": ["ticket", *names, "told"], "rows": waiting},
        "tickets": {
            "heads": ["ticket", "state", *names, *outputs.names],
            "rows": list(map(list, zip(*columns, strict=True))),
            "flags": [meaning for flag, meaning in MESSAGES.items() if any(status & int(flag) for status in raised)],
        }
        if len(states)
        else {},
        "made-of": [[name, str(value)] for name, value in parts.table().items() if name not in ("space", "key") and value is not None],
    }
    facts = f"{len(states)} tickets: {counts}; begun {first.at}, last event {last.at} (UTC)"
    return page("session", sections, title=session.directory.resolve().name, subtitle="session", facts=facts)


def _number(value: float | str) -> str:
    """Return a number in a few digits, nothing for NaN; the label of a category as it is."""
    if isinstance(value, str):
        return value
    return "" if np.isnan(value) else f"{value:.5g}"
