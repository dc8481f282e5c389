"""Report of a session as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxbandit.core.status import MESSAGES
from jaxbandit.host.files import prepare_file, write_whole
from jaxbandit.report.html import Picture, Section, page
from jaxbandit.report.tables import with_half
from jaxbandit.session import Session, SessionError, forecast
from jaxbandit.session.checks import NO_MISTAKE
from jaxbandit.session.figures import history_figure, nearness
from jaxbandit.session.quantities import STATES, counts_of, readable

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["write_session_report"]
__dir__ = __all__.copy


def write_session_report(
    directory: str | Path, out: str | Path | None = None, *, reload: int | None = None, evaluations: int | None = None
) -> Path:
    """Write the report of a session, and return its path.

    Args:
      directory: directory of the session's journal.
      out: path of the report, which is overwritten; default ``report.html`` in ``directory``.
      reload: seconds after which a browser loads the page again; default never.
      evaluations: number of further evaluations that the report forecasts, see :func:`jaxbandit.forecast`; default no forecast, because it
        takes a minute.

    Raises:
      SessionError: when there is no session, or its journal cannot be read.
    """
    with Session.open(directory, read_only=True) as session:
        text = session_page(session, reload=reload, evaluations=evaluations)
    path = prepare_file(Path(directory) / "report.html" if out is None else out, force=True)
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def session_page(session: Session, *, reload: int | None = None, evaluations: int | None = None) -> str:
    """Return the report of a session as HTML."""
    history, parts, told = session.history(), session.specification, session.told
    outputs, space, names, states = parts.outputs, parts.space, parts.space.names, history["state"].values
    counts = ", ".join(f"{count} {STATES[state]}" for state, count in counts_of(states.tolist()).items())
    begun, last = (session.events[at].at[:16].replace("T", " ") for at in (0, -1))
    waiting = [
        [ticket.number, *(readable(ticket.point[name]) for name in names), ", ".join(told[ticket.number]) or "nothing yet"]
        for ticket in session.pending
    ]
    columns = [history[name].values.tolist() for name in ("ticket", *names, *outputs.names)]
    rows = [[ticket, STATES[state], *map(readable, row)] for state, (ticket, *row) in zip(states, zip(*columns, strict=True), strict=True)]
    heads = [*map(space.label, names), *map(outputs.label, outputs.names)]
    raised = [int(event.body.get("status", 0)) for event in session.events]
    ahead = dict[str, Section]()
    if evaluations is not None:
        found = forecast(session, evaluations)
        caption = (
            f"Medians of {found.dataset.sizes['future']} futures that are drawn from the belief, with the 80% band of the recommended run."
        )
        ahead["forecast"] = {"said": [found.said], "rows": found.rows(), "pictures": [Picture(caption, found.plot())]}
    sections: dict[str, Section] = {
        **(_belief_sections(session, history) if any(told.values()) else {}),
        **ahead,
        "pending": {"heads": ["ticket", *map(space.label, names), "told"], "rows": waiting},
        "tickets": {
            "heads": ["ticket", "state", *heads],
            "rows": rows,
            "flags": [meaning for flag, meaning in MESSAGES.items() if any(status & int(flag) for status in raised)],
        }
        if rows
        else {},
        "made-of": [
            [name, str(value)] for name, value in parts.table().items() if name not in ("space", "key", "similar") and value is not None
        ],
    }
    # Tickets that nobody asked for do not count towards the horizon.
    most = parts.horizon + parts.design.count + np.count_nonzero(np.isnat(history["asked_at"]))
    facts = f"{len(states)} of at most {most:,} tickets: {counts}; begun {begun}, last event {last} (UTC)"
    if count := len(parts.similar):
        facts += f"; prior means are multiples of those of {count} similar session{'s' if count > 1 else ''}"
    if number := session.learner_changed_at:
        facts += f"; from ticket {number} on by the learner of a later version of jaxbandit"
    findings = (
        {} if any(told.values()) else {"pending": ["No value has been told yet; with the first one this page shows what is believed."]}
    )
    title = session.directory.resolve().name
    return page("session", sections, title=title, subtitle="session", facts=facts, findings=findings, reload=reload)


def _belief_sections(session: Session, history: xr.Dataset) -> dict[str, Section]:
    """Return the sections that need a value: recommendation, history, beliefs."""
    outputs, space = session.specification.outputs, session.specification.space
    # With contexts it is the best of all of them.
    best = session._best_known()
    kinds = {1: "Posterior means with bands of two standard deviations", 2: "Posterior means and standard deviations"}
    shown = kinds.get(space.domain.dimension, f"{kinds[1]}, in slices through the recommended point, with what was {nearness(space)}")
    shown += "; white dots were measured, orange marks what is recommended."
    shown += " The last row is the probability that all constraints hold." if outputs.constraints else ""
    caption = "What was measured by ticket, the best objective where all constraints were measured to hold, and the bounds."
    if "failed" in history["state"]:
        shown, caption = f"{shown} Crosses mark where runs failed.", f"{caption} Crosses mark runs that failed."
    return {
        "recommendation": {
            "point": [[space.label(name), readable(value)] for name, value in best.point.items()],
            "outputs": [[outputs.label(name), with_half(best.mean[name], best.sd[name])] for name in outputs.names],
            "probability": f"{best.probability_of_feasibility:.3f}",
            "feasible": best.feasible,
        },
        "history": {
            "pictures": [Picture(caption, history_figure(outputs, history))],
            "violations": [[outputs.label(c.name), readable(float(history[f"violation of {c.name}"][-1]))] for c in outputs.constraints],
        },
        "belief": [Picture(shown, session.plot(feasibility=bool(outputs.constraints)))],
        "check": _check_section(session),
    }


def _check_section(session: Session) -> Section:
    """Return the check of a session, or why there is none."""
    try:
        found = session.check()
    except SessionError as error:
        return {"said": [str(error).removeprefix("check: ")]}
    caption = "Measured values beside their predictions from the other runs, and residuals by ticket; rings mark the least expected runs."
    return {"said": found.flags or [NO_MISTAKE], "rows": found.rows(), "pictures": [Picture(caption, found.plot())]}
