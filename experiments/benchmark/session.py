"""The time that a real experiment waits for its session: a question and its answer, and opening it again, beside Optuna's TPE."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxbandit as jb
from jaxbandit.session import Model, Session

WARM_UP = 2  # questions before the clock starts: the first ones compile


def measure_session(spec: dict[str, Any]) -> dict[str, Any]:
    """Return milliseconds of ``ask`` and ``tell`` together, and seconds to open a session of ``spec["tickets"]`` tickets."""
    side, tickets = spec["points_per_axis"], spec["tickets"]
    domain = jb.domains.grid([0.0, 0.0], [6.0, 6.0], side)
    model = Model(kernel=jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "session"
        options: dict[str, Any] = {"key": jax.random.key(0), "constraints": ["cost <= 0"], "horizon": max(tickets, WARM_UP) + 1}
        with Session.create(place, domain, jb.Rpol(), model, **options) as session:

            def pair() -> None:
                ticket = session.ask()
                x, y = ticket.point.values()
                noise = 0.2 * rng.standard_normal(2)
                session.tell(ticket, reward=-np.sin(x) - y + noise[0], constraints=np.sin(x) * np.sin(y) + 0.95 + noise[1])

            found = _timed(pair, tickets)
        started = time.perf_counter()
        with Session.open(place) as session:
            found["open_s"] = time.perf_counter() - started
            found["events"] = len(session.events)
    return found | {"optuna_ms": _optuna(side, tickets) if importlib.util.find_spec("optuna") else None}


def _timed(pair: Callable[[], None], tickets: int) -> dict[str, Any]:
    """Return median and largest wall time and the mean CPU time of ``pair``, in milliseconds, after a few that warm up."""
    walls = []
    for number in range(tickets):
        if number == min(WARM_UP, tickets - 1):
            cpu = time.process_time()
        started = time.perf_counter()
        pair()
        walls.append(time.perf_counter() - started)
    kept = walls[min(WARM_UP, tickets - 1) :]
    return {
        "ask_tell_ms": 1e3 * float(np.median(kept)),
        "ask_tell_worst_ms": 1e3 * max(kept),
        "ask_tell_cpu_ms": 1e3 * (time.process_time() - cpu) / len(kept),
    }


def _optuna(side: int, tickets: int) -> float:
    """Return the median milliseconds of a question and an answer of Optuna's TPE with a constraint, in memory, without a journal."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, rng = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0)), np.random.default_rng(0)

    def pair() -> None:
        trial = study.ask()
        x, y = (6 * trial.suggest_int(name, 0, side - 1) / (side - 1) for name in ("x", "y"))
        noise = 0.2 * rng.standard_normal(2)
        trial.set_constraint("cost", np.sin(x) * np.sin(y) + 0.95 + noise[1])
        study.tell(trial, np.sin(x) + y + noise[0])

    return float(_timed(pair, tickets)["ask_tell_ms"])
