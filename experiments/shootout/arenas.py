"""The problems of the shoot-out, with their models and kinds.

All algorithms have the same model of a problem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Options
from jaxbandit.delays import Delay, Poisson
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel, Matern52, Scale, SquaredExponential
from jaxbandit.problems import Family, Noise

MEAN_DELAY = 15.0
# Noise variance of problems scaled to unit variance.
NOISE_VARIANCE = 0.0025
# Number of points before ADMMBO's first round.
START = 2
INTERVAL_POINTS = 100
# Least rank of the features, so that all problems on the interval share one.
LEAST_RANK = 32


@jb.pytree
class Instances(Family):
    """The instances of a family for a study's trials, as tables.

    All families are then one compiled program.

    Attributes:
      domain, noise, delay: the family's.
      keys: ``[n, ...]`` data of the keys that the trials ask by.
      means: ``[n, 1 + m, M]``; NaN, which fails the trial, stands for a key that is not among them.
    """

    domain: Domain
    keys: Any
    means: Any
    noise: Noise
    delay: Delay
    name: str = jb.static(default="instances")

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m``."""
        return int(np.shape(self.means)[1]) - 1

    def sample(self, key: jax.Array) -> jb.problems.Problem:
        """Return the instance that belongs to ``key``."""
        same = jnp.all(jnp.asarray(self.keys) == _bits(key)[None], axis=1)
        means = jnp.where(jnp.any(same), jnp.asarray(self.means)[jnp.argmax(same)], jnp.nan)
        return jb.problems.Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, name=self.name)

    @staticmethod
    def of(family: Family, options: Options) -> Instances:
        """Return the instances that a family gives to a study."""

        @jax.jit
        def tables(root: jax.Array) -> dict[str, Any]:
            keys = jax.vmap(lambda i: jb.keys.stream_key(jb.keys.trial_key(root, i), jb.keys.Stream.PROBLEM))(jnp.arange(options.trials))
            return {"keys": _bits(keys), "means": jax.vmap(lambda key: family.sample(key).means)(keys)}

        found = jax.tree.map(np.asarray, tables(jax.random.key(options.seed)))
        return Instances(domain=family.domain, noise=family.noise, delay=family.delay, **found)


def _bits(key: jax.Array) -> jax.Array:
    """Return the data of a key as signed integers."""
    return jax.lax.bitcast_convert_type(jax.random.key_data(key), jnp.int32)


@dataclasses.dataclass(frozen=True)
class Arena:
    """A problem, its kind, and all algorithms' model of it.

    ``kind``: ``"box"``; ``"arms"``, where points have no distance; ``"revealed"``, whose constraints are seen before the choice;
    ``"late"``; or ``"late, free"``, without constraints. ``shifted`` is the problem for those who take missing rewards for 0.
    """

    name: str
    problem: Any
    kernel: Kernel
    noise_variance: float
    kind: str = "box"
    shifted: Any = None

    def model(self, horizon: int) -> jb.Surrogate:
        """Return a model with one factor and joint draws.

        Some algorithms need one factor for all outputs, and others need joint draws. Features of zeros, which change nothing, fill its rank
        up to a power of two: equal shapes are one compiled program.
        """
        surrogate = jb.surrogate(
            self.problem.domain,
            self.kernel,
            noise_variance=self.noise_variance,
            outputs=self.problem.outputs,
            horizon=horizon + START,
            form="features",
        )
        (form,) = surrogate.forms
        missing = max(LEAST_RANK, 2 ** int(np.ceil(np.log2(form.rank)))) - form.rank
        return jb.replace(surrogate, forms=(jb.replace(form, phi=np.pad(form.phi, ((0, 0), (0, missing)))),))

    def tabulated(self, options: Options) -> Arena:
        """Return the same problem without its name and its sampling."""

        def plain(problem: Any) -> Any:
            return Instances.of(problem, options) if problem.is_random else problem

        if self.kind == "box" and not self.problem.is_random:
            return dataclasses.replace(self, problem=jb.replace(self.problem, name="box"))
        return dataclasses.replace(self, problem=plain(self.problem), shifted=None if self.shifted is None else plain(self.shifted))


def artificial(name: str, points: int) -> Arena:
    """Return one of P1 to P6, in standard deviations.

    Reward and constraint are scaled. The length-scale is that of the authors' scripts.
    """
    problem = jb.problems.artificial(name, points, standardised=True, noise_variance=NOISE_VARIANCE)
    reward, constraint = np.asarray(problem.means)
    problem = jb.replace(problem, means=np.stack([reward, constraint / constraint.std()]))
    return Arena(name, problem, SquaredExponential(length_scale=3.0), NOISE_VARIANCE)


def arms(name: str, data: Callable[..., Any]) -> Arena:
    """Return a made-up data set in units of its bound ``B``."""
    scaled = data(scale=data().bound)
    return Arena(name, scaled.problem, scaled.kernel, float(np.mean(np.square(scaled.problem.noise.table))), "arms")


def draws(points: int) -> Arena:
    """Return interpolants with minimum 0 whose rewards come late."""
    noise, delay = jb.problems.Gaussian.from_sd(0.02), Poisson(mean=MEAN_DELAY)
    either = [jb.problems.rkhs_2d_draws("f1", points, noise=noise, delay=delay, shift_to_zero=shift) for shift in (False, True)]
    return Arena("interpolants, late", either[0], SquaredExponential(length_scale=0.8), 0.02**2, "late, free", either[1])


def gaussian_process() -> Arena:
    """Return functions drawn as in ``config-gp``, on fewer points."""
    kernel = Scale(kernel=SquaredExponential.from_bandwidth(1.0), variance=2.0)
    problem = jb.problems.gp_draws(domain=jb.domains.grid([-5.0], [5.0], INTERVAL_POINTS), kernel=kernel)
    return Arena("GP draws", problem, kernel, NOISE_VARIANCE)


def artificial_named(name: str) -> Callable[[int], Arena]:
    """Return a function that makes one of P1 to P6."""
    return lambda points: artificial(name, points)


# The problems by name, each made from points per axis in two dimensions; in more there are fewer, so that the sizes are alike.
# Those of equal shape stand together.
PROBLEMS: dict[str, Callable[[int], Arena]] = {
    "sine": lambda n: Arena("sine", jb.problems.sine(n), SquaredExponential(length_scale=1.0), 0.05),
    **{name: artificial_named(name) for name in jb.problems.ARTIFICIAL},
    "RKHS": lambda n: Arena("RKHS", jb.problems.rkhs_1d(INTERVAL_POINTS), SquaredExponential(length_scale=0.2), 0.01),
    "binding RKHS": lambda n: Arena(
        "binding RKHS", jb.problems.rkhs_1d_binding(INTERVAL_POINTS), SquaredExponential(length_scale=0.2), 0.01
    ),
    "GP draws": lambda n: gaussian_process(),
    "building": lambda n: Arena(
        "building",
        jb.problems.building(round(n ** (2 / 3)), noise_variance=NOISE_VARIANCE),
        SquaredExponential(length_scale=jnp.asarray([1.0, 1.5, 1.5])),
        NOISE_VARIANCE,
    ),
    "data rate": lambda n: Arena("data rate", jb.problems.data_rate(round(n**0.5)), Matern52(length_scale=1.0), 0.01),
    "light*": lambda n: arms("light*", jb.problems.light_synthetic),
    "stocks*": lambda n: arms("stocks*", jb.problems.stocks_synthetic),
    "queueing": lambda n: Arena("queueing", jb.problems.queueing(n), SquaredExponential(length_scale=0.5), 0.01, "revealed"),
    "sine, late": lambda n: Arena(
        "sine, late", jb.problems.sine_delayed(n, mean_delay=MEAN_DELAY), SquaredExponential(length_scale=1.0), 0.05, "late"
    ),
    "interpolants, late": draws,
}
