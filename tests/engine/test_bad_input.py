"""Bad input raises ``InvalidArgument`` that names the argument, and nothing compiles before."""

import functools
import re

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Cbo, Config, InitialDesign, InvalidArgument, Rpol, Se2, domains, kernels, metrics, problems, replace, sweep, widths
from jaxbandit.engine import simulation
from jaxbandit.estimators import Bounds
from tests.support import panel

SE = kernels.SquaredExponential


class CompiledError(Exception):
    """Return what the guard raises where the program would be compiled."""


@pytest.fixture(autouse=True)
def guard(monkeypatch):
    """Stop at the entry of the compiled program."""

    def stop(*args, **kwargs):
        raise CompiledError

    monkeypatch.setattr(simulation, "play_all", stop)


GRID = domains.grid([0.0, 0.0], [1.0, 1.0], 3)
REWARD, COST = np.arange(9.0), np.arange(9.0) - 4


@functools.cache
def problem(constraints=1):
    return problems.from_tables(GRID, REWARD, np.stack([COST] * constraints) if constraints else np.zeros((0, 9)))


@functools.cache
def model(outputs=2):
    return jaxbandit.surrogate(GRID, SE(), noise_variance=0.1, outputs=outputs, form="features")


@functools.cache
def rough(horizon):
    """A row cache that holds ``horizon`` observations, fewer than the domain has points."""
    return jaxbandit.surrogate(domains.grid([0.0], [1.0], 80), kernels.Matern12(), noise_variance=0.1, form="rows", horizon=horizon)


def build(**changes):
    given = {"domain": GRID, "kernel": SE(), "noise_variance": 0.1} | changes
    return jaxbandit.surrogate(given.pop("domain"), given.pop("kernel"), **given)


def run(constraints=1, **changes):
    given = {"problem": problem(constraints), "algorithm": Rpol(), "surrogate": model(1 + constraints), "horizon": 3} | changes
    given = {"key": jax.random.key(0)} | given
    return jaxbandit.simulate(given.pop("problem"), given.pop("algorithm"), given.pop("surrogate"), **given)


def on(domain, **changes):
    """A run whose problem lives on ``domain`` and whose surrogate lives elsewhere."""
    here = problems.from_tables(domain, np.zeros(domain.size), np.zeros(domain.size))
    return run(problem=here, **changes)


def with_width(width, **kwargs):
    return run(algorithm=Rpol(estimator=Bounds(reward_width=width)), **kwargs)


def with_cost_width(width, constraints=1):
    return run(constraints, algorithm=Rpol(estimator=Bounds(cost_width=width)))


# (id, call, what the message must start with)
TABLES = [
    ("reward too short", lambda: problems.from_tables(GRID, REWARD[:8], COST), "reward: expected shape [9]"),
    ("reward two-dimensional", lambda: problems.from_tables(GRID, REWARD[None], COST), "reward: expected shape [9]"),
    ("reward a number", lambda: problems.from_tables(GRID, 1.0, COST), "reward: expected shape [9]"),
    ("constraint too long", lambda: problems.from_tables(GRID, REWARD, np.zeros(10)), "constraints: expected shape [*, 9]"),
    ("constraints transposed", lambda: problems.from_tables(GRID, REWARD, np.zeros((9, 2))), "constraints: expected shape [*, 9]"),
    ("constraints three-dimensional", lambda: problems.from_tables(GRID, REWARD, np.zeros((1, 1, 9))), "constraints: expected shape"),
    (
        "NaN reward",
        lambda: problems.from_tables(GRID, np.where(REWARD > 7, np.nan, 0), COST),
        "reward: 1 of 9 values are NaN or infinite, got",
    ),
    (
        "infinite cost",
        lambda: problems.from_tables(GRID, REWARD, np.full(9, -np.inf)),
        "constraints: 9 of 9 values are NaN or infinite, got",
    ),
    ("vector function", lambda: problems.from_functions(GRID, lambda x: x, [lambda x: x[0]]), "reward(x): expected shape [9]"),
    (
        "vector constraint",
        lambda: problems.from_functions(GRID, lambda x: x[0], [lambda x: x]),
        "constraints[0](x): expected shape [9], one number for each point x [d], got",
    ),
    (
        "infinite function",
        lambda: problems.from_functions(GRID, lambda x: 1 / x[0], []),
        "reward(x): 3 of 9 values are NaN or infinite, got",
    ),
    (
        "user's table of wrong shape",
        lambda: run(problem=replace(problem(), means=np.zeros((2, 8)))),
        "problem.means: expected shape [*, 9]",
    ),
    ("user's flat table", lambda: run(problem=replace(problem(), means=np.zeros(9))), "problem.means: expected shape [*, 9]"),
    ("user's NaN table", lambda: run(problem=replace(problem(), means=np.full((2, 9), np.nan))), "problem.means: 18 of 18 values"),
    ("no reward", lambda: run(problem=replace(problem(), means=np.zeros((0, 9)))), "problem.means: needs at least the reward's row"),
    ("sine of one point", lambda: problems.sine(1), "points_per_axis: must be a whole number >= 2"),
    ("not a problem", lambda: run(problem=REWARD), "problem: must be a problem of jaxbandit.problems, such as sine(), got"),
]

NOISE = [
    ("negative sine noise", lambda: problems.sine(3, noise_variance=-0.1), "noise_variance: must be >= 0"),
    ("negative sd", lambda: problems.Gaussian.from_sd(-0.1), "sd: must be >= 0"),
    ("NaN sd", lambda: problems.Gaussian.from_sd([0.1, np.nan]), "sd: 1 of 2 values are NaN"),
    (
        "negative variance",
        lambda: problems.from_tables(GRID, REWARD, COST, noise=problems.Gaussian(variance=-1.0)),
        "Gaussian.variance: must",
    ),
    (
        "one negative",
        lambda: run(problem=replace(problem(), noise=problems.Gaussian(variance=np.array([1.0, -1])))),
        "Gaussian.variance: must",
    ),
    (
        "NaN variance",
        lambda: run(problem=replace(problem(), noise=problems.Gaussian(variance=np.nan))),
        "Gaussian.variance: 1 of 1 values are NaN",
    ),
    ("counts beyond int32", lambda: problems.CentredPoisson(rate=2e9), "CentredPoisson.rate: must lie in [0, 1e+09]"),
    (
        "too many variances",
        lambda: run(problem=replace(problem(), noise=problems.Gaussian(variance=np.ones(3)))),
        "Gaussian.variance: expected",
    ),
]

DOMAINS = [
    ("empty points", lambda: domains.points(np.zeros((0, 2))), "coordinates: expected shape [n, p] with n, p >= 1, one row per point"),
    ("empty product", lambda: domains.product([]), "axes: must be a list of one array"),
    ("empty axis", lambda: domains.product([[0.0], []]), "axes[1]: expected shape [n] with n >= 1, one number per point"),
    ("duplicate axis points", lambda: domains.product([[0.0, 0.0, 1.0]]), "axes[0]: points must increase strictly (no duplicates)"),
    ("duplicate points", lambda: domains.points([[0.0], [0.0]]), "coordinates: must hold each point once, got"),
    ("no arms", lambda: domains.arms(0), "count: must be a whole number >= 1"),
]

ASYMMETRIC, INDEFINITE = np.array([[1.0, 0.9], [0.0, 1.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
KERNELS = [
    *(
        (
            f"{kernel.__name__} length-scale {value}",
            lambda kernel=kernel, value=value: build(kernel=kernel(length_scale=value)),
            f"{kernel.__name__}.length_scale: ",
        )
        for kernel in (
            SE,
            kernels.Matern12,
            kernels.Matern32,
            kernels.Matern52,
            kernels.RationalQuadratic,
            kernels.Periodic,
            kernels.Linear,
        )
        for value in (0.0, -1.0, np.nan)
    ),
    *(
        (
            f"{kernel.__name__} of three axes",
            lambda kernel=kernel: build(kernel=kernel(length_scale=np.ones(3))),
            f"{kernel.__name__}.length_scale: exp",
        )
        for kernel in (
            SE,
            kernels.Matern12,
            kernels.Matern32,
            kernels.Matern52,
            kernels.RationalQuadratic,
            kernels.Periodic,
            kernels.Linear,
        )
    ),
    ("one bad axis", lambda: build(kernel=SE(length_scale=np.array([1.0, 0.0]))), "SquaredExponential.length_scale: must be > 0"),
    ("alpha", lambda: build(kernel=kernels.RationalQuadratic(alpha=0.0)), "RationalQuadratic.alpha: must be > 0"),
    ("period", lambda: build(kernel=kernels.Periodic(period=-1.0)), "Periodic.period: must be > 0"),
    ("bias", lambda: build(kernel=kernels.Linear(bias=-0.1)), "Linear.bias: must be >= 0"),
    ("constant", lambda: build(kernel=kernels.Constant(variance=0.0)), "Constant.variance: must be > 0"),
    ("white", lambda: build(kernel=kernels.White(variance=-1.0)), "White.variance: must be > 0"),
    ("scale", lambda: build(kernel=-1.0 * SE()), "Scale.variance: must be > 0"),
    ("inside a sum", lambda: build(kernel=SE() + SE(length_scale=-1.0)), "SquaredExponential.length_scale: must be > 0"),
    ("inside a scaled product", lambda: build(kernel=2.0 * (SE(length_scale=0.0) * SE())), "SquaredExponential.length_scale: must be > 0"),
    ("second output's", lambda: build(kernel=[SE(), kernels.Matern12(length_scale=0.0)]), "Matern12.length_scale: must be > 0"),
    (
        "Gram asymmetric",
        lambda: build(domain=domains.arms(2), kernel=kernels.Gram(matrix=ASYMMETRIC)),
        "Gram.matrix: must be symmetric, got",
    ),
    (
        "Gram indefinite",
        lambda: build(domain=domains.arms(2), kernel=kernels.Gram(matrix=INDEFINITE)),
        "Gram.matrix: must be positive semi-definite, got",
    ),
    ("Gram on a square", lambda: build(kernel=kernels.Gram(matrix=np.eye(9))), "Gram: a Gram matrix needs a domain of arm numbers"),
    ("Gram of too few arms", lambda: build(domain=domains.arms(5), kernel=kernels.Gram(matrix=np.eye(3))), "Gram"),
    ("Gram on a grid of the line", lambda: build(domain=domains.grid([0.0], [1.0], 5), kernel=kernels.Gram(matrix=np.eye(5))), "Gram"),
]

SURROGATES = [
    ("zero lambda", lambda: build(noise_variance=0.0), "noise_variance: must be > 0"),
    ("negative lambda", lambda: build(noise_variance=-0.1), "noise_variance: must be > 0"),
    ("NaN lambda", lambda: build(noise_variance=np.nan), "noise_variance: 1 of 1 values are NaN or infinite, got"),
    ("one negative lambda", lambda: build(noise_variance=[0.1, -0.1]), "noise_variance: must be > 0"),
    ("three lambdas", lambda: build(noise_variance=[0.1, 0.1, 0.1]), "noise_variance: expected one number, [2] with one for each output"),
    ("infinite prior mean", lambda: build(prior_mean=np.inf), "prior_mean: 1 of 1 values are NaN or infinite, got"),
    ("one prior mean of two", lambda: build(prior_mean=[1.0]), "prior_mean: expected one for all, or one for each of the 2"),
    ("three kernels", lambda: build(kernel=[SE()] * 3), "kernel: expected one for all, or one for each of the 2"),
    (
        "no kernel",
        lambda: build(kernel=None),
        "kernel: must be a kernel of jaxbandit.kernels, such as SquaredExponential(length_scale=0.5) or a tup",
    ),
    (
        "function as kernel",
        lambda: build(kernel=[SE(), np.dot]),
        "kernel[1]: must be a kernel of jaxbandit.kernels, such as SquaredExponential(length_scale=0.5), got",
    ),
    ("no outputs", lambda: build(outputs=0), "outputs: must be a whole number >= 1"),
    ("unknown form", lambda: build(form="dense"), "form: must be one of auto, features, product, rows; got 'dense'"),
    ("product on bare points", lambda: build(domain=domains.points(GRID.points), form="product"), "form: 'product' needs a product grid"),
    ("product with Matern", lambda: build(kernel=kernels.Matern52(), form="product"), "form: 'product' needs a product grid"),
    ("rank too small", lambda: build(form="features", rank=2), "form: 'features' with rank=2 leaves out"),
    ("rank too small for product", lambda: build(form="product", rank=2), "form: 'product' with rank=2 leaves out"),
    ("no rank", lambda: build(rank=0), "rank: must be a whole number >= 1"),
    ("no horizon", lambda: build(horizon=0), "horizon: must be a whole number >= 1"),
    ("zero tolerance", lambda: build(tolerance=0.0), "tolerance: must lie in (0, 1)"),
    ("tolerance of all", lambda: build(tolerance=1.0), "tolerance: must lie in (0, 1)"),
]

RUNS = [
    *((f"horizon {value!r}", functools.partial(run, horizon=value), "horizon: must be a whole number") for value in (0, -3, 2.0, True)),
    *(
        (
            f"trials {value!r}",
            functools.partial(run, trials=value),
            "trials: must be a whole number of trials from 1 to 2147483647, or a list of their numbers, each from",
        )
        for value in (0, -1, 1.5)
    ),
    ("no trial numbers", lambda: run(trials=[]), "trials: the list of trial numbers is empty"),
    ("negative trial number", lambda: run(trials=[3, -1]), "trials: the number of a trial: must be a whole number >= 0, got"),
    ("unknown record", lambda: run(record="some"), "record: must be one of all, "),
    ("no block", lambda: run(block=0), "block: must be a whole number >= 1"),
    ("fractional block", lambda: run(block=1.5), "block: must be a whole number >= 1"),
    ("design past the end", lambda: run(initial=InitialDesign(indices=np.array([0, 9]))), "initial.indices: must lie in [0, 8]"),
    ("design before the start", lambda: run(initial=InitialDesign(indices=np.array([-1]))), "InitialDesign.indices: must be >= 0, got"),
    (
        "design of coordinates",
        lambda: run(initial=InitialDesign(indices=np.array([0.5]))),
        "InitialDesign.indices: must be a list of numbers of points, got",
    ),
    (
        "design of a mask",
        lambda: run(initial=InitialDesign(indices=np.array([True, False]))),
        "InitialDesign.indices: must be a list of numbers of points, got",
    ),
    (
        "design of pairs",
        lambda: run(initial=InitialDesign(indices=np.array([[0, 1]]))),
        "InitialDesign.indices: must be a list of numbers of points, got",
    ),
    (
        "too large a random design",
        lambda: run(initial=InitialDesign(random=10)),
        "initial.random: must be at most 9, the number of points of the domain, got",
    ),
    ("negative random design", lambda: run(initial=InitialDesign(random=-1)), "InitialDesign.random: must be a whole number >= 0, got"),
    ("model of too few outputs", lambda: run(2, surrogate=model(2)), "surrogate: models 2 outputs, but problem 'user' has 3"),
    ("model of too many outputs", lambda: run(1, surrogate=model(3)), "surrogate: models 3 outputs, but problem 'user' has 2"),
    (
        "other size of domain",
        lambda: on(domains.grid([0.0, 0.0], [1.0, 1.0], 4)),
        "surrogate: built on other points (9) than problem 'user' has (16)",
    ),
    ("other corner", lambda: on(domains.grid([0.0, 0.0], [1.0, 1.1], 3)), "surrogate: built on other points"),
    ("other order", lambda: on(domains.points(GRID.points[::-1])), "surrogate: built on other points"),
    (
        "other dimension",
        lambda: on(domains.grid([0.0, 0.0], [1.0, 1.0], [2, 4]), surrogate=build(domain=domains.grid([0.0] * 3, [1.0] * 3, 2))),
        "surrogate: built on other points",
    ),
    (
        "points of one coordinate and of two",
        lambda: on(domains.points([[0.0], [1.0]]), surrogate=build(domain=domains.points([[0.0, 0.0], [1.0, 1.0]]))),
        "surrogate: built on other points",
    ),
    (
        "other grid of small numbers",  # learning rates, say
        lambda: on(domains.grid([0.0], [1e-5], 5), surrogate=build(domain=domains.grid([0.0], [5e-6], 5), kernel=SE(length_scale=1e-5))),
        "surrogate: built on other points",
    ),
    (
        "no surrogate",
        lambda: run(surrogate=SE()),
        "surrogate: must be a surrogate, jaxbandit.surrogate(...) or a sweep of one, jaxbandit.sweep(...), got",
    ),
    (
        "negative lambda put in",
        lambda: run(surrogate=replace(model(), noise_variance=np.array([-1.0]))),
        "surrogate.noise_variance: must be > 0",
    ),
    ("NaN prior mean put in", lambda: run(surrogate=replace(model(), prior_mean=np.array([0.0, np.nan]))), "surrogate.prior_mean: 1 of 2"),
    (
        "negative lambda in a sweep",
        lambda: run(surrogate=sweep(model(), {"noise_variance": [[1.0], [-1.0]]})),
        "sweep.noise_variance: surrogate.noise_variance: must be > 0",
    ),
    (
        "prior mean of wrong length",
        lambda: run(surrogate=replace(model(), prior_mean=np.zeros(3))),
        "surrogate.prior_mean: expected shape [2]",
    ),
    ("horizon beyond the cache", lambda: on(rough(5).domain, surrogate=rough(5), horizon=6), "horizon: 6 rounds and 0 initial points, but"),
    (
        "horizon and design beyond the cache",
        lambda: on(rough(5).domain, surrogate=rough(5), horizon=3, initial=InitialDesign(random=3)),
        "horizon: 3 rounds and 3 initial points, but the surrogate's row cache holds 5",
    ),
    (
        "no algorithm",
        lambda: run(algorithm=Bounds()),
        "algorithm: must be an algorithm of jaxbandit, or of a subclass of jaxbandit.Algorithm or a sweep of ",
    ),
    (
        "algorithm's class",
        lambda: run(algorithm=Rpol),
        "algorithm: must be an algorithm of jaxbandit, or of a subclass of jaxbandit.Algorithm or a sweep of ",
    ),
    (
        "design of points and of random ones",
        lambda: InitialDesign(indices=[1], random=5),
        "InitialDesign.random: give either indices or how many are random, got 5 beside indices",
    ),
    (
        "more seeds than points",
        lambda: run(algorithm=jaxbandit.SafeOpt(count=99)),
        "SafeOpt.count: must be at most 9, the number of points of the domain, got 99",
    ),
    ("more safest points than there are", lambda: jaxbandit.informed.safest(problem(), 99), "count: must be at most 9"),
    ("horizon that is traced", lambda: jax.jit(lambda t: run(horizon=t))(3), "horizon: must be a whole number"),
    ("lambda that is traced", lambda: jax.jit(lambda x: build(noise_variance=x))(0.1), "noise_variance: must be known here, not traced"),
    ("table that is traced", lambda: jax.jit(lambda x: problems.from_tables(GRID, x, COST))(REWARD), "reward: must be known here, not tr"),
    ("points that are traced floats", lambda: jax.jit(lambda x: metrics.curves(problem(), x))(REWARD), "indices: must be whole numbers"),
    ("widths for others", lambda: widths.evaluate(np.ones(2), 1, np.ones(3)), "width: expected one number, or one for each of gain [3]"),
    ("no devices", lambda: run(devices=[]), "devices"),
]

ALGORITHMS = [
    ("no seeds", lambda: run(algorithm=jaxbandit.SafeOpt()), "SafeOpt.seeds: needs points that are known to be safe"),
    ("no seeds within", lambda: run(algorithm=jaxbandit.Anytime(algorithm=jaxbandit.SgpUcb())), "SgpUcb.seeds: needs points that are"),
    ("penalty", lambda: run(algorithm=Rpol(initial_penalty=0.0)), "Rpol.initial_penalty: must be > 0"),
    (
        "penalty of wrong length",
        lambda: run(2, algorithm=Rpol(initial_penalty=np.ones(3))),
        "Rpol.initial_penalty: expected one number, or one",
    ),
    ("growth", lambda: run(algorithm=Rpol(penalty_growth=-1.0)), "Rpol.penalty_growth: must be > 0"),
    ("growth of wrong length", lambda: run(2, algorithm=Rpol(penalty_growth=np.ones(3))), "Rpol.penalty_growth: "),
    ("reward clip", lambda: run(algorithm=Cbo(reward_clip=0.0)), "Cbo.reward_clip: must be > 0"),
    ("reward clips", lambda: run(algorithm=Cbo(reward_clip=np.ones(4))), "Cbo.reward_clip: "),
    ("cost clip", lambda: run(algorithm=Cbo(cost_clip=-1.0)), "Cbo.cost_clip: must be > 0"),
    ("one cost clip of two", lambda: run(2, algorithm=Cbo(cost_clip=np.array([1.0, 0.0]))), "Cbo.cost_clip: must be > 0"),
    (
        "cost clips for two",
        lambda: run(1, algorithm=Cbo(cost_clip=np.ones(2))),
        "Cbo.cost_clip: expected one number, or one for each of the 1",
    ),
    (
        "cost clips for three",
        lambda: run(2, algorithm=Cbo(cost_clip=np.ones(3))),
        "Cbo.cost_clip: expected one number, or one for each of the 2",
    ),
    ("dual cap", lambda: run(algorithm=Cbo(dual_cap=np.inf)), "Cbo.dual_cap: 1 of 1 values are NaN or infinite"),
    ("dual caps for three", lambda: run(2, algorithm=Cbo(dual_cap=np.ones(3))), "Cbo.dual_cap: "),
    ("step divisor", lambda: run(algorithm=Cbo(step_divisor=0.0)), "Cbo.step_divisor: must be > 0"),
    (
        "step divisors for three",
        lambda: run(2, algorithm=Cbo(step_divisor=np.ones(3))),
        "Cbo.step_divisor: expected one number, or one for each",
    ),
    ("words", lambda: run(algorithm=Cbo(dual_cap="ten")), "Cbo.dual_cap: must be a number > 0, got 'ten'"),
    ("zero width", lambda: with_width(0.0), "Bounds.reward_width: must be > 0, got"),
    ("negative width", lambda: with_width(-3.0), "Bounds.reward_width: must be > 0, got"),
    ("NaN width", lambda: with_width(np.nan), "Bounds.reward_width: 1 of 1 values are NaN or infinite, got"),
    ("a width per point", lambda: with_width(np.ones(9)), "Bounds.reward_width: expected one number, got"),
    (
        "bare function",
        lambda: with_width(lambda t, gain: t),
        "Bounds.reward_width: must be a number > 0 or a schedule of jaxbandit.widths, such as Custom(function=...), got",
    ),
    (
        "bare function for costs",
        lambda: with_cost_width(np.sqrt),
        "Bounds.cost_width: must be a number > 0 or a schedule of jaxbandit.widths, such as Custom(function=...), got",
    ),
    (
        "bare function in CBO",
        lambda: run(algorithm=Cbo(estimator=Bounds(reward_width=np.sqrt))),
        "Bounds.reward_width: must be a number > 0 or a schedule of jaxbandit.widths, such as Custom(function=...), got",
    ),
    (
        "bare function in CONFIG",
        lambda: run(algorithm=Config(estimator=Bounds(cost_width=np.sqrt))),
        "Bounds.cost_width: must be a number > 0 or a schedule of jaxbandit.widths, such as Custom(function=...), got",
    ),
    ("zero cost width", lambda: with_cost_width(np.array([1.0, 0.0]), 2), "Bounds.cost_width: must be > 0, got"),
    ("cost widths for three", lambda: with_cost_width(np.ones(3), 2), "Rpol.estimator.cost_width: "),
    ("norm bound", lambda: with_width(widths.ImprovedGPUCB(norm_bound=0.0)), "ImprovedGPUCB.norm_bound: must be > 0, got"),
    ("noise scale", lambda: with_cost_width(widths.ImprovedGPUCB(noise_scale=-1.0)), "ImprovedGPUCB.noise_scale: must be > 0, got"),
    ("delta 0", lambda: with_width(widths.ImprovedGPUCB(delta=0.0)), "ImprovedGPUCB.delta: must lie in (0, 1), got"),
    ("delta 1", lambda: with_width(widths.ImprovedGPUCB(delta=1.0)), "ImprovedGPUCB.delta: must lie in (0, 1), got"),
    ("union", lambda: with_width(widths.ImprovedGPUCB(union=0.0)), "ImprovedGPUCB.union: must be > 0, got"),
    ("norm bounds for three", lambda: with_cost_width(widths.ImprovedGPUCB(norm_bound=np.ones(3)), 2), "Rpol.estimator.cost_width"),
    ("factor of the log", lambda: with_width(widths.SqrtLog(a=0.0)), "SqrtLog.a: must be > 0, got"),
    ("base of the log", lambda: with_width(widths.SqrtLog(b=1.0)), "SqrtLog.b: must lie in (1, inf), got"),
    (
        "custom scale",
        lambda: with_width(widths.Custom(function=lambda t, gain: gain, scale=0.0)),
        "Custom.scale: must be > 0, got",
    ),
    (
        "custom number",
        lambda: with_width(widths.Custom(function=3.0)),
        "Custom.function: must be a function of (t, gain), got",
    ),
    (
        "one bad width in a sweep",
        lambda: run(algorithm=sweep(Rpol(), {"estimator.cost_width": [1.0, -1.0]})),
        "sweep.estimator.cost_width: Bounds.cost_width: must be > 0, got",
    ),
]

SWEEPS = [
    ("nothing", lambda: sweep(Rpol(), {}), "give a mapping from fields to values"),
    ("empty", lambda: sweep(Rpol(), {"initial_penalty": []}), "sweep.initial_penalty: expected a list of values, got []"),
    (
        "different lengths",
        lambda: sweep(Rpol(), {"initial_penalty": [1.0, 2.0], "penalty_growth": [1.0]}, zipped=True),
        "sweep: zipped lists of values have one length, got {'initial_penalty': 2, 'penalty_growth': 1}",
    ),
    ("unknown", lambda: sweep(Rpol(), {"beta": [1.0]}), "sweep.beta: unknown field; Rpol can sweep estimator, initial_penalty"),
    ("unknown inside", lambda: sweep(Rpol(), {"estimator.beta": [1.0]}), "sweep.estimator.beta: unknown field; Bounds can sweep"),
    ("misspelt", lambda: sweep(Rpol(), {"estimator.reward_widht": [1.0]}), "unknown field, did you mean 'reward_width'?"),
    (
        "two shapes",
        lambda: sweep(Rpol(), {"initial_penalty": [1.0, [1.0, 2.0]]}),
        "sweep.initial_penalty: values of one field must have one",
    ),
    (
        "two kinds",
        lambda: sweep(Rpol(), {"penalty_growth": [0.5, 1.0], "estimator.reward_width": [1.0, widths.SqrtLog()]}),
        "sweep.estimator.reward_width: values of one field are of different kinds",
    ),
    ("inside a number", lambda: sweep(Rpol(), {"initial_penalty.x": [1.0]}), "sweep.initial_penalty.x: a float has no fields"),
    ("static", lambda: sweep(model(), {"groups": [(0, 0), (0, 0)]}), "sweep.groups: groups of Surrogate is static"),
    (
        "static inside",
        lambda: sweep(
            Rpol(estimator=Bounds(reward_width=widths.Custom(function=lambda t, gain: gain))), {"estimator.reward_width.function": [abs]}
        ),
        "sweep.estimator.reward_width.function: function of Custom is static",
    ),
    ("a class attribute", lambda: sweep(Rpol(), {"name": ["a", "b"]}), "sweep.name: unknown field; Rpol can sweep"),
    (
        "two sizes",
        lambda: run(algorithm=sweep(Rpol(), {"initial_penalty": [1.0]}), surrogate=sweep(model(), {"prior_mean": [[0.0, 0.0]] * 2})),
        "algorithm, surrogate, delay: sweeps of different sizes [1, 2]",
    ),
]


def table(cases):
    return pytest.mark.parametrize(("call", "message"), [case[1:] for case in cases], ids=[case[0] for case in cases])


@table(TABLES + NOISE + DOMAINS + KERNELS + SURROGATES + RUNS + ALGORITHMS)
def test_refused_by_name(call, message):
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, ValueError)


@table(SWEEPS)
def test_sweeps_refused_by_name(call, message):
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        call()


GOOD = [
    ("defaults", run),
    ("no constraints", lambda: run(0)),
    ("one clip per constraint", lambda: run(2, algorithm=Cbo(cost_clip=np.array([1.0, 2.0]), step_divisor=np.array([1.0, 2.0])))),
    ("one penalty per constraint", lambda: run(2, algorithm=Rpol(initial_penalty=np.array([1.0, 2.0])))),
    ("one width per constraint", lambda: with_cost_width(np.array([1.0, 2.0]), 2)),
    ("wrapped function", lambda: with_width(widths.Custom(function=lambda t, gain: gain + 1))),
    ("design of every point", lambda: run(initial=InitialDesign(indices=np.arange(9)))),
    ("random design of every point", lambda: run(initial=InitialDesign(random=9))),
    ("horizon at the cache's capacity", lambda: on(rough(5).domain, surrogate=rough(5), horizon=5)),
    ("trial numbers", lambda: run(trials=[7, 0])),
    (
        "sweep",
        lambda: run(algorithm=sweep(Rpol(), {"initial_penalty": [1.0, 2.0]}), surrogate=sweep(model(), {"prior_mean": [[0.0, 0.0]] * 2})),
    ),
    ("noiseless", lambda: run(problem=replace(problem(), noise=problems.Gaussian(variance=0.0)))),
]


@pytest.mark.parametrize("call", [case[1] for case in GOOD], ids=[case[0] for case in GOOD])
def test_good_input_reaches_the_compiled_program(call):
    """The guard is where it should be, and the checks let the limits of each range through."""
    with pytest.raises(CompiledError):
        call()


# Arguments that take numbers, by calls that give each of them something else.
NUMBERS = {
    "noise_variance": lambda given: build(noise_variance=given),
    "prior_mean": lambda given: build(prior_mean=[given, 0.0]),
    "low": lambda given: domains.grid(given, [1.0], 5),
    "high": lambda given: domains.grid([0.0], given, 5),
    "index": lambda given: model().condition(model().init(), given, [0.0, 0.0]),
    "Gram.matrix": lambda given: kernels.Gram(matrix=given),
    "SquaredExponential: x": lambda given: SE()(given, np.zeros((1, 1))),
    "tree": jaxbandit.canonicalise,
}
ITERATORS = {
    "generator": lambda: (number for number in (1.0, 2.0)),
    "map": lambda: map(float, (1, 2)),
    "zip": lambda: zip((1.0, 2.0), strict=True),
    "iterator": lambda: iter([1.0, 2.0]),
    "values": {"a": 1.0, "b": 2.0}.values,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("name", NUMBERS)
def test_iterators_are_no_numbers(name, kind):
    with pytest.raises(InvalidArgument, match=f"^{re.escape(name)}: must (be|hold) .*, got"):
        NUMBERS[name](ITERATORS[kind]())


def test_every_bad_case_has_its_own_name():
    names = [case[0] for case in TABLES + NOISE + DOMAINS + KERNELS + SURROGATES + RUNS + ALGORITHMS]
    assert len(names) == len(set(names))


TWO = np.array([1.0, 2.0])
LISTS = {  # with a twin of arrays: those of an algorithm share a program
    "cost clip": (Cbo(cost_clip=[1.0, 2.0], step_divisor=TWO), Cbo(cost_clip=TWO, step_divisor=TWO), np.array([4, 5])),
    "step divisor": (Cbo(cost_clip=TWO, step_divisor=[1.0, 2.0]), Cbo(cost_clip=TWO, step_divisor=TWO), np.array([4, 5])),
    "penalty": (Rpol(initial_penalty=[1.0, 2.0]), Rpol(initial_penalty=TWO), np.array([4, 5])),
    "design": (Rpol(initial_penalty=TWO), Rpol(initial_penalty=TWO), [4, 5]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", LISTS)
def test_a_list_serves_as_well_as_an_array_or_is_refused(name, monkeypatch):
    """Check that what passes validation does not fail inside the trace."""
    monkeypatch.undo()
    algorithm, twin, design = LISTS[name]
    wanted = run(2, algorithm=twin, initial=InitialDesign(indices=np.asarray(design)))
    try:
        result = run(2, algorithm=algorithm, initial=InitialDesign(indices=design))
    except InvalidArgument:
        return
    np.testing.assert_array_equal(result.indices, wanted.indices)


@pytest.mark.full
def test_problems_without_constraints_run(monkeypatch):
    monkeypatch.undo()
    algorithms = {algorithm.name: algorithm for algorithm in (Rpol(), Cbo(), Config(), Se2())}
    for name, result in panel.play(problem(0), algorithms, model(1), horizon=3, trials=1, key=jax.random.key(0)).items():
        assert result.indices.shape == (1, 3) and result.multipliers.shape == (1, 4, 0), name
        assert np.all(metrics.healthy(result.status)), name
