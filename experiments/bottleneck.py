"""Safe algorithms where expansion does not pay at once.

The algorithms are CSafeOpt (Wendl 2026), GoOSE, safe UCB, and M-SafeOpt (Losalka and Scarlett 2024).

*Bottleneck* and *double bottleneck* of the code of CSafeOpt: from a seed on a mediocre hill safe points lead through one or two valleys
of low reward to the best hill. Safe UCB earns more on its hill than in the valley, so that it stays. The code stores no numbers; an
independent program of its rule gave, in 10 runs on random candidates: CSafeOpt crosses the bottleneck at evaluation 5 or 6 and has a
regret of 14.0 [12.5, 14.1] after 50 evaluations, where safe UCB has 92.5 and never gets beyond 1.93; on the double bottleneck, 80
evaluations, 44.3 [42.4, 48.2] and 218.9, with the second valley crossed at evaluation 6.

*Clinical trial* of the code of M-SafeOpt: the constraint grows with the dose, and doses of 0 are safe. The same program, with a fixed
kernel and 10 starts, gave an average regret after 50 rounds of 0.090 [0.086, 0.095] for M-SafeOpt, 0.093 [0.088, 0.097] for its second
form, and 0.026 [0.021, 0.032] for safe UCB: the optimum needs no expansion.

Measured 2026-11-28 by ``python -m experiments bottleneck``:
What we get, no point unsafe in any run: on the bottleneck the regret is 14.1 for CSafeOpt, 22.3 for GoOSE and 92.5 for safe UCB. On the
double bottleneck safe UCB has 218.9 and GoOSE 39.2. CSafeOpt has 39.0, less than the 44.3 [42.4, 48.2] of the independent program.
Another one, in NumPy on random candidates, has 38.5 and 39.0, so that the grid is not the reason. On the clinical trial the average
regret is 0.090 [0.085, 0.096] for M-SafeOpt, 0.093 [0.088, 0.100] for its second form, and 0.026 [0.021, 0.030] for safe UCB: reproduces.

As in the code, values of the bottlenecks are standardised anew in every round, constraints keep their zero, and there is no noise. Our
points are a fixed grid, the code's are drawn in every round. The seed is the first evaluation.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, study
from jaxbandit.algorithms import Arena, Decision
from jaxbandit.kernels import Matern52, Scale
from jaxbandit.report import plots
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.widths import ImprovedGPUCB
from jaxbandit.study import Run, Study

THEORY = ImprovedGPUCB(norm_bound=2.0, noise_scale=0.1, delta=0.1, union=1.0)
NOISE_VARIANCE, SEED = 1e-4, 0.5
# The variance of the code's kernel, which is a default of GPyTorch.
VARIANCE = float(np.log(2))
# The end of the domain, the length-scale as a share of it, where the last valley ends, and the fields of the algorithms.
PLACES: dict[str, tuple[float, float, float, dict[str, Any], dict[str, Any]]] = {
    "bottleneck": (6.0, 0.6, 4.0, {"epsilon": 0.146, "alpha": 0.55, "zeta": 0.0}, {"lipschitz": 1.0, "epsilon": 0.1}),
    "double bottleneck": (12.0, 0.4, 9.0, {"epsilon": 0.1, "alpha": 0.75, "zeta": 0.1}, {"lipschitz": 0.5, "epsilon": 0.1}),
}
# Regret and place after so many evaluations, by an independent program.
REFERENCES = {
    "bottleneck CSafeOpt": (50, "14.0 [12.5, 14.1], crossed at 5 or 6"),
    "bottleneck safe UCB": (50, "92.5, never"),
    "double bottleneck CSafeOpt": (80, "44.3 [42.4, 48.2], crossed at 6"),
    "double bottleneck safe UCB": (80, "218.9, never"),
}
STARTS, CLINICAL_ROUNDS = 10, 50
CLINICAL = {"M-SafeOpt": "0.090 [0.086, 0.095]", "M-SafeOpt for each x": "0.093 [0.088, 0.097]", "safe UCB": "0.026 [0.021, 0.032]"}


def hill(x: Any, centre: float, width: float) -> Any:
    """Return a Gaussian bump of height 1."""
    return jnp.exp(-((x - centre) ** 2) / (2 * width**2))


def bottleneck(name: str, points: int) -> jb.problems.Problem:
    """Return a problem of CSafeOpt on ``points`` per 6 units."""
    end = PLACES[name][0]
    domain = jb.domains.grid([0.0], [end], round(end / 6) * (points - 1) + 1)
    if name == "bottleneck":
        return jb.problems.from_functions(
            domain,
            lambda x: 1.2 * hill(x[0], 0.5, 0.35) + 3 * hill(x[0], 5, 1) - 0.3,
            [lambda x: -(0.9 * hill(x[0], 0.5, 1) + 0.9 * hill(x[0], 5, 1) + 0.15)],
            noise=jb.problems.Noiseless(),
        )
    return jb.problems.from_functions(
        domain,
        lambda x: 1.2 * hill(x[0], 0.5, 0.35) + 2.1 * hill(x[0], 5.5, 0.8) + 3.9 * hill(x[0], 10.5, 0.9) - 0.3,
        [lambda x: -(0.9 * (hill(x[0], 0.5, 1) + hill(x[0], 5.5, 1) + hill(x[0], 10.5, 0.45)) + 0.12 - 0.1 * hill(x[0], 8.87, 1))],
        noise=jb.problems.Noiseless(),
    )


def clinical(points: int) -> jb.problems.Problem:
    """Return the clinical trial of M-SafeOpt: ``s`` is the dose."""
    return jb.problems.from_functions(
        jb.domains.grid([0.0, 0.0], [1.0, 2.0], points),
        lambda z: 1 / (1 + jnp.exp(1 - 2 * z[0] - z[1] + 4 * z[0] ** 2 + z[1] ** 2)),
        [lambda z: 1 / (1 + jnp.exp(-2 * z[0] - z[1])) - 0.9],
        noise=jb.problems.Noiseless(),
    )


@jb.pytree
class Standard:
    """Posterior of raw values and of ones, with the values' sums."""

    posterior: Any
    count: Any  # []
    total: Any  # [2]
    squares: Any  # [2]

    @property
    def gain(self) -> Any:
        """Information gain of the data."""
        return self.posterior.gain[:1]


@jb.pytree
class Standardising(jb.surrogates.AbstractSurrogate):
    """Model of standardised values.

    The mean is linear in the values. Therefore a third output of ones is enough to standardise it.
    """

    own: Any

    @property
    def model(self) -> jb.Surrogate:
        """The model of the standardised values."""
        return self.own

    @property
    def domain(self) -> jb.domains.Domain:
        """The points."""
        return self.own.domain

    @property
    def tripled(self) -> jb.Surrogate:
        """The model of reward, constraint and ones."""
        return jb.replace(self.own, groups=(0, 0, 0), prior_mean=jnp.zeros(3, self.dtype))

    def init(self) -> Standard:
        """Return the prior."""
        zero = jnp.zeros(2, self.dtype)
        return Standard(posterior=self.tripled.init(), count=zero[0], total=zero, squares=zero)

    def condition(self, posterior: Standard, index: Any, values: Any) -> Standard:
        """Return the posterior given values at a point."""
        after = self.tripled.condition(posterior.posterior, index, jnp.concatenate([values, jnp.ones(1, values.dtype)]))
        return Standard(
            posterior=after,
            count=posterior.count + 1,
            total=posterior.total + values,
            squares=posterior.squares + values * values,
        )

    def belief(self, posterior: Standard) -> Any:
        """Return the belief about standardised values, whose constraint keeps its zero."""
        count = jnp.maximum(posterior.count, 1)
        mean = posterior.total / count
        variance = (posterior.squares - count * mean * mean) / jnp.maximum(count - 1, 1)
        unit = jnp.sqrt(jnp.where((count > 1) & (variance > 0), variance, 1))
        raw = posterior.posterior.shift
        shift = jnp.stack([(raw[0] - mean[0] * raw[2]) / unit[0], raw[1] / unit[1]])
        return self.own.belief(jb.replace(posterior.posterior, shift=shift))


@jb.pytree
class Standardised(jb.Algorithm[Any]):
    """Run an algorithm on values that are standardised anew in every round."""

    name = "standardised"
    title = "standardised"
    algorithm: jb.Algorithm[Any]

    @property
    def traits(self) -> Any:
        """The algorithm's traits."""
        return self.algorithm.traits

    def arena(self, arena: Arena) -> Arena:
        """Return the arena with the model of standardised values."""
        return jb.replace(arena, surrogate=Standardising(own=arena.surrogate))

    def init(self, arena: Arena) -> Any:
        """Return the algorithm's state."""
        return self.algorithm.init(self.arena(arena))

    def select(self, arena: Arena, state: Any, t: jax.Array, key: jax.Array) -> tuple[Decision, Any]:
        """Return the algorithm's choice."""
        return self.algorithm.select(self.arena(arena), state, t, key)

    def update(self, arena: Arena, state: Any, observation: Any, t: jax.Array) -> Any:
        """Return the algorithm's next state."""
        return self.algorithm.update(self.arena(arena), state, observation, t)

    def belief(self, arena: Arena, state: Any) -> Any:
        """Return the belief about standardised values."""
        return self.algorithm.belief(self.arena(arena), state)


def build(options: Options) -> Study:
    """Return the study of all algorithms on the three problems."""
    runs, bounds = [], Bounds(reward_width=THEORY, cost_width=THEORY)
    for name, (end, length, _, own, goose) in PLACES.items():
        problem = bottleneck(name, options.points_per_axis)
        kernel = Scale(kernel=Matern52(length_scale=length * end), variance=VARIANCE)
        model = jb.surrogate(problem.domain, kernel, noise_variance=NOISE_VARIANCE)
        seeds = [problem.domain.nearest([SEED])]
        algorithms = {
            "CSafeOpt": jb.CSafeOpt(estimator=bounds, seeds=seeds, **own),
            "safe UCB": jb.SgpUcb(estimator=bounds, seeds=seeds, warm_up=0.0),
            "GoOSE": jb.Goose(estimator=bounds, seeds=seeds, **goose),
        }
        runs += [Run(f"{name} {label}", problem, Standardised(algorithm=each), model) for label, each in algorithms.items()]
    problem, side = clinical(min(options.points_per_axis, 50)), min(options.points_per_axis, 50)
    kernels = [Scale(kernel=Matern52(length_scale=0.5), variance=variance) for variance in (0.05, 0.25)]
    model = jb.surrogate(problem.domain, kernels, noise_variance=1e-5, prior_mean=[0.0, -0.9])
    generator = np.random.default_rng(options.seed)
    for start in range(STARTS):
        # The first row of the grid has the dose 0.
        initial = jb.InitialDesign(indices=generator.choice(side, 2, replace=False))
        growth: dict[str, Any] = {"rise": 0.436, "slope": 0.035}
        algorithms = {
            "M-SafeOpt": jb.MSafeOpt(**growth),
            "M-SafeOpt for each x": jb.MSafeOpt(**growth, each=True),
            "safe UCB": jb.SgpUcb(seeds=np.arange(side), warm_up=0.0),
        }
        runs += [Run(f"clinical {label}, start {start + 1}", problem, each, model, initial=initial) for label, each in algorithms.items()]
    return study("bottleneck", runs, options, {"points_per_axis": options.points_per_axis})


def chosen(dataset: Any, label: str) -> np.ndarray:
    """Return the points ``[T]`` that a run on a bottleneck chose."""
    indices = dataset["index"].sel(algorithm=label).isel(trial=0).values
    return np.asarray(indices * 6.0 / (json.loads(dataset.attrs["parameters"])["points_per_axis"] - 1))


def averages(dataset: Any, label: str) -> np.ndarray:
    """Return the average regret of each start on the clinical trial."""
    rounds = min(CLINICAL_ROUNDS, int(dataset["round"][-1]))
    runs = [f"clinical {label}, start {start + 1}" for start in range(STARTS)]
    return np.asarray(dataset.regret.sel(algorithm=runs, round=rounds).isel(trial=0).values / rounds)


def notes(dataset: Any) -> list[str]:
    """Return regret, crossing and violation of each algorithm beside the independent program's."""
    lines = []
    for name, (_, _, valley, _, _) in PLACES.items():
        for algorithm in ("CSafeOpt", "safe UCB", "GoOSE"):
            label = f"{name} {algorithm}"
            rounds, known = REFERENCES.get(label, (REFERENCES[f"{name} safe UCB"][0], ""))
            rounds = min(rounds, int(dataset["round"][-1]))
            places, part = chosen(dataset, label)[:rounds], dataset.sel(algorithm=label, round=rounds).isel(trial=0)
            crossed = f"crossed at {np.argmax(places > valley) + 1}" if np.any(places > valley) else f"never beyond {places.max():.2f}"
            unsafe = f"{int(part.violating_rounds)} unsafe" if part.violating_rounds else "none unsafe"
            beside = f" (independent: {known})" if known else ""
            lines.append(f"{label}, {rounds} evaluations: regret {float(part.regret):.1f}, {crossed}, {unsafe}{beside}")
    for label, known in CLINICAL.items():
        found = averages(dataset, label)
        lines.append(f"clinical {label}: average regret {found.mean():.3f} [{found.min():.3f}, {found.max():.3f}] (independent: {known})")
    return lines + ["there is one set of parameters: --parameters has no effect here"] * (
        '"recommended"' not in dataset.attrs["parameters"]
    )


def draw(dataset: Any) -> Any:
    """Draw chosen points and regret on the bottlenecks, and the clinical regret."""

    def places(ax: Any, name: str) -> None:
        for algorithm in ("CSafeOpt", "safe UCB", "GoOSE"):
            points = chosen(dataset, f"{name} {algorithm}")
            ax.plot(np.arange(1, len(points) + 1), points, label=algorithm, marker=".", linewidth=0.8)
        ax.axhline(PLACES[name][2], color="0.6", linestyle=":")
        ax.set(title=name, xlabel="evaluation", ylabel="chosen $x$")
        ax.legend()

    def regret(ax: Any, name: str) -> None:
        lines = {algorithm: f"{name} {algorithm}" for algorithm in ("CSafeOpt", "safe UCB", "GoOSE")}
        plots.cumulative(dataset, "regret", lines, heading=name, ylabel="regret $R(t)$", ax=ax)

    def trial(ax: Any) -> None:
        rounds = dataset["round"].values
        for label in CLINICAL:
            runs = [f"clinical {label}, start {start + 1}" for start in range(STARTS)]
            found = dataset.regret.sel(algorithm=runs).isel(trial=0).values / rounds
            (line,) = ax.plot(rounds, found.mean(axis=0), label=label)
            ax.fill_between(rounds, found.min(axis=0), found.max(axis=0), color=line.get_color(), alpha=0.15, linewidth=0)
        ax.set(title="clinical trial (mean and range of 10 starts)", xlabel="round $t$", ylabel="average regret $R(t)/t$", ylim=(0, None))
        ax.legend()

    rows = [[partial(each, name=name) for name in PLACES] for each in (places, regret)]
    return plots.compose("Expansion that does not pay at once", [*rows, [trial]])


EXPERIMENT = Experiment(
    module=__name__,
    title="Safe algorithms at bottlenecks (CSafeOpt's code), and with a monotone constraint (M-SafeOpt)",
    position=32,
    defaults=Options(trials=1, horizon=80, points_per_axis=1201),
    quick=Options(trials=1, horizon=20, points_per_axis=121),
    build=build,
    notes=notes,
    draw=draw,
)
