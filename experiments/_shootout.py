"""The shoot-out's problems with their models, its algorithms, and which algorithm fits which problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments import _zj22
from experiments._experiment import Options
from experiments.scgp import bounds_of_instance
from jaxbandit.delays import Poisson
from jaxbandit.engine import Informed
from jaxbandit.estimators import Bounds, Randomised, Thompson
from jaxbandit.feedback import Censor, Hallucinate
from jaxbandit.informed import BestPoint
from jaxbandit.kernels import Kernel, Matern52, Scale, SquaredExponential
from jaxbandit.problems import Family
from jaxbandit.study import Run
from jaxbandit.widths import Censored

MEAN_DELAY = 15.0
WINDOW = 30  # of what censors
NOISE_VARIANCE = 0.0025  # of problems scaled to unit variance
WIDTH_OF_DRAWS = 6.0  # of unconstrained learners on interpolants of norm 10, as in ``delay-sweep``
START = 2  # points before ADMMBO's first round
INTERVAL_POINTS = 100
LEAST_RANK = 32  # of the features: one number for all problems on the interval


@dataclasses.dataclass(frozen=True)
class Arena:
    """A problem, the model that all algorithms have of it, and the kind of problem that it is.

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
        """Return a model with one factor for all outputs, which some algorithms need, and with joint draws, which others need.

        Features of zeros, which change nothing, fill its rank up to a power of two: equal shapes are one compiled program.
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
        return jb.replace(surrogate, forms=(jb.replace(form, phi=jnp.pad(form.phi, ((0, 0), (0, missing)))),))

    def tabulated(self, options: Options) -> Arena:
        """Return the arena without what distinguishes programs, but not problems: the name, and how a family draws its instances."""

        def plain(problem: Any) -> Any:
            return Instances.of(problem, options) if problem.is_random else problem

        if self.kind == "box" and not self.problem.is_random:
            return dataclasses.replace(self, problem=jb.replace(self.problem, name="box"))
        return dataclasses.replace(self, problem=plain(self.problem), shifted=None if self.shifted is None else plain(self.shifted))


@dataclasses.dataclass(frozen=True)
class Contestant:
    """An algorithm, what it is told of an instance, what it does while feedback is late, and the kinds of problems it fits."""

    algorithm: Any
    kinds: tuple[str, ...]
    informed: Informed | None = None
    feedback: Any = None
    initial: jb.InitialDesign = jb.InitialDesign()


def safe_point_of_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Tell an algorithm with a safe set one safe point, not the safest: on some problems that is the best."""
    return jb.replace(algorithm, seeds=_zj22.typical_safe_point(instance)[None]), surrogate


@jb.pytree
class Instances(Family):
    """The instances that a family gives to the trials of a study, as tables: all families are then one compiled program.

    Attributes:
      domain, noise, delay: the family's.
      keys: ``[n, ...]`` data of the keys that the trials ask by.
      means: ``[n, 1 + m, M]``; NaN, which fails the trial, stands for a key that is not among them.
    """

    domain: Any
    keys: Any
    means: Any
    noise: Any
    delay: Any
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
        """Return the instances of a study with these options."""
        root = jax.random.key(options.seed)
        keys = jax.vmap(lambda i: jb.keys.stream_key(jb.keys.trial_key(root, i), jb.keys.Stream.PROBLEM))(jnp.arange(options.trials))
        means = jax.jit(jax.vmap(lambda key: family.sample(key).means))(keys)
        tables: dict[str, Any] = {"keys": np.asarray(_bits(keys)), "means": np.asarray(means)}
        return Instances(domain=family.domain, noise=family.noise, delay=family.delay, **tables)


def _bits(key: jax.Array) -> jax.Array:
    """Return the data of a key as signed integers, which the whole library has."""
    return jax.lax.bitcast_convert_type(jax.random.key_data(key), jnp.int32)


BANDIT = ("box", "arms", "late")  # feedback on the point chosen, on all outputs
EVERYWHERE = (*BANDIT, "revealed", "late, free")


def _bounds(width: Any) -> Bounds:
    return Bounds(reward_width=width, cost_width=width)


def contestants() -> dict[str, Contestant]:
    """Return all algorithms, with width 3 where there is one, otherwise with the defaults."""

    def cautious(algorithm: Any) -> Contestant:
        return Contestant(algorithm, BANDIT, safe_point_of_instance)

    def clipped(estimator: Any) -> Contestant:
        return Contestant(jb.Cbo(estimator=estimator), BANDIT, _zj22.clip_to_instance)

    free = ("late, free",)
    ucb = jb.Unconstrained(estimator=_bounds(WIDTH_OF_DRAWS))
    return {
        "RPOL": Contestant(jb.Rpol(), BANDIT),
        "RPOL censored": Contestant(jb.Rpol(estimator=_bounds(Censored())), ("late",), feedback=Censor(window=WINDOW)),
        "RPOL hallucinating": Contestant(jb.Rpol(), ("late",), feedback=Hallucinate()),
        "CONFIG": Contestant(jb.Config(), BANDIT),
        "EPBO": Contestant(jb.Epbo(), BANDIT),
        "CBO-UCB": clipped(Bounds()),
        "CBO-TS": clipped(Thompson()),
        "CBO-Rand": clipped(Randomised()),
        "Primal-dual": Contestant(jb.PrimalDual(), BANDIT),
        "SE22 Alg. 2": Contestant(jb.Se2(), BANDIT),
        "SE22 Alg. 3": Contestant(jb.Se3(), BANDIT),
        "SCGP-UCB": Contestant(jb.Scgp(), ("revealed",), bounds_of_instance),
        "CEI": Contestant(jb.Cei(), BANDIT),
        "Thompson": Contestant(jb.ConstrainedThompson(), BANDIT),
        "SafeOpt": cautious(jb.SafeOpt()),
        "StageOpt": cautious(jb.StageOpt()),
        "SGP-UCB": cautious(jb.SgpUcb()),
        "ADMMBO": Contestant(jb.Admmbo(), ("box",), initial=jb.InitialDesign(random=START)),
        "OCO": Contestant(jb.Oco(), ("box",)),
        "GP-UCB": Contestant(ucb, ("box", "arms", *free)),
        "GP-TS": Contestant(jb.Unconstrained(estimator=Thompson()), free),
        "GP-BUCB": Contestant(ucb, free, feedback=Hallucinate()),
        "GP-UCB-SDF": Contestant(jb.Unconstrained(estimator=_bounds(Censored(base=WIDTH_OF_DRAWS))), free, feedback=Censor(window=WINDOW)),
        "BPE": Contestant(jb.Bpe(aware=False), free),
        "BPE-Delay": Contestant(jb.Bpe(), free),
        "Random": Contestant(jb.RandomSearch(), EVERYWHERE),
        "Oracle": Contestant(jb.Oracle(), ("box", "arms", "revealed"), BestPoint()),
    }


def artificial(name: str, points: int) -> Arena:
    """Return P1 to P6 with reward and constraint in standard deviations, the length-scale of their authors' scripts."""
    problem = jb.problems.artificial(name, points, standardised=True, noise_variance=NOISE_VARIANCE)
    reward, constraint = np.asarray(problem.means)
    problem = jb.replace(problem, means=np.stack([reward, constraint / constraint.std()]))
    return Arena(name, problem, SquaredExponential(length_scale=3.0), NOISE_VARIANCE)


def arms(name: str, data: Callable[..., Any]) -> Arena:
    """Return a made-up data set in units of its bound ``B``."""
    scaled = data(scale=data().bound)
    return Arena(name, scaled.problem, scaled.kernel, float(np.mean(np.square(scaled.problem.noise.table))), "arms")


def draws(points: int) -> Arena:
    """Return late rewards of interpolants, and the same functions with minimum 0."""
    noise, delay = jb.problems.Gaussian.from_sd(0.02), Poisson(mean=MEAN_DELAY)
    either = [jb.problems.rkhs_2d_draws("f1", points, noise=noise, delay=delay, shift_to_zero=shift) for shift in (False, True)]
    return Arena("interpolants, late", either[0], SquaredExponential(length_scale=0.8), 0.02**2, "late, free", either[1])


def gaussian_process() -> Arena:
    """Return functions drawn as in ``config-gp``, on fewer points."""
    kernel = Scale(kernel=SquaredExponential.from_bandwidth(1.0), variance=2.0)
    problem = jb.problems.gp_draws(domain=jb.domains.grid([-5.0], [5.0], INTERVAL_POINTS), kernel=kernel)
    return Arena("GP draws", problem, kernel, NOISE_VARIANCE)


def artificial_named(name: str) -> Callable[[int], Arena]:
    """Return what makes one of P1 to P6."""
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


def runs(options: Options) -> Iterator[Run]:
    """Return the runs of every chosen algorithm on every chosen problem that it fits."""
    everybody = {name: who for name, who in contestants().items() if name in options.extra["algorithms"]}
    for name in options.extra["problems"]:
        arena = PROBLEMS[name](options.points_per_axis).tabulated(options)
        model = arena.model(options.horizon)
        for label, who in everybody.items():
            if arena.kind not in who.kinds:
                continue
            yield Run(
                label=f"{name}: {label}",
                problem=arena.shifted if isinstance(who.feedback, Censor) and arena.shifted is not None else arena.problem,
                algorithm=who.algorithm,
                model=model,
                feedback=who.feedback,
                informed=who.informed,
                initial=who.initial,
            )
