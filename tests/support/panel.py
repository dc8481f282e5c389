"""Several algorithms in one compiled program with one learner."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from jaxbandit.algorithms import Arena, Decision, Shown, Traits
from jaxbandit.algorithms.wrappers import AnytimeState
from jaxbandit.core.sweep import Sweep, gather_variants
from jaxbandit.engine.trial import multipliers_of
from jaxbandit.feedback import Policy, Wait
from jaxbandit.feedback.learner import LatePosterior
from jaxbandit.surrogates import Belief


class Asked(Exception):
    """Observations that an arena was asked to learn."""


@jaxbandit.pytree
class Asking(Arena):
    """Arena that stops the trace when it is asked to learn."""

    def learn(self, posterior: Any, observation: Any) -> Any:
        raise Asked(observation)


@jaxbandit.pytree
class Knowing(Arena):
    """Arena whose posterior is already there."""

    known: Any

    def learn(self, posterior: Any, observation: Any) -> Any:
        return self.known


@jaxbandit.pytree
class OneOfState:
    # States of the algorithms without their posteriors.
    parts: tuple[Any, ...]
    posterior: Any
    multipliers: Any


def with_posterior(state: Any, posterior: Any) -> Any:
    """The state with its posterior replaced, inside a wrapper's, too."""
    if isinstance(state, AnytimeState):
        return jaxbandit.replace(state, inner=with_posterior(state.inner, posterior))
    return jaxbandit.replace(state, posterior=posterior)


def selected(which: Any, options: list[Any]) -> Any:
    """``options[which]``, leaf by leaf."""
    which = which.astype(jnp.bool_ if len(options) == 2 else jnp.int32)
    return jax.tree.map(lambda *x: jax.lax.select_n(which, *map(jnp.asarray, x)), *options)


@jaxbandit.pytree
class LateParts(LatePosterior):
    # Posteriors of all policies. The belief is that of one of them.
    parts: tuple[Any, ...]


@jaxbandit.pytree
class OneBeliefOf(Belief):
    beliefs: tuple[Any, ...]
    which: Any

    @property
    def arrived(self) -> Any:
        return selected(self.which, [jaxbandit.replace(belief.arrived, recent=None) for belief in self.beliefs])


@jaxbandit.pytree
class OnePolicyOf(Policy):
    """``policies[which]`` of points whose values arrive together.

    All of them learn, and an algorithm sees the belief of one.
    """

    name = "onepolicyof"
    policies: tuple[Any, ...]
    which: Any = 0.0

    def _joined(self, parts: list[Any]) -> LateParts:
        return LateParts(belief=selected(self.which, [part.belief for part in parts]), chosen=parts[0].chosen, parts=tuple(parts))

    def init(self, learner: Any) -> LateParts:
        assert learner.arrivals.groups == learner.chosen.groups, (
            "policies believe in models of their own where outputs arrive by themselves"
        )
        return self._joined([policy.init(learner) for policy in self.policies])

    def condition(self, learner: Any, posterior: LateParts, index: jax.Array, values: jax.Array) -> LateParts:
        pairs = zip(self.policies, posterior.parts, strict=True)
        return self._joined([policy.condition(learner, part, index, values) for policy, part in pairs])

    def learn(self, learner: Any, posterior: LateParts, feedback: Any) -> LateParts:
        return self._joined([policy.learn(learner, part, feedback) for policy, part in zip(self.policies, posterior.parts, strict=True)])

    def belief(self, learner: Any, posterior: LateParts) -> Belief:
        beliefs = tuple(policy.belief(learner, part) for policy, part in zip(self.policies, posterior.parts, strict=True))
        return super().belief(learner, posterior).extended(OneBeliefOf, beliefs=beliefs, which=self.which)


@jaxbandit.pytree
class OneOf(jaxbandit.Algorithm):
    """``algorithms[which]`` at the price of one learner.

    All of them run on its choices, and nobody looks at the others.
    """

    name = "oneof"
    algorithms: tuple[Any, ...]
    which: Any = 0.0
    policy: Policy = Wait()

    @property
    def traits(self) -> Traits:
        every = [algorithm.traits for algorithm in self.algorithms]
        joint, sees = any(one.joint_arrival for one in every), any(one.sees_constraints for one in every)
        return Traits(feedback=self.policy, joint_arrival=joint, sees_constraints=sees)

    def _check(self, name: str, outputs: int | None) -> None:
        for number, algorithm in enumerate(self.algorithms):
            algorithm.validate(f"{name}.algorithms[{number}]", outputs)

    def _of(self, options: list[Any]) -> Any:
        return selected(self.which, options)

    def _split(self, state: OneOfState) -> list[tuple[Any, Any]]:
        return [(own, with_posterior(part, state.posterior)) for own, part in zip(self.algorithms, state.parts, strict=True)]

    def _joined(self, arena: Arena, parts: list[Any]) -> OneOfState:
        pairs = list(zip(self.algorithms, parts, strict=True))
        return OneOfState(
            parts=tuple(with_posterior(part, None) for part in parts),
            posterior=self._of([own.posterior(part) for own, part in pairs]),
            multipliers=self._of([multipliers_of(own, part, arena) for own, part in pairs]),
        )

    def _learnt(self, arena: Arena, state: OneOfState, moved: Callable[[Any, Arena, Any], Any]) -> OneOfState:
        """Return the state after ``moved``, where each algorithm learns once."""
        asked: list[Any] = []
        for own, part in self._split(state):
            try:
                moved(own, Asking(surrogate=arena.surrogate, horizon=arena.horizon), part)
            except Asked as request:
                asked += request.args
        known = arena.learn(state.posterior, self._of(asked))
        knowing = Knowing(surrogate=arena.surrogate, horizon=arena.horizon, known=known)
        return self._joined(arena, [moved(own, knowing, part) for own, part in self._split(state)])

    def init(self, arena: Arena) -> OneOfState:
        return self._joined(arena, [algorithm.init(arena) for algorithm in self.algorithms])

    def reveal(self, arena: Arena, state: OneOfState, sample: jax.Array, t: jax.Array) -> OneOfState:
        return self._joined(arena, [own.reveal(arena, part, sample, t) for own, part in self._split(state)])

    def select(self, arena: Arena, state: OneOfState, t: jax.Array, key: jax.Array) -> tuple[Decision, OneOfState]:
        made = [own.select(arena, part, t, key) for own, part in self._split(state)]
        chosen = Decision(
            index=self._of([decision.index for decision, _ in made]),
            widths=self._of([decision.widths for decision, _ in made]),
            flags=self._of([jnp.asarray(decision.flags, jnp.int32) for decision, _ in made]),
            draws=tuple(decision.draws for decision, _ in made),
        )
        parts = tuple(with_posterior(part, None) for _, part in made)
        return chosen, jaxbandit.replace(state, parts=parts)

    def update(self, arena: Arena, state: OneOfState, observation: Any, t: jax.Array) -> OneOfState:
        return self._learnt(arena, state, lambda own, known, part: own.update(known, part, observation, t))

    def learn(self, arena: Arena, state: OneOfState, observation: Any) -> OneOfState:
        return self._learnt(arena, state, lambda own, known, part: own.learn(known, part, observation))

    def diagnose(self, state: OneOfState) -> Shown:
        flags = self._of([jnp.asarray(own.diagnose(part).get("flags", 0), jnp.int32) for own, part in self._split(state)])
        return {"multipliers": state.multipliers, "flags": flags}


def play(
    problem: Any, algorithms: Mapping[str, Any], surrogate: Any, *, trials: Any, policies: tuple[Policy, ...] = (), **options: Any
) -> dict[str, Any]:
    """Return every algorithm's run from one program, as NumPy arrays.

    Diagnostics that stopping algorithms add are dropped. Trials run one at a time unless ``block`` is given, because a program without
    a batch is traced in half of the time. A sweep of an algorithm may stand in its place, and its variants lie along the first axis.
    Under several ``policies`` an algorithm has a run under each, along the first axis.
    """
    members = {name: item.unstack() if isinstance(item, Sweep) else [item] for name, item in algorithms.items()}
    first = [variants[0] for variants in members.values()]
    late = [OnePolicyOf(policies=policies, which=float(number)) for number in range(len(policies))] or [Wait()]
    rows = [
        OneOf(algorithms=(*first[:number], own, *first[number + 1 :]), which=float(number), policy=policy)
        for number, variants in enumerate(members.values())
        for own in variants
        for policy in late
    ]
    chosen = gather_variants([jaxbandit.canonicalise(row) for row in rows])
    count = trials if isinstance(trials, int) else len(trials)
    # Branches of rows differ in a batch.
    together = any(form.name == "rows" for form in surrogate.forms)
    options = {"trials": trials, "block": count * len(rows) if together else 1, **options}
    run = jax.tree.map(np.asarray, jaxbandit.simulate(problem, chosen, surrogate, **options))
    draws = run.draws if run.draws is not None else (None,) * len(algorithms)
    every, found, start = jaxbandit.replace(run, draws=None), {}, 0
    for (name, item), own in zip(algorithms.items(), draws, strict=True):
        end = start + len(members[name]) * len(late)
        place = slice(start, end) if isinstance(item, jaxbandit.Sweep) or policies else start
        here = jax.tree.map(lambda x, place=place: x[place], every)
        found[name] = jaxbandit.replace(here, draws=None if own is None else own[place])
        start = end
    return found
