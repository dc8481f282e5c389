"""Kill processes that drive a session, and go on without any loss.

Run it by ``python tests/session/kill_session.py --kills 50``.
"""

import argparse
import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax

import jaxbandit as jb
from jaxbandit.session import Model, Session, SessionError
from jaxbandit.session.journal import open_journal

# By then a process has compiled its programs.
WARM = 12


def drive(directory: Path, last: int, events: float = float("inf")) -> None:
    """Drive a session until ``last`` tickets are told, or ``events`` have happened.

    The next step follows from the events, so that a session that is opened again does the same as an unbroken one. Every step is
    printed.
    """
    try:
        session = Session.open(directory)
    except SessionError:
        domain = jb.domains.grid([0.0, 0.0], [1.0, 1.0], 12)
        model = Model(kernel=jb.kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05)
        session = Session.create(directory, domain, jb.Rpol(), model, key=jax.random.key(1), constraints=["cost <= 0.1"])
    while len(session.events) < events:
        asked = sum(event.kind == "asked" for event in session.events)
        partial = {event.body["ticket"] for event in session.events if event.kind == "told"}
        pending = session.pending
        if len(pending) < 4 and asked < last:
            ticket = session.ask()
            print("asked", ticket.number, ticket.index, flush=True)
        elif not pending:
            break
        else:
            ticket = pending[len(session.events) % len(pending)]
            name = "cost" if ticket.number in partial else "reward"
            told = (ticket.index * (37 + (name == "cost")) + ticket.number * 13) % 101 / 50 - 1
            session.tell(ticket, {name: told})
            print("told", ticket.number, name, repr(told), flush=True)
    session.close()


def killed(directory: Path, last: int, after: float) -> list[str]:
    """Return the output of a process killed after ``after`` seconds of work."""
    keep = {"JAX_COMPILATION_CACHE_DIR": str(directory.parent / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, __file__, "--drive", str(directory), "--tickets", str(last)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=keep | os.environ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(WARM)]
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    return [line.strip() for line in said if line.endswith("\n")]


def happened(directory: Path) -> list[str]:
    """All events of a session without their times."""
    journal = open_journal(directory, read_only=True)
    found = [json.dumps([event.kind, event.body], sort_keys=True) for event in journal.events]
    journal.close()
    return found


def lost(said: list[str], events: list[str]) -> list[str]:
    """List what a process said that the journal does not hold."""
    known = set()
    for kind, body in map(json.loads, events):
        if kind == "asked":
            known.add(f"asked {body['ticket']} {body['index']}")
        elif kind == "told":
            known |= {f"told {body['ticket']} {name} {value!r}" for name, value in body["values"].items()}
    return [line for line in said if line not in known]


def kill_and_compare(kills: int, last: int, seconds: float, seed: int, report: Callable[[str], object] = print, begun: int = 0) -> int:
    """Return the numbers of lost events and of sessions that diverged.

    ``begun`` events have happened when a process is killed; by default the first process creates the session.
    """
    rng, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder) / "whole", Path(folder) / "broken"
        with contextlib.redirect_stdout(io.StringIO()):
            drive(whole, last)
            if begun:
                drive(broken, last, begun)
        expected = happened(whole)
        for number in range(kills):
            after = rng.uniform(0, seconds)
            said = killed(broken, last, after)
            events = happened(broken)
            missing, other = lost(said, events), events != expected[: len(events)]
            wrong += len(missing) + other
            words = f"lost {missing}" if missing else "differs from the unbroken session" if other else "nothing lost, the same choices"
            report(f"kill {number + 1} after {after:.3f} s and {len(events)} events: {words}")
        with contextlib.redirect_stdout(io.StringIO()):
            drive(broken, last)
        wrong += happened(broken) != expected
        report(f"went on to the end: {'the same' if happened(broken) == expected else 'other'} {len(expected)} events")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    parser.add_argument("--tickets", type=int, default=900, metavar="T", help="at most 1000, the horizon")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="X", help="of work between two kills, at most")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--drive", type=Path, metavar="DIRECTORY", help="be the process that is killed")
    options = parser.parse_args()
    if options.drive is not None:
        sys.exit(drive(options.drive, options.tickets))
    wrong = kill_and_compare(options.kills, options.tickets, options.seconds, options.seed)
    print(f"{wrong} things went wrong in {options.kills} kills")
    sys.exit(bool(wrong))
