"""Steps of algorithms under beliefs of the dense float64 reference.

A program of one algorithm so is a sixth of a trial's, and what fails in it is the algorithm: posteriors come from
``tests.oracles.gaussian_process``, whatever JAX makes of them elsewhere. Keys and noise are those of :func:`jaxbandit.simulate`.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from jaxbandit.algorithms import Arena, Observation
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.engine.learner import choose_point, faults, flags_raised, may_be_infinite, policy_key
from jaxbandit.engine.trial import multipliers_of
from jaxbandit.surrogates.posterior import AbstractSurrogate, Belief
from tests.oracles import bandit
from tests.oracles import gaussian_process as gp

# Noise is drawn for so many rounds, so runs of any length share a program.
ROUNDS, DESIGNED = 64, 8
# Programs need not hold matrices of the reference or copy them to callbacks.
MODELS: list[bandit.Model] = []


@jaxbandit.pytree
class Remembered:
    """All observations so far."""

    indices: jax.Array  # [n]
    values: jax.Array  # [n, k]
    count: jax.Array  # []


@jaxbandit.pytree
class DenseReference(AbstractSurrogate):
    """Beliefs that NumPy computes from all observations in every round."""

    posteriors = Remembered
    own: jaxbandit.Surrogate
    number: Any  # [] int32 of the reference's model, in ``MODELS``
    empty: Any  # [n] room for observations

    @property
    def model(self) -> jaxbandit.Surrogate:
        return self.own

    @property
    def domain(self) -> jaxbandit.domains.Domain:
        return self.own.domain

    def init(self) -> Remembered:
        room = self.empty.shape[0]
        return Remembered(indices=jnp.zeros(room, jnp.int32), values=jnp.zeros((room, self.outputs)), count=jnp.int32(0))

    def condition(self, posterior: Remembered, index: jax.Array, values: jax.Array) -> Remembered:
        place = posterior.count
        return Remembered(indices=posterior.indices.at[place].set(index), values=posterior.values.at[place].set(values), count=place + 1)

    def belief(self, posterior: Remembered) -> "DenseBelief":
        shape = self.outputs, self.domain.size
        mean, sd, gained = self.worked_out(_beliefs, [shape, shape, shape[:1]], posterior)
        return DenseBelief(mean=mean, sd=sd, gain=gained, model=self.own, posterior=posterior, reference=self)

    def worked_out(self, function: Any, shapes: list[tuple[int, ...]], posterior: Remembered, *given: Any) -> list[jax.Array]:
        """The arrays ``function`` gives, of some ``shapes``, for the observations so far.

        Floats go both ways as bits: a callback runs in a thread in which 64 bits are not switched on, where JAX makes them float32. Arrays
        are small: JAX copies one of 100 kB in another thread of its pool, for which the callback waits in vain on one core.
        """
        bits = [jax.lax.bitcast_convert_type(x, jnp.uint32) for x in (posterior.values, *given)]
        made = [jax.ShapeDtypeStruct((*shape, 2), "uint32") for shape in shapes]
        found = jax.pure_callback(functools.partial(_in_bits, function), made, self.number, posterior.indices, posterior.count, *bits)
        return [jax.lax.bitcast_convert_type(x, jnp.float64) for x in found]


@jaxbandit.pytree
class DenseBelief(Belief):
    """Belief of the reference, whose draws and covariances NumPy works out, too."""

    posterior: Any
    reference: DenseReference

    def draw(self, key: jax.Array, scale: jax.Array) -> jax.Array:
        return self.reference.worked_out(_drawn, [self.mean.shape], self.posterior, jax.random.normal(key, self.mean.shape), scale)[0]

    def covariance(self, output: int, indices: jax.Array) -> jax.Array:
        shape = (self.domain.size,) * 2
        return self.reference.worked_out(functools.partial(_covariance, output), [shape], self.posterior)[0][indices]


def _in_bits(function: Any, number: Any, indices: Any, count: Any, *bits: Any) -> list[np.ndarray]:
    """Return ``function`` of the observations, without unused room."""
    values, *given = (np.asarray(x).view(np.float64)[..., 0] for x in bits)
    seen = slice(0, int(count))
    found = function(MODELS[int(number)], np.asarray(indices)[seen], values[seen], *given)
    return [np.ascontiguousarray(x)[..., None].view(np.uint32) for x in found]


def _beliefs(model: bandit.Model, indices: Any, values: Any) -> tuple[np.ndarray, ...]:
    return gp.beliefs(model.grams, indices, values, model.noise, model.prior_mean)


def _covariance(output: int, model: bandit.Model, indices: Any, values: Any) -> tuple[np.ndarray, ...]:
    return (gp.posterior(model.grams[output], indices, values[:, output], model.noise[output], model.prior_mean[output])[1],)


def _drawn(model: bandit.Model, indices: Any, values: Any, normals: Any, scale: Any) -> tuple[np.ndarray, ...]:
    drawn = []
    for j, gram in enumerate(model.grams):
        mean, covariance = gp.posterior(gram, indices, values[:, j], model.noise[j], model.prior_mean[j])
        drawn.append(mean + scale[j] * np.linalg.cholesky(covariance + 1e-9 * np.eye(len(gram))) @ normals[j])
    return (np.stack(drawn),)


@jax.jit
def _drawn_beforehand(problem: Any, key: jax.Array, number: jax.Array) -> Any:
    """Return keys and noise of every round, and the design's noise."""
    trial, rounds, design = trial_key(key, number), jnp.arange(ROUNDS, dtype=jnp.int32) + 1, jnp.arange(DESIGNED, dtype=jnp.int32) + 1

    def keys(stream: Stream, numbers: jax.Array) -> jax.Array:
        return jax.vmap(round_key, (None, 0))(stream_key(trial, stream), numbers)

    noise = jax.vmap(problem.draw)(jnp.concatenate([keys(Stream.NOISE, rounds), keys(Stream.DESIGN, design)]))
    return jax.vmap(policy_key, (None, 0))(trial, rounds), noise, jax.tree.map(lambda x: x[ROUNDS:], noise)


@jax.jit
def _trial(problem: Any, algorithm: Any, arena: Arena, rounds: jax.Array, drawn: Any, design: jax.Array) -> dict[str, Any]:
    """One trial, whose initial design comes first."""
    keys, noise, before = drawn
    (keys, noise), before = jax.tree.map(lambda x: x[: len(rounds)], (keys, noise)), jax.tree.map(lambda x: x[: len(design)], before)
    values = jax.vmap(problem.observe)(design, before) if len(design) else jnp.zeros((0, 1 + arena.constraints))
    state = algorithm.init(arena)
    infinite = may_be_infinite(state)
    state, _ = jax.lax.scan(
        lambda now, seen: (algorithm.learn(arena, now, Observation(index=seen[0], values=seen[1])), None), state, (design, values)
    )
    state = algorithm.begin(arena, state) if len(design) else state

    def one_round(now: Any, given: Any) -> Any:
        t, key, own = given
        multipliers = multipliers_of(algorithm, now, arena)
        if algorithm.traits.sees_constraints:
            now = algorithm.reveal(arena, now, problem.constraint_sample(own), t)
        choice = choose_point(algorithm, arena, now, t, key)
        index, decision = choice.point, choice.decision
        observed = problem.observe(index, own)
        now = algorithm.update(arena, choice.state, Observation(index=index, values=observed), t)
        failed = jnp.stack(list(faults(arena, choice, now, infinite).values())).any()
        flags = flags_raised(algorithm, decision, now)
        return now, (index, observed, multipliers, decision.widths, decision.draws, flags, failed)

    first_of_groups = np.unique(arena.surrogate.model.groups, return_index=True)[1]
    state, (indices, observed, multipliers, widths, draws, flags, failed) = jax.lax.scan(one_round, state, (rounds, keys, noise))
    infeasible = (flags & int(jaxbandit.Status.DECLARED_INFEASIBLE)) != 0
    return {
        "indices": indices,
        "values": observed,
        "multipliers": jnp.concatenate([multipliers, multipliers_of(algorithm, state, arena)[None]]),
        "widths": widths,
        "draws": draws,
        "status": jax.lax.reduce(flags, jnp.int32(0), jax.lax.bitwise_or, (0,)),
        "failed_round": jnp.where(failed.any(), jnp.argmax(failed) + 1, 0),
        "declared_round": jnp.where(infeasible.any(), jnp.argmax(infeasible) + 1, 0),
        "information_gain": algorithm.belief(arena, state).gain[first_of_groups],
        "initial_indices": design,
        "initial_values": values,
    }


def play(
    problem: Any,
    algorithms: Mapping[str, Any],
    model: bandit.Model,
    own: jaxbandit.Surrogate,
    *,
    horizon: int,
    trials: int,
    key: jax.Array,
    initial: tuple[int, ...] = (),
) -> dict[str, jaxbandit.Trajectory]:
    """Return every algorithm's trials in float64, like ``panel.play``.

    ``own`` is the model in JAX.
    """
    assert horizon <= ROUNDS and len(initial) <= DESIGNED
    with jax.enable_x64(True):
        design, rounds = np.asarray(initial, np.int32).reshape(-1), np.arange(1, horizon + 1, dtype=np.int32)
        MODELS.append(model)
        known = DenseReference(own=own, number=np.asarray(len(MODELS) - 1, np.int32), empty=np.zeros(horizon + len(initial)))
        arena = jaxbandit.canonicalise(Arena(surrogate=known, horizon=np.asarray(horizon, np.int32)))
        problem = jaxbandit.canonicalise(problem)
        drawn = [_drawn_beforehand(problem, key, np.int32(number)) for number in range(trials)]
        found = {}
        for name, algorithm in algorithms.items():
            made = [_trial(problem, jaxbandit.canonicalise(algorithm), arena, rounds, now, design) for now in drawn]
            found[name] = jaxbandit.Trajectory(**jax.tree.map(lambda *x: np.stack(x), *made))
        return found
