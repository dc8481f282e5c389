"""Reason for a session's point, from the beliefs of that time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from jaxbandit.core.status import healthy
from jaxbandit.session.axes import Spot
from jaxbandit.session.journal import Event, SessionError
from jaxbandit.session.learner import is_among
from jaxbandit.session.models import sides_of
from jaxbandit.session.quantities import Outputs, readable
from jaxbandit.session.replay import State, Ticket, spot_of
from jaxbandit.session.shown import Believed
from jaxbandit.session.specification import Specification

if TYPE_CHECKING:
    import matplotlib.figure

# Least probability that all constraints hold at the best known point.
FEASIBLE = 0.5


@dataclasses.dataclass(frozen=True)
class PointBelief:
    """Belief at a point: mean and deviation by output, probability of feasibility."""

    mean: Mapping[str, float]
    sd: Mapping[str, float]
    probability_of_feasibility: float

    @classmethod
    def of(cls, outputs: Outputs, believed: Believed, at: int) -> Self:
        """Return the belief at one of the points of beliefs."""
        mean, sd, holds = believed
        named = [dict(zip(outputs.names, part[:, at].tolist(), strict=False)) for part in (mean, sd)]
        return cls(named[0], named[1], float(holds[at]))


@dataclasses.dataclass(frozen=True, repr=False)
class Reason:
    """Return value of ``Session.why``: the reason for a ticket's point.

    Attributes:
      ticket: number of the ticket.
      term: ``"design"``, ``"under way"``, ``"constraint"``, ``"exploit"`` or ``"explore"``.
      text: the reason in words.
      belief: the belief at the point, ``None`` where no value had been told.
      best: ticket of the best known point, and the belief there.
      nearest: the nearest earlier runs by ticket, with their distances as the largest share of an axis.
      alone: the point that would have been asked for without runs under way; ``None`` where none was under way.
      values: values that have been told of the ticket by now.
      outputs: the outputs of the session.
    """

    ticket: int
    term: str
    text: str
    belief: PointBelief | None
    best: tuple[int, PointBelief] | None
    nearest: Mapping[int, float]
    alone: Mapping[str, float | str] | None
    values: Mapping[str, float]
    outputs: Outputs = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def plot(self) -> matplotlib.figure.Figure:
        """Return a figure of beliefs at two points, by output.

        They are the ticket's point and the best known point.
        """
        # Matplotlib is slow to load.
        from jaxbandit.session.figures import reason_figure

        found = [(f"ticket {self.ticket}", self.belief), *([(f"best known, ticket {self.best[0]}", self.best[1])] if self.best else [])]
        return reason_figure(self.outputs, [(name, one.mean, one.sd) for name, one in found if one is not None], self.values)


def reason(specification: Specification, events: Sequence[Event], ticket: Ticket, values: Mapping[str, float]) -> Reason:
    """Return the reason for a ticket's point from the events before."""
    if ticket.observed:
        raise SessionError(f"why: ticket {ticket.number} was told without being asked for, so that no rule chose its point")
    state = State(specification)
    for event in events[1:]:
        if event.kind == "asked" and event.body["ticket"] == ticket.number:
            spot = spot_of(event.body)
            break
        state.enter(event)
    outputs, told = specification.outputs, {n: one.ticket.index for n, one in state.records.items() if one.values}
    belief = best = alone = None

    def in_words(point: Mapping[str, float | str]) -> str:
        return ", ".join(f"{name} = {readable(value)}" for name, value in point.items())

    term, said, is_same = "design", list[str](), True
    if told and (state.standard is not None or not specification.standardise):
        believed = mean, sd, holds = state.predicted()
        belief = PointBelief.of(outputs, state.predicted(spot.place), 0) if spot.place else PointBelief.of(outputs, believed, ticket.index)
        sign, numbers, name = outputs.objective.sign, np.asarray([*told.values()]), outputs.names[0]
        fine = holds[numbers] >= FEASIBLE
        worth = np.where(fine, sign * mean[0, numbers], -np.inf) if fine.any() else holds[numbers]
        known = int(np.argmax(worth))
        best = [*told][known], PointBelief.of(outputs, believed, int(numbers[known]))
        if ticket.round:
            alone, is_same = _alone(state, spot)
            own = sign * belief.mean[name], belief.sd[name], belief.probability_of_feasibility
            term = _term(sign * mean[0], sd[0], holds, own, sign * best[1].mean[name]) if is_same else "under way"
    if belief is not None and best is not None:
        said.append(f"The best known point then was that of ticket {best[0]}.")
        for name in outputs.names:
            here, there = (f"{one.mean[name]:.4g} ± {one.sd[name]:.2g}" for one in (belief, best[1]))
            said.append(f"{name} was believed to be {here}, and {there} at the best known point.")
        if outputs.constraints:
            chances = [f"{one.probability_of_feasibility:.2f}" for one in (belief, best[1])]
            said.append(f"The probability that all constraints hold was {chances[0]}, and {chances[1]} at the best known point.")
    runs = {number: one.ticket.index for number, one in state.records.items() if one.over != "dropped"}
    apart = np.abs(state.space.modelled[[*runs.values()]] - state.space.modelled_at(spot)) / sides_of(state.space.domain)
    away = np.max(apart, axis=1, initial=0)
    nearest = {[*runs][at]: float(away[at]) for at in np.argsort(away, kind="stable")[:3].tolist()}
    if nearest:
        listed = ", ".join(f"ticket {number} ({share:.0%} of an axis away)" for number, share in nearest.items())
        said.append(f"The nearest earlier runs are {listed}.")
    if alone is not None:
        said.append(f"Without runs under way {'the same point' if is_same else in_words(alone)} would have been asked for.")
    terms = {
        "design": "it is a point of the initial design, which spreads points out",
        "under way": "points under way were avoided",
        "constraint": "better points elsewhere seemed to violate a constraint",
        "exploit": "its own mean promised most of the gain",
        "explore": "its uncertainty promised most of the gain",
    }
    text = " ".join([f"Ticket {ticket.number} was asked for at {in_words(ticket.point)} because {terms[term]}.", *said])
    return Reason(ticket.number, term, text, belief, best, nearest, alone, dict(values), outputs)


def _term(rewards: np.ndarray, sds: np.ndarray, holds: np.ndarray, own: tuple[float, float, float], best: float) -> str:
    """Return the term that decided the choice."""
    # SciPy comes with JAX. It is imported here because start-up should not pay for it.
    from scipy.stats import norm

    def terms(reward: Any, sd: Any) -> tuple[Any, Any]:
        away = (reward - best) / np.maximum(sd, np.finfo(np.float64).tiny)
        return (reward - best) * norm.cdf(away), sd * norm.pdf(away)

    exploit, explore = terms(*own[:2])
    gains = np.sum(terms(rewards, sds), axis=0)
    tempting = int(np.argmax(gains))
    if gains[tempting] > 2 * (exploit + explore) and holds[tempting] < min(FEASIBLE, own[2]):
        return "constraint"
    return "exploit" if exploit >= explore else "explore"


def _alone(state: State, own: Spot) -> tuple[Mapping[str, float | str] | None, bool]:
    """Return the choice without runs under way, and whether it is ``own``."""
    waiting, space = state.under_way, state.space
    if not waiting:
        return None, True
    asked = state.round_at(own.number)
    asked = dataclasses.replace(asked, under_way=[one for one in asked.under_way if one not in waiting])
    chosen = state.course.without(waiting).choose(asked)
    if not healthy(np.asarray(int(chosen.status))):
        return None, True
    spot = Spot(*chosen[:2])
    return space.point(spot.point), is_among(space.domain, spot, [own])
