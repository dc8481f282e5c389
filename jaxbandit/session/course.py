"""The learner of a session as its events lead to it, and the snapshot of that."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import boolean, finite_numbers, scalar, whole
from jaxbandit.session.journal import Event
from jaxbandit.session.specification import Specification
from jaxbandit.session.stepping import Learner, Rounds, initial_shapes
from jaxbandit.session.tickets import Record, rounds_begun

MAKER = f"jaxbandit {__version__}, jax {jax.__version__}"
"""Programs that write a snapshot and may read it again; others replay the events."""


@dataclasses.dataclass
class Course:
    """The learner in the course of its rounds, and what it has been told of each ticket.

    Attributes:
      specification: what the session is made of.
      rounds: the learner.
      told: names of the outputs that have been told, by ticket.
    """

    specification: Specification
    rounds: Rounds
    told: dict[int, set[str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def start(cls, specification: Specification, learner: Learner) -> Course:
        """Return the course before any event."""
        return cls(specification=specification, rounds=Rounds.start(learner))

    def follow(self, event: Event, records: Mapping[int, Record]) -> None:
        """Let an event happen, with the values that ``records``, in the end, hold."""
        if event.kind == "asked" and event.body["round"] > 0:
            self.begin(records)
            self.rounds = self.rounds.choose_again(event.body["index"], choosing_matters=self._choosing_matters)
        elif event.kind == "told":
            self._tell(event.body["ticket"], records[event.body["ticket"]], set(event.body["values"]))
        elif event.kind == "dropped":
            repeated = self.specification.at_once and self.rounds.open and records[event.body["ticket"]].round == self.rounds.round
            self.rounds = self.rounds.take_back() if repeated else self.rounds

    @functools.cached_property
    def _choosing_matters(self) -> bool:
        """Return whether a choice changes the algorithm's state; else replaying the events makes none, and compiles no program for it."""
        return self.rounds.choosing_matters()

    def begin(self, records: Mapping[int, Record]) -> None:
        """Take in the initial design before round 1, unless that has been done."""
        self.rounds = self.with_design(records)

    def with_design(self, records: Mapping[int, Record]) -> Rounds:
        """Return the learner that has taken in what is known of the initial design."""
        return self.rounds if self.rounds.begun else self.rounds.begin(self._design(records))

    def _design(self, records: Mapping[int, Record]) -> list[tuple[int, dict[int, float]]]:
        """Return points and values of the initial design, as far as they are complete."""
        outputs = self.specification.outputs
        design = [record for _, record in sorted(records.items()) if record.round == 0]
        return [(record.index, outputs.inward(record.values)) for record in design if record.state(len(outputs.names)) == "complete"]

    def _tell(self, number: int, record: Record, names: set[str]) -> None:
        told = self.told.setdefault(number, set())
        told |= names
        outputs = self.specification.outputs
        if record.round == 0:
            return
        if self.rounds.learner.together and self.rounds.learner.capacity is not None:
            if len(told) < len(outputs.names):
                return  # they are taken in together
            names = set(outputs.names)
        self.rounds = self.rounds.tell(record.round, outputs.inward({name: record.values[name] for name in names}))

    def snapshot(self) -> bytes | None:
        """Return all that changes as bytes; ``None`` with an algorithm of a user's own class, whose code may have changed by then."""
        if "fingerprint" in self.specification.table()["algorithm"]:
            return None
        rounds = self.rounds
        arrivals = [[number, output, value] for (number, output), value in rounds.arrivals.items()]
        plain = {"begun": rounds.begun, "arrivals": arrivals}  # the rest follows from the tickets
        leaves = jax.tree.leaves(rounds.carry) + jax.tree.leaves(rounds.before)
        file = io.BytesIO()
        arrays: dict[str, Any] = {f"leaf{number}": np.asarray(leaf) for number, leaf in enumerate(leaves)}
        np.savez(file, plain=np.asarray(json.dumps(plain)), **arrays)
        return file.getvalue()

    @classmethod
    def from_snapshot(cls, specification: Specification, learner: Learner, state: bytes, records: Mapping[int, Record]) -> Course | None:
        """Return the course that :meth:`snapshot` has written after the events that led to ``records``; ``None`` for anything else."""
        try:
            return cls._of_snapshot(specification, learner, state, records)
        except Exception:  # what NumPy and JSON raise is not documented; all that a snapshot holds can be had from the events
            return None

    @classmethod
    def _of_snapshot(cls, specification: Specification, learner: Learner, state: bytes, records: Mapping[int, Record]) -> Course:
        with np.load(io.BytesIO(state), allow_pickle=False) as file:
            plain = json.loads(str(file["plain"]))
            leaves = [file[f"leaf{number}"] for number in range(len(file.files) - 1)]
        last, round_ = records.get(len(records)), rounds_begun(records, at_once=specification.at_once)
        index = last.index if last is not None and last.round == round_ > 0 else None  # of the round that is open
        begun, arrivals = plain["begun"], {(number, output): value for number, output, value in plain["arrivals"]}
        boolean("begun", begun)
        for (number, output), value in arrivals.items():
            whole(1, round_)("arrivals", number)
            whole(0, specification.outputs.modelled - 1)("arrivals", output)
            finite_numbers.of(scalar)("arrivals", value)
        shapes = initial_shapes(learner)
        wanted, structure = jax.tree.flatten((shapes, shapes if learner.capacity is None and index is not None else None))
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(leaf.shape, leaf.dtype) for leaf in wanted] or begun < (round_ > 0):
            raise InvalidArgument("snapshot: is of another learner")
        carry, before = jax.tree.unflatten(structure, leaves)
        rounds = Rounds(learner, carry, round_, index or 0, arrivals, before, open=index is not None, begun=begun)
        return cls(specification, rounds, {number: set(record.values) for number, record in records.items()})
