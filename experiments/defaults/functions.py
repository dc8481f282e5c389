"""Standard functions to minimise on a box.

``rivals`` plays some of them. Others are kept apart to confirm its result once.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import jaxbandit as jb
from experiments.boxes import PROBLEMS
from jaxbandit.domains import Box

# Number of Sobol points for the range and standard deviation of a function over its box.
LOOKED_AT = 4096
WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
SHARP_3, SITES_3 = (
    np.array([[3, 10, 30], [0.1, 10, 35]] * 2),
    [[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]],
)
SHARP_6 = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
SITES_6 = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
SITES_6 += [[2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
# Axes of 20 on which the function of 20 axes depends.
ACTIVE = [1, 4, 7, 11, 14, 18]
WELLS = np.array([[4, 4, 4, 4], [1, 1, 1, 1], [8, 8, 8, 8], [6, 6, 6, 6], [3, 7, 3, 7], [2, 9, 2, 9], [5, 5, 3, 3], [8, 1, 8, 1]], float)
WELLS = np.concatenate([WELLS, [[6, 2, 6, 2], [7, 3.6, 7, 3.6]]])
DEPTHS = np.array([0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5])


@dataclasses.dataclass(frozen=True)
class Function:
    """A function to minimise on a box, with constraints.

    A constraint holds where its value is ``<= 0``.

    Attributes:
      name: how tables call it.
      box: the box.
      values: from a point ``[d]`` in the units of the axes to values ``[1 + m]``, the objective's first.
      least: the least value of a feasible point that is known.
      constraints: number of constraints, ``m``.
      noise: standard deviation of the noise of each evaluation.
    """

    name: str
    box: Box
    values: Callable[[np.ndarray], Any]
    least: float
    constraints: int = 0
    noise: float = 0.0

    @functools.cached_property
    def spread(self) -> tuple[float, float]:
        """Return the objective's range and standard deviation over the box."""
        looked_at = np.asarray(self.box.sobol(LOOKED_AT, 0).points, np.float64)
        seen = np.array([self.values(point)[0] for point in looked_at])
        return float(seen.max() - self.least), float(seen.std())

    def with_noise(self, share: float) -> Function:
        """Return the function with noise.

        The noise is a share of the function's standard deviation over the box.
        """
        return dataclasses.replace(self, noise=share * self.spread[1])


def _hartmann(sharp: np.ndarray, sites: Sequence[Sequence[float]], x: np.ndarray) -> float:
    return -float(WEIGHTS @ np.exp(-np.sum(sharp * (x - 1e-4 * np.array(sites)) ** 2, axis=1)))


_hartmann3, _hartmann6 = functools.partial(_hartmann, SHARP_3, SITES_3), functools.partial(_hartmann, SHARP_6, SITES_6)


def _hartmann4(x: np.ndarray) -> float:
    """Return Picheny's scaled form in four axes."""
    sites = 1e-4 * np.array(SITES_6)[:, :4]
    return float((1.1 - WEIGHTS @ np.exp(-np.sum(SHARP_6[:, :4] * (x - sites) ** 2, axis=1))) / 0.839)


def _branin(x: np.ndarray) -> float:
    curve = x[1] - 5.1 / (4 * np.pi**2) * x[0] ** 2 + 5 / np.pi * x[0] - 6
    return curve**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x[0]) + 10


def _rosenbrock(x: np.ndarray) -> float:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def _ackley(x: np.ndarray) -> float:
    return -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2))) - np.exp(np.mean(np.cos(2 * np.pi * x))) + 20 + np.e


def _michalewicz(x: np.ndarray) -> float:
    return -np.sum(np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x**2 / np.pi) ** 20)


def _styblinski_tang(x: np.ndarray) -> float:
    return 0.5 * np.sum(x**4 - 16 * x**2 + 5 * x) + 39.16616570377142 * len(x)


def _griewank(x: np.ndarray) -> float:
    return np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))) + 1


def _levy(x: np.ndarray) -> float:
    w = 1 + (x - 1) / 4
    middle = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2))
    return np.sin(np.pi * w[0]) ** 2 + middle + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2)


def _camel(x: np.ndarray) -> float:
    return (4 - 2.1 * x[0] ** 2 + x[0] ** 4 / 3) * x[0] ** 2 + x[0] * x[1] + (4 * x[1] ** 2 - 4) * x[1] ** 2


def _goldstein_price(x: np.ndarray) -> float:
    a, b = x
    first = 19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2
    second = 18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2
    return (1 + (a + b + 1) ** 2 * first) * (30 + (2 * a - 3 * b) ** 2 * second)


def _shekel(x: np.ndarray) -> float:
    return -np.sum(1 / (np.sum((x - WELLS) ** 2, axis=1) + DEPTHS))


def _rastrigin(x: np.ndarray) -> float:
    return 10 * len(x) + np.sum(x**2 - 10 * np.cos(2 * np.pi * x))


def _zakharov(x: np.ndarray) -> float:
    slope = 0.5 * np.arange(1, len(x) + 1) @ x
    return x @ x + slope**2 + slope**4


def _dixon_price(x: np.ndarray) -> float:
    return (x[0] - 1) ** 2 + np.arange(2, len(x) + 1) @ (2 * x[1:] ** 2 - x[:-1]) ** 2


def _schwefel(x: np.ndarray) -> float:
    return 418.9828872724338 * len(x) - np.sum(x * np.sin(np.sqrt(np.abs(x))))


def _trid(x: np.ndarray) -> float:
    return np.sum((x - 1) ** 2) - np.sum(x[1:] * x[:-1])


def _powell(x: np.ndarray) -> float:
    a, b, c, d = x.reshape(-1, 4).T
    return np.sum((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4)


def _cosines(x: np.ndarray) -> float:
    """Return the cosine mixture of ``d`` axes, at least ``-d / 10``."""
    return np.sum(x**2) - 0.1 * np.sum(np.cos(5 * np.pi * x))


def _plain(
    name: str, formula: Callable[[np.ndarray], float], sides: Sequence[tuple[float, float]], least: float, noise: float = 0
) -> Function:
    axes = jb.domains.box({f"x{number}": (float(low), float(high)) for number, (low, high) in enumerate(sides, 1)})
    return Function(name, axes, lambda x: [float(formula(x))], least, noise=noise)


def _benchmark(name: str) -> Function:
    """Return one of the library's constrained benchmarks, minus whose reward is minimised."""
    problem = PROBLEMS[name][0]()
    sign = np.array([-1.0, *[1.0] * problem.constraints])

    def values(x: np.ndarray) -> Any:
        # In float64, in which the optimum is known.
        with jax.enable_x64(True):
            return sign * np.asarray(problem.means_of(x[None]), np.float64)[:, 0]

    return Function(f"{name}, constrained", problem.domain, values, -float(problem.best.value), problem.constraints)


@functools.cache
def standard() -> tuple[Function, ...]:
    """Return the twelve functions that ``rivals`` plays unless it is told others."""
    unit = [(0, 1)]
    return (
        _plain("Branin", _branin, [(-5, 10), (0, 15)], 0.39788735772973816),
        _plain("Hartmann-3", _hartmann3, unit * 3, -3.86277978),
        _plain("Rosenbrock-4", _rosenbrock, [(-5, 10)] * 4, 0.0),
        _plain("Ackley-5", _ackley, [(-32.768, 32.768)] * 5, 0.0),
        _plain("Michalewicz-5", _michalewicz, [(0, np.pi)] * 5, -4.687658179),
        _plain("Styblinski-Tang-5", _styblinski_tang, [(-5, 5)] * 5, 0.0),
        _plain("Hartmann-6", _hartmann6, unit * 6, -3.32236801),
        _plain("Hartmann-6 x 1e6 + 3e8", lambda x: 1e6 * _hartmann6(x) + 3e8, unit * 6, -3.32236801e6 + 3e8),
        _plain("Hartmann-6, noisy", _hartmann6, unit * 6, -3.32236801, noise=0.33),
        _plain("Griewank-6", _griewank, [(-600, 600)] * 6, 0.0),
        _plain("Levy-8", _levy, [(-10, 10)] * 8, 0.0),
        _plain("Hartmann-6 in 20", lambda x: _hartmann6(x[ACTIVE]), unit * 20, -3.32236801),
    )


@functools.cache
def held_out() -> tuple[Function, ...]:
    """Return functions that no choice was based on, to confirm a result."""
    return (
        _plain("six-hump camel", _camel, [(-3, 3), (-2, 2)], -1.031628453489877),
        _plain("Goldstein-Price", _goldstein_price, [(-2, 2)] * 2, 3.0),
        _plain("Schwefel-3", _schwefel, [(-500, 500)] * 3, 0.0),
        _plain("Shekel-4", _shekel, [(0, 10)] * 4, -10.53640981669),
        _plain("Hartmann-4", _hartmann4, [(0, 1)] * 4, -3.1344941412),
        _plain("Rastrigin-4", _rastrigin, [(-4.5, 5.5)] * 4, 0.0),
        _plain("Zakharov-5", _zakharov, [(-5, 10)] * 5, 0.0),
        _plain("Dixon-Price-6", _dixon_price, [(-10, 10)] * 6, 0.0),
        _plain("Trid-6", _trid, [(-36, 36)] * 6, -50.0),
        _plain("Powell-8", _powell, [(-4, 5)] * 8, 0.0),
        _plain("cosine mixture-8, noisy", _cosines, [(-0.8, 1.2)] * 8, -0.8, noise=0.2),
        _plain("Shekel-4 in 20", lambda x: _shekel(x[ACTIVE[:4]]), [(0, 10)] * 20, -10.53640981669),
    )


@functools.cache
def constrained() -> tuple[Function, ...]:
    """Return the library's eight constrained benchmarks."""
    return tuple(map(_benchmark, PROBLEMS))


@functools.cache
def coco() -> tuple[Function, ...]:
    """Return the first instances of COCO's bbob-constrained in five axes.

    COCO tells no optimum, so that their gaps are values. Raises ``InvalidArgument`` where ``cocoex`` is not installed.
    """
    try:
        suite = importlib.import_module("cocoex").Suite("bbob-constrained", "", "dimensions:5 instance_indices:1")
    except ImportError as error:
        raise jb.InvalidArgument('--parts: coco needs cocoex, which is not installed: pip install "jaxbandit[board]"') from error

    def made(number: int, problem: Any) -> Function:
        sides = enumerate(zip(problem.lower_bounds, problem.upper_bounds, strict=True), 1)
        axes = jb.domains.box({f"x{axis}": (float(low), float(high)) for axis, (low, high) in sides})
        # The function holds the suite, because COCO's problems end with it.
        values = functools.partial(_values_of_coco, suite, number)
        return Function(problem.id, axes, values, 0.0, constraints=problem.number_of_constraints)

    return tuple(made(number, problem) for number, problem in enumerate(suite))


def _values_of_coco(suite: Any, number: int, point: np.ndarray) -> np.ndarray:
    problem = suite[number]
    return np.concatenate([[problem(point)], problem.constraint(point)])


LISTS: dict[str, Callable[[], tuple[Function, ...]]] = {"standard": standard, "held-out": held_out, "constrained": constrained}
