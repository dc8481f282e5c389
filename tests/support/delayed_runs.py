"""Runs of one small problem with late feedback."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit
from jaxbandit import delays, domains, estimators, feedback, kernels, problems
from jaxbandit.engine.programs import play_all
from tests.oracles import delayed_policies
from tests.oracles import gaussian_process as gp

HORIZON, TRIALS, NOISE, LENGTH_SCALE = 12, 5, 0.05, 0.3
KEY = jax.random.key(3)
WINDOW, MINIMUM = 2, -1.0
POLICIES = {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor(window=WINDOW, minimum=MINIMUM)}
WIDTHS = (1.5, 1.0)


@jaxbandit.pytree
class Faulty(problems.Noise):
    """Gaussian noise with a constraint of NaN in some rounds.

    The rate is data, so one program serves all.
    """

    rate: Any = 0.0

    def draw(self, key: jax.Array, outputs: int, dtype: Any) -> jax.Array:
        noise = np.sqrt(NOISE) * jax.random.normal(key, (outputs,), dtype)
        return noise.at[1].set(jnp.where(self.strikes(key), jnp.nan, noise[1]))

    def strikes(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, 1), dtype=jnp.float32) < jnp.asarray(self.rate, jnp.float32)

    def apply(self, drawn: jax.Array, index: jax.Array) -> jax.Array:
        return drawn


@functools.cache
def tables() -> tuple[domains.Domain, np.ndarray]:
    rng = np.random.default_rng(0)
    domain = domains.product([np.sort(rng.random(6)), np.sort(rng.random(5))])
    means = rng.standard_normal((2, domain.size))
    return domain, np.stack([means[0], means[1] + 0.3])


def problem(rate: float = 0.0) -> problems.Problem:
    domain, means = tables()
    return problems.from_tables(domain, means[0], means[1:], noise=Faulty(rate=rate))


def surrogate() -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return jaxbandit.surrogate(tables()[0], kernel, noise_variance=NOISE, outputs=2, form="features")


RPOL = jaxbandit.Rpol(estimator=estimators.Bounds(reward_width=WIDTHS[0], cost_width=WIDTHS[1]))


def simulate(*, rate: float = 0.0, algorithm: Any = RPOL, policy: str = "wait", **options: Any) -> Any:
    """A run in float64, side by side unless told otherwise."""
    options = {"trials": TRIALS, "block": TRIALS, "feedback": POLICIES[policy], **options}
    with jax.enable_x64(True):
        run = jaxbandit.simulate(problem(rate), algorithm, surrogate(), horizon=HORIZON, key=KEY, **options)
        return jax.tree.map(np.asarray, run)


def geometric(mean: float) -> delays.Geometric:
    """Geometric delay that can be late but never is.

    ``P(delay > n) = (mean / (1 + mean))^(n + 1)`` with mean 1e-9.
    """
    return delays.Geometric(mean=mean)


@functools.cache
def late(policy: str) -> Any:
    """Return the run that most tests share, with a slot a round.

    Other tests run its program on other data.
    """
    return simulate(policy=policy, delay=geometric(2.0), capacity=HORIZON)


@functools.cache
def immediate() -> Any:
    return simulate()


def traces(run: Callable[[], Any]) -> int:
    before = play_all._cache_size()
    run()
    return play_all._cache_size() - before


def assert_same(a: Any, b: Any, *, tolerance: float = 0.0) -> None:
    """Equal integers, and floats within ``tolerance``."""
    left, right = jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b)
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, x), (_, y) in zip(left, right, strict=True):
        label = jax.tree_util.keystr(path)
        assert x.dtype == y.dtype, label
        if np.issubdtype(x.dtype, np.integer) or tolerance == 0:
            np.testing.assert_array_equal(x, y, err_msg=label)
        else:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=label)


def model() -> delayed_policies.Model:
    """Beliefs of the learner, for the reference."""
    points = tables()[0].points
    gram = gp.squared_exponential(points, points, LENGTH_SCALE)
    return delayed_policies.Model(np.stack([gram] * 2), np.full(2, NOISE), np.zeros(2), lambda t, gain, recent: np.array(WIDTHS))
