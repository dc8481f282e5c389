"""A learner that a program of the user's own asks and tells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key

PROBLEM = jb.problems.sine(10)
MODEL = PROBLEM.model(jb.kernels.SquaredExponential(length_scale=1.0))
HORIZON, TRIALS = 12, 3


@pytest.mark.full(but=("cbo",))
@pytest.mark.parametrize("algorithm", [jb.Rpol(), jb.Cei(), jb.Cbo(estimator=jb.estimators.Thompson())], ids=["rpol", "cei", "cbo"])
def test_a_loop_of_ones_own_chooses_as_simulate_does(algorithm: jb.Algorithm) -> None:
    root = jax.random.key(5)
    learner = jb.Learner.of(algorithm, MODEL, horizon=HORIZON)

    def trial(learner: jb.Learner, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = trial_key(root, number)

        def turn(state: jb.LearnerState, t: jax.Array) -> tuple[jb.LearnerState, jax.Array]:
            point, state = learner.ask(state, round_key(stream_key(key, Stream.POLICY), t))
            values = PROBLEM.observe(point, PROBLEM.draw(round_key(stream_key(key, Stream.NOISE), t)))
            return learner.tell(state, point, values), point

        last, points = jax.lax.scan(turn, learner.init(), jnp.arange(1, HORIZON + 1, dtype=jnp.int32))
        return points, last.status

    points, status = jax.jit(jax.vmap(trial, in_axes=(None, 0)))(learner, jnp.arange(TRIALS))
    run = jb.simulate(PROBLEM, algorithm, MODEL, horizon=HORIZON, trials=TRIALS, key=root)
    np.testing.assert_array_equal(points, run.indices)
    np.testing.assert_array_equal(status, run.status)


def test_a_value_that_is_not_finite_is_flagged() -> None:
    learner = jb.Learner.of(jb.Rpol(), MODEL, horizon=HORIZON)
    point, state = learner.ask(learner.init(), jax.random.key(0))
    tell = jax.jit(lambda values: learner.tell(state, point, values).status)
    assert tell(jnp.array([1.0, -0.5])) == jb.Status.OK
    assert tell(jnp.array([jnp.nan, 0.0])) & jb.Status.NONFINITE_FEEDBACK
    with pytest.raises(jb.InvalidArgument, match="values: 1 of 2 values are NaN or infinite"):
        learner.tell(state, point, jnp.array([jnp.nan, 0.0]))


def test_what_it_cannot_run_is_refused_by_name() -> None:
    box = jb.domains.box({"x": (0.0, 1.0)})
    on_box = jb.surrogate(box, jb.kernels.Matern52(length_scale=0.5), noise_variance=0.1, precision="float32")
    with pytest.raises(jb.InvalidArgument, match="model: must be on a finite domain"):
        jb.Learner.of(jb.Rpol(), on_box, horizon=HORIZON)
    with pytest.raises(jb.InvalidArgument, match="algorithm: Scgp sees a constraint function"):
        jb.Learner.of(jb.Scgp(), MODEL, horizon=HORIZON)
    with pytest.raises(jb.InvalidArgument, match="horizon"):
        jb.Learner.of(jb.Rpol(), MODEL, horizon=0)
    rows = jb.surrogate(PROBLEM.domain, jb.kernels.Matern52(length_scale=1.0), noise_variance=0.1, form="rows", horizon=HORIZON - 1)
    with pytest.raises(jb.InvalidArgument, match="row cache holds 11"):
        jb.Learner.of(jb.Rpol(), rows, horizon=HORIZON)
    learner = jb.Learner.of(jb.Rpol(), MODEL, horizon=HORIZON)
    with pytest.raises(jb.InvalidArgument, match="values: must be the reward and 1 constraints"):
        learner.tell(learner.init(), jnp.int32(0), jnp.zeros(3))


def test_points_of_a_context_are_asked_for() -> None:
    grid = jb.domains.grid([0.0], [1.0], 5)
    domain = jb.domains.with_contexts(grid, jb.domains.grid([0.0], [2.0], 3))
    model = jb.surrogate(domain, jb.kernels.SquaredExponential(length_scale=0.5), noise_variance=0.1)
    learner = jb.Learner.of(jb.Rpol(), model, horizon=HORIZON)
    state = learner.init()
    for context in (2, 0, 1):
        point, state = learner.ask(state, jax.random.key(context), jnp.int32(context))
        assert 5 * context <= int(point) < 5 * (context + 1)
        state = learner.tell(state, point, jnp.array([1.0, -0.5]))
    with pytest.raises(jb.InvalidArgument, match="context: the domain has contexts, got None"):
        learner.ask(state, jax.random.key(0))
    with pytest.raises(jb.InvalidArgument, match="context: the domain has no contexts"):
        jb.Learner.of(jb.Rpol(), MODEL, horizon=HORIZON).ask(state, jax.random.key(0), jnp.int32(0))
