"""Several algorithms as they are given, on one problem or each on its own, under common random numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import unwrapped
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import canonicalise
from jaxbandit.delays import NoDelay
from jaxbandit.feedback import Wait
from jaxbandit.simulate import InitialDesign, Trajectory, simulate
from jaxbandit.study.describe import describe_exactly, in_words
from jaxbandit.study.instances import sampled
from jaxbandit.study.lines import CURVES, Entry, Line
from jaxbandit.study.thinning import Keep


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A study of the simplest shape: algorithms x trials x rounds, of which everything is kept.

    Attributes:
      name: of the study.
      problem: of all entries that have none of their own.
      entries: what is run.
      horizon, trials, seed: of every entry.
      initial: points observed before round 1, by entries that have none of their own.
      parameters: what else the results should say of themselves, as JSON values.
      metrics: names of :class:`~jaxbandit.metrics.Curves`.
      keep: which rounds of them are kept.
      trajectories: whether points, values and arrivals of every round are kept, too.
      common_random_numbers: whether entries see the same noise, delays and instances in trials of a number.
    """

    name: str
    problem: Any
    entries: tuple[Entry, ...]
    horizon: int
    trials: int
    seed: int
    initial: InitialDesign = dataclasses.field(default_factory=InitialDesign)
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: tuple[str, ...] = CURVES
    keep: Keep = Keep(every=1)
    trajectories: bool = True
    common_random_numbers: bool = True

    @property
    def swept(self) -> list[str]:
        """Nothing: entries are as they are given."""
        return []

    def lines(self) -> list[Line]:
        """One line for each entry; equal problems have one name, and are one object.

        Raises:
          InvalidArgument: on numbers out of range, on no entry, and on labels that are not distinct.
        """
        for name, least in (("trials", 1), ("horizon", 1), ("seed", 0)):
            checks.integer(name, getattr(self, name), least=least)
        for name in self.metrics:
            checks.one_of("metrics", name, CURVES)
        self.keep.validate()
        labels = [entry.label for entry in self.entries]
        if not labels or len(set(labels)) < len(labels):
            raise InvalidArgument(f"entries: give at least one, with distinct labels, got {labels}")
        problems = _named([self.problem_of(entry) for entry in self.entries], lambda problem: str(problem.name))
        delays = _named([self.delay_of(entry) for entry in self.entries], in_words)
        return [
            Line(
                entry=dataclasses.replace(entry, problem=problem, initial=self.initial_of(entry), delay=delay),
                base=entry.label,
                problem=where,
                delay="" if isinstance(delay, NoDelay) else late,
                swept={},
            )
            for entry, (where, problem), (late, delay) in zip(self.entries, problems, delays, strict=True)
        ]

    def fingerprint(self) -> str:
        """A hash of all that the results depend on."""
        return hashlib.sha256(json.dumps(describe_exactly(self), sort_keys=True).encode()).hexdigest()

    def table(self) -> dict[str, Any]:
        """Raises ``InvalidArgument``: a comparison is made of objects."""
        raise InvalidArgument("comparison: it cannot be written as a table; write a Study where its results alone should run again")

    def trajectory(self, entry: Entry, *, trials: Any = None, record: str = "all") -> Trajectory:
        """Run one entry, all its trials or those numbered in ``trials``."""
        return simulate(
            self.problem_of(entry),
            entry.algorithm,
            entry.surrogate,
            horizon=self.horizon,
            key=jax.random.key(self.seed),
            trials=self.trials if trials is None else trials,
            record=record,
            initial=self.initial_of(entry),
            informed=entry.informed,
            delay=entry.delay,
            feedback=entry.feedback,
        )

    def problem_of(self, entry: Entry) -> Any:
        """The problem or family that an entry is run on."""
        return self.problem if entry.problem is None else entry.problem

    def delay_of(self, entry: Entry) -> Any:
        """How late an entry's feedback comes."""
        return getattr(self.problem_of(entry), "delay", NoDelay()) if entry.delay is None else entry.delay

    def policy_of(self, entry: Entry) -> Any:
        """What an entry does while feedback is on its way."""
        return getattr(unwrapped(entry.algorithm), "feedback", Wait()) if entry.feedback is None else entry.feedback

    def initial_of(self, entry: Entry) -> InitialDesign:
        """What an entry observes before round 1."""
        return self.initial if entry.initial is None else entry.initial

    def instance(self, trial: int, entry: Entry | None = None) -> Any:
        """The problem of one trial, of an entry where they have their own."""
        key = stream_key(trial_key(jax.random.key(self.seed), trial), Stream.PROBLEM)
        return canonicalise(self.problem if entry is None else self.problem_of(entry)).sample(key)

    def instances(self, problem: Any = None) -> Any:
        """The problem of every trial: stacked ``[trials, ...]`` instances of a random family, or the one problem itself."""
        problem = canonicalise(self.problem if problem is None else problem)
        if not problem.is_random:
            return problem
        return sampled(problem, jax.random.key(self.seed), jnp.arange(self.trials))


def _named(items: list[Any], words: Callable[[Any], str]) -> list[tuple[str, Any]]:
    """A name for each item, with the first item that equals it: its words, numbered where different items have the same."""
    exact = {id(item): json.dumps(describe_exactly(item), sort_keys=True) for item in items}
    known: dict[str, dict[str, Any]] = {}
    found = []
    for item in items:
        alike = known.setdefault(words(item), {})
        first = alike.setdefault(exact[id(item)], item)
        number = list(alike).index(exact[id(item)]) + 1
        found.append((words(item) + (f" {number}" if number > 1 else ""), first))
    return found
