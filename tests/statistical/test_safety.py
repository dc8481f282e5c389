"""Safe-set methods, and SafeOpt beside the ``safeopt`` package."""

import collections
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import SafeOpt, SgpUcb, StageOpt, domains, estimators, informed, kernels, problems, replace, safety
from jaxbandit.core.sweep import gather_variants
from jaxbandit.rules.widths import ImprovedGPUCB
from tests.oracles import gaussian_process as gp
from tests.support import panel

# Functions of an RKHS on 40 points of [0, 1], g = h - f with h = B / 4: Zhou and Ji (2022), App. F.1.
POINTS, INSTANCES, HORIZON, DELTA, NOISE_SD = 40, 200, 25, 0.1, 0.1


@functools.cache
def family() -> Any:
    return problems.rkhs_1d(POINTS, threshold=0.25, noise=problems.Gaussian.from_sd(NOISE_SD))


def assumptions(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Learners know the norm bound, the threshold and two safe points.

    The norm of ``g - h = -f`` is ``B``.
    """
    bound = instance.norm

    def told(own: Any) -> Any:
        width = replace(own.estimator.cost_width, norm_bound=own.estimator.cost_width.norm_bound * bound)
        return replace(own, estimator=estimators.Bounds(reward_width=width, cost_width=width), seeds=informed.safest(instance, 2))

    algorithm = replace(algorithm, algorithms=tuple(map(told, algorithm.algorithms)))
    return algorithm, replace(surrogate, prior_mean=jnp.stack([jnp.zeros_like(bound), 0.25 * bound]))


@functools.cache
def truths() -> np.ndarray:
    """The means ``[INSTANCES, 2, POINTS]`` of the instances that trials have."""

    @jax.jit
    @jax.vmap
    def means(number: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(3), number), 3)
        return jaxbandit.canonicalise(family()).sample(key).means

    return np.asarray(means(np.arange(INSTANCES)))


NARROW = 0.05
METHODS = [SafeOpt(), StageOpt(exploration=15.0), SgpUcb(warm_up=8.0)]


@functools.cache
def runs() -> dict[str, Any]:
    """Runs of every method, of SafeOpt with two widths.

    With ``lambda = R^2``, ``|f - mu| <= (B + sqrt(2 (gamma + ln(1 / delta)))) sigma`` for all points and rounds with probability
    ``1 - delta`` (Abbasi-Yadkori 2013); the schedule's ``+ 1`` is on the safe side.
    """

    def assuming(algorithm: Any, factor: float) -> Any:
        width = ImprovedGPUCB(norm_bound=factor, noise_scale=factor, delta=DELTA, union=1.0)
        return replace(algorithm, estimator=estimators.Bounds(reward_width=width, cost_width=width))

    methods = {own.name: gather_variants([assuming(own, factor) for factor in (1.0, NARROW)[: 1 + (own is METHODS[0])]]) for own in METHODS}
    kernel = kernels.SquaredExponential(length_scale=0.2)
    model = jaxbandit.surrogate(family().domain, kernel, noise_variance=NOISE_SD**2, form="features")
    given = {"horizon": HORIZON, "trials": INSTANCES, "key": jax.random.key(3), "informed": assumptions, "record": "all"}
    return panel.play(family(), methods, model, **given)


def outcome(name: str, variant: int = 0) -> tuple[np.ndarray, jaxbandit.Trajectory]:
    """Return the instances with an unsafe choice, and the runs."""
    run, means = jax.tree.map(lambda x: x[variant], runs()[name]), truths()
    assert np.all(means[:, 1].min(1) < 0), "every instance has a safe point"
    np.testing.assert_allclose(run.values[:, 0, 0], means[np.arange(INSTANCES), 0, run.indices[:, 0]], atol=6 * NOISE_SD)
    unsafe = np.take_along_axis(means[:, 1], run.indices, axis=1) > 0
    return unsafe.any(1), run


@pytest.mark.full
@pytest.mark.parametrize("name", [own.name for own in METHODS])
def test_the_safe_set_is_left_in_at_most_delta_of_instances(name: str) -> None:
    left, run = outcome(name)
    assert left.mean() <= DELTA
    assert np.all(run.status & int(jaxbandit.Status.SAFE_SET_EMPTIED) == 0)
    grown = np.array([len(np.unique(row)) for row in run.indices]) > 2
    assert grown.mean() > 0.5, "it is no feat to stay among the seeds"


@pytest.mark.full
def test_bounds_that_are_too_narrow_do_leave_it() -> None:
    """The same check finds a learner whose assumptions are wrong."""
    left, _ = outcome("safeopt", variant=1)
    assert left.mean() > DELTA


@pytest.mark.full
def test_warm_up_stays_in_the_seed_set() -> None:
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 6)
    rng = np.random.default_rng(0)
    costs, seeds = rng.standard_normal((2, 36)) - 1.5, [3, 7, 21, 35]
    # A seed that values show to be unsafe is drawn no more.
    costs[:, seeds] = -1.5
    problem = problems.from_tables(domain, rng.standard_normal(36), costs, noise=problems.Gaussian(variance=0.1))
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.4), noise_variance=0.1, outputs=3)
    algorithm = SgpUcb(estimator=estimators.Bounds(cost_width=0.2), seeds=seeds, warm_up=40.0)
    run = jaxbandit.simulate(problem, algorithm, model, horizon=60, trials=50, key=jax.random.key(1), block=1, record="indices")
    warm, later = np.split(np.asarray(run.indices), [40], axis=1)
    assert set(np.unique(warm)) == set(seeds) and not set(np.unique(later)) <= set(seeds)
    counts = np.array([np.sum(warm == seed) for seed in seeds])
    expected = 50 * 40 / 4
    assert np.sum((counts - expected) ** 2 / expected) < 3 + 5 * np.sqrt(6), "uniform: chi-square with 3 degrees of freedom"


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
def test_expanders_of_2500_points() -> None:
    """Every point is a candidate and no expander, so all pairs count."""
    domain = domains.grid([0.0, 0.0], [6.0, 6.0], 50)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    safe = np.asarray(domain.points)[:, 0] < 3

    @jax.jit
    def widest(worse: jax.Array) -> jax.Array:
        """Return the widest expander under means raised by ``worse [M]``."""
        belief = model.belief(model.condition(model.init(), jnp.int32(1275), jnp.asarray([0.0, -3.0])))
        known = safety.intervals(model, belief, estimators.Bounds(), jnp.int32(1), jax.random.key(0))
        known = replace(known, mean=known.mean.at[1].add(worse))
        return safety.Expansion().widest(model, belief, known, jnp.asarray(safe), jnp.ones(2500, bool))

    assert int(widest(np.where(safe, 0, np.float32(100)))) == 2500 and int(widest(np.zeros(2500, np.float32))) < 2500


class ExactGp:
    """GPy model of data, prior variance and noise-free predictions."""

    def __init__(self, x: np.ndarray, y: np.ndarray, length_scale: float, noise: float) -> None:
        self.kern, self.input_dim = self, x.shape[1]
        self.length_scale, self.noise = length_scale, noise
        self.set_XY(x, y)

    def set_XY(self, x: np.ndarray, y: np.ndarray) -> None:  # noqa: N802
        self.X, self.Y = x, y

    def Kdiag(self, x: np.ndarray) -> np.ndarray:  # noqa: N802
        return np.ones(len(x))

    def predict_noiseless(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        matrix = gp.squared_exponential(self.X, self.X, self.length_scale) + self.noise * np.eye(len(self.X))
        cross = gp.squared_exponential(self.X, x, self.length_scale)
        solved = np.linalg.solve(matrix, cross)
        return solved.T @ self.Y, np.maximum(1 - np.sum(cross * solved, axis=0), 0)[:, None]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the package under old names of Python and NumPy."""
    monkeypatch.setattr(collections, "Sequence", collections.abc.Sequence, raising=False)
    for name, kind in (("float", float), ("bool", bool)):
        if not hasattr(np, name):
            monkeypatch.setattr(np, name, kind, raising=False)
    return pytest.importorskip("safeopt", reason="the safeopt package is not installed", exc_type=ImportError)


@pytest.mark.parametrize(("constraints", "lipschitz"), [(1, None), (2, None), (1, 4.0), (2, 4.0)])
def test_choices_agree_with_the_package(package: Any, constraints: int, lipschitz: float | None) -> None:
    """The first rounds certify points, because the package has no seeds.

    It maximises under ``g >= 0``. An expander may reach a point outside for each constraint by itself, hence ``together=False``.
    """
    side, length_scale, noise, beta = 9, 0.35, 0.02, 1.5
    # Without symmetry no mirror images tie.
    design = [40, 40, 31, 39, 40, 41, 50]
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], side)
    points = np.asarray(domain.points)
    rng = np.random.default_rng(6)
    tables = gp.random_functions(gp.squared_exponential(points, points, 0.5), 1 + constraints, rng)
    distance = np.sum((points - points[40]) ** 2, axis=1)
    # The middle is safe and the corners are unsafe.
    tables[1:] = 0.3 * tables[1:] + 6 * distance - 1.5
    problem = problems.from_tables(domain, tables[0], tables[1:], noise=problems.Gaussian(variance=noise))
    with jax.enable_x64(True):
        kernel = kernels.SquaredExponential(length_scale=length_scale)
        model = jaxbandit.surrogate(domain, kernel, noise_variance=noise, outputs=1 + constraints, form="features")
        bounds = estimators.Bounds(reward_width=beta, cost_width=beta)
        algorithm = SafeOpt(estimator=bounds, seeds=[40], lipschitz=lipschitz, together=False)
        given = {"horizon": 20, "key": jax.random.key(2), "initial": jaxbandit.InitialDesign(indices=np.array(design))}
        run = jax.tree.map(np.asarray, jaxbandit.simulate(problem, algorithm, model, **given))
    chosen = np.concatenate([run.initial_indices[0], run.indices[0]])
    values = np.concatenate([run.initial_values[0], run.values[0]]) * np.array([1.0] + [-1.0] * constraints)
    expanders, partial = 0, 0
    for t in range(len(design), len(chosen)):
        gps = [ExactGp(points[chosen[:t]], values[:t, [k]], length_scale, noise) for k in range(1 + constraints)]
        theirs = package.SafeOpt(gps, points, fmin=[-np.inf] + [0.0] * constraints, lipschitz=lipschitz, beta=beta)
        wanted = theirs.optimize()
        np.testing.assert_allclose(points[chosen[t]], wanted, atol=1e-12, err_msg=f"round {t - len(design) + 1}")
        expanders += bool(theirs.G[chosen[t]])
        partial += not np.all(theirs.S)
    assert partial > 10 and expanders >= 2 and len(np.unique(run.indices)) > 5, "expanders were chosen, too"
