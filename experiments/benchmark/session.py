"""The time that a real experiment waits for its session.

It is that of a question and its answer, and of opening the session again, beside Optuna's TPE and Ax.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxbandit as jb
from jaxbandit.session import Model, Session

# Number of questions before the clock starts, because the first ones compile.
WARM_UP = 2
# Number of questions to Ax before the clock starts. Five points of a design cost nothing, and the first fit follows.
AX_WARM_UP = 6


def measure_session(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the times of questions, answers and opening a session.

    They are milliseconds of ``ask`` and ``tell`` together, and seconds to open a session of ``spec["tickets"]`` tickets.
    """
    side, tickets = spec["points_per_axis"], spec["tickets"]
    domain = jb.domains.grid([0.0, 0.0], [6.0, 6.0], side)
    model = Model(kernel=jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "session"
        options: dict[str, Any] = {"key": jax.random.key(0), "constraints": ["cost <= 0"], "horizon": max(tickets, WARM_UP) + 1}
        options |= {"standardise": False, "feedback": jb.feedback.Wait()}
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
    optuna = _optuna(side, tickets) if importlib.util.find_spec("optuna") else {}
    ax = _ax(side, spec["ax_trials"]) if importlib.util.find_spec("ax") else {}
    rivals = {"optuna_ms": optuna.get("ask_tell_ms"), "ax_ms": ax.get("ask_tell_ms"), "ax_cpu_ms": ax.get("ask_tell_cpu_ms")}
    return found | rivals


def _timed(pair: Callable[[], None], tickets: int, warm_up: int = WARM_UP) -> dict[str, Any]:
    """Return wall and CPU times of ``pair``, in milliseconds.

    They are the median and largest wall time and the mean CPU time, after a few calls that warm up.
    """
    walls, first = [], min(warm_up, tickets - 1)
    for number in range(tickets):
        if number == first:
            cpu = time.process_time()
        started = time.perf_counter()
        pair()
        walls.append(time.perf_counter() - started)
    kept = walls[first:]
    return {
        "ask_tell_ms": 1e3 * float(np.median(kept)),
        "ask_tell_worst_ms": 1e3 * max(kept),
        "ask_tell_cpu_ms": 1e3 * (time.process_time() - cpu) / len(kept),
    }


def _optuna(side: int, tickets: int) -> dict[str, Any]:
    """Measure a question and an answer of Optuna's TPE in memory."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, rng = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0)), np.random.default_rng(0)

    def pair() -> None:
        trial = study.ask()
        x, y = (6 * trial.suggest_int(name, 0, side - 1) / (side - 1) for name in ("x", "y"))
        noise = 0.2 * rng.standard_normal(2)
        trial.set_constraint("cost", np.sin(x) * np.sin(y) + 0.95 + noise[1])
        study.tell(trial, np.sin(x) + y + noise[0])

    return _timed(pair, tickets)


def _ax(side: int, trials: int) -> dict[str, Any]:
    """Measure questions and answers of Ax's BoTorch model in memory."""
    with warnings.catch_warnings():
        # Packages that Ax loads warn of one another.
        warnings.simplefilter("ignore")
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

    # Ax has a level of its own, and logs every trial.
    logging.getLogger("ax.api.client").setLevel(logging.WARNING)
    client, rng = Client(random_seed=0), np.random.default_rng(0)
    client.configure_experiment([RangeParameterConfig(name=name, bounds=(0, side - 1), parameter_type="int") for name in ("x", "y")])
    client.configure_optimization(objective="reward", outcome_constraints=["cost <= 0"])

    def pair() -> None:
        [(number, point)] = client.get_next_trials(max_trials=1).items()
        x, y = (6 * point[name] / (side - 1) for name in ("x", "y"))
        noise = 0.2 * rng.standard_normal(2)
        told = {"reward": float(-np.sin(x) - y + noise[0]), "cost": float(np.sin(x) * np.sin(y) + 0.95 + noise[1])}
        client.complete_trial(number, raw_data=told)

    with warnings.catch_warnings():
        # BoTorch warns of fits that were tried again.
        warnings.simplefilter("ignore")
        return _timed(pair, AX_WARM_UP + trials, AX_WARM_UP)
