"""Constrained benchmarks on continuous boxes, with known best points.

Repositories have other boxes and constants under the same names; each function describes its own. Rewards are minus the cost in the paper's
units. A constraint is a share of its limit, ``load / limit - 1``, where its units are large, and its ``arsinh`` where it spans more than
two powers of ten over the box: smooth, of the same sign, linear near 0 and logarithmic far off, as the bilog of Eriksson and Poloczek
(2021), *Scalable constrained Bayesian optimization*, sec. 3.2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxbandit.core import fields
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array, PerOutput, checked
from jaxbandit.domains import box, integers
from jaxbandit.problems.boxes import BoxProblem, on_box

__all__ = ["ackley10", "gramacy", "hartmann6", "keane_bump", "pressure_vessel", "speed_reducer", "tension_spring", "welded_beam"]

NoiseVariance: TypeAlias = Annotated[PerOutput, fields.nonnegative]


@dataclasses.dataclass(frozen=True)
class _Output:
    """Function of a point that returns one output of another function."""

    together: Callable[[Array], Sequence[Any]]
    number: int

    def __call__(self, x: Array) -> Any:
        return self.together(x)[self.number]


def _made(
    together: Callable[[Array], Sequence[Any]],
    constraints: int,
    axes: Mapping[str, Any],
    best: tuple[float, Sequence[float]],
    noise_variance: PerOutput,
) -> BoxProblem:
    reward, *limits = (_Output(together, number) for number in range(1 + constraints))
    return on_box(box(axes), reward, limits, noise_variance=noise_variance, best=best, name=together.__name__.removeprefix("_"))


def _gramacy(x: Array) -> Sequence[Any]:
    wave = 0.5 * jnp.sin(2 * math.pi * (x[0] ** 2 - 2 * x[1]))
    return -x[0] - x[1], 1.5 - x[0] - 2 * x[1] - wave, x[0] ** 2 + x[1] ** 2 - 1.5


@nameable
@checked
def gramacy(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make the problem of Gramacy et al. (2016) on a square.

    The source is *Modeling an augmented Lagrangian for blackbox constrained optimization*, sec. 2. Minimise ``x1 + x2`` on ``[0, 1]^2``
    subject to ``1.5 - x1 - 2 x2 - sin(2 pi (x1^2 - 2 x2)) / 2 <= 0`` and ``x1^2 + x2^2 <= 1.5``. The paper's optimum is 0.5998 at (0.1954,
    0.4044); two more optima are local.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[3]``, ``>= 0``.
    """
    best = -0.5997880881444, (0.1951211770, 0.4046669111)
    return _made(_gramacy, 2, {"x1": (0, 1), "x2": (0, 1)}, best, noise_variance)


def _hartmann6(x: Array) -> Sequence[Any]:
    rows = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
    rows += [[2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
    peaks = jnp.asarray(1e-4 * np.array(rows), x.dtype)
    rates = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    heights, narrowness = jnp.asarray(np.array([1.0, 1.2, 3.0, 3.2]), x.dtype), jnp.asarray(np.array(rates), x.dtype)
    return jnp.sum(heights * jnp.exp(-jnp.sum(narrowness * (x[None] - peaks) ** 2, axis=-1))), jnp.sqrt(jnp.sum(x**2) + 1e-12) - 1


@nameable
@checked
def hartmann6(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make Hartmann's function of six variables with a constraint.

    Maximise it on ``[0, 1]^6`` subject to ``|x| <= 1``, as Letham et al. (2019), *Constrained Bayesian optimization with noisy
    experiments*, sec. 5. The unconstrained optimum, 3.32237, is feasible; there is a second basin at 3.2032.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[2]``, ``>= 0``.
    """
    best = 3.3223680114155, (0.2016895110, 0.1500106918, 0.4768739742, 0.2753324304, 0.3116516163, 0.6573005337)
    return _made(_hartmann6, 1, {f"x{n}": (0, 1) for n in range(1, 7)}, best, noise_variance)


def _ackley10(x: Array) -> Sequence[Any]:
    # With the small term the slope at 0 is 0, not NaN.
    size = jnp.sqrt(jnp.sum(x**2) + 1e-24)
    wells = jnp.exp(-0.2 * size / math.sqrt(10)) * 20 + jnp.exp(jnp.mean(jnp.cos(2 * math.pi * x)))
    return wells - 20 - math.e, jnp.sum(x), size - 5


@nameable
@checked
def ackley10(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make Ackley's function of ten variables with two constraints.

    Minimise it on ``[-5, 10]^10`` subject to ``sum x <= 0`` and ``|x| <= 5``, as Eriksson and Poloczek (2021), *Scalable constrained
    Bayesian optimization*, sec. 4. The optimum is 0 at the origin, and the first constraint is active there. There are local minima near
    all points with whole coordinates.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[3]``, ``>= 0``.
    """
    return _made(_ackley10, 2, {f"x{n}": (-5, 10) for n in range(1, 11)}, (0.0, [0.0] * 10), noise_variance)


def _pressure_vessel(x: Array) -> Sequence[Any]:
    # A plate is a whole number of sixteenths of an inch thick.
    shell, head, radius, length = 1 / 16 * x[0], 1 / 16 * x[1], x[2], x[3]
    cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2 + 3.1661 * shell**2 * length + 19.84 * shell**2 * radius
    volume = math.pi * radius**2 * (length + 4 / 3 * radius)
    return -cost, 0.0193 * radius / shell - 1, 0.00954 * radius / head - 1, 1 - volume / 1_296_000, length / 240 - 1


@nameable
@checked
def pressure_vessel(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make the design of a pressure vessel.

    The source is Coello and Mezura-Montes (2002), *Constraint-handling in genetic algorithms*, App. Minimise the cost of a cylinder with
    round heads and a volume of 1,296,000 cubic inches. Shell and head are 1 to 99 sixteenths of an inch thick, two axes of whole numbers;
    radius and length are 10 to 200 inches. The stress in shell and head and the length have limits. The best cost is 6059.714335; other
    repositories have lower costs, because their thickness may be any number.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[5]``, ``>= 0``.
    """
    axes = {"shell": integers(1, 99), "head": integers(1, 99), "radius": (10, 200), "length": (10, 200)}
    return _made(_pressure_vessel, 4, axes, (-6059.714335048, (13, 7, 42.0984455959, 176.6365958424)), noise_variance)


def _welded_beam(x: Array) -> Sequence[Any]:
    load, span, elasticity, rigidity = 6000.0, 14.0, 30e6, 12e6
    weld, length, height, width = x[0], x[1], x[2], x[3]
    arm = jnp.sqrt(0.25 * (length**2 + (weld + height) ** 2))
    inertia = 2 * math.sqrt(2) * weld * length * (length**2 / 12 + 0.25 * (weld + height) ** 2)
    straight, twisted = load / (math.sqrt(2) * weld * length), load * (span + length / 2) * arm / inertia
    shear = jnp.sqrt(straight**2 + straight * twisted * length / arm + twisted**2)
    bending, deflection = 6 * load * span / (width * height**2), 4 * load * span**3 / (elasticity * height**3 * width)
    buckling = 4.013 * elasticity * height * width**3 / 6 / span**2 * (1 - height / (2 * span) * math.sqrt(elasticity / 4 / rigidity))
    bars = 0.04811 * height * width * (14 + length)
    return (
        -1.10471 * weld**2 * length - bars,
        jnp.arcsinh(shear / 13_600 - 1),
        jnp.arcsinh(bending / 30_000 - 1),
        weld - width,
        jnp.arcsinh((0.10471 * weld**2 + bars) / 5 - 1),
        jnp.arcsinh(deflection / 0.25 - 1),
        jnp.arcsinh(1 - buckling / load),
    )


@nameable
@checked
def welded_beam(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make the design of a welded beam, with seven outputs.

    The source is Coello and Mezura-Montes (2002). Minimise the cost of weld and beam, ``[0.125, 10] x [0.1, 10]^3`` inches, within limits
    of shear stress, bending stress, deflection and buckling load and two limits of geometry. The paper's best cost is 1.728226; the optimum
    of these formulas is 1.724852.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[7]``, ``>= 0``.
    """
    axes = {"weld": (0.125, 10), "length": (0.1, 10), "height": (0.1, 10), "width": (0.1, 10)}
    return _made(_welded_beam, 6, axes, (-1.7248523086, (0.2057296398, 3.4704886656, 9.0366239104, 0.2057296398)), noise_variance)


def _tension_spring(x: Array) -> Sequence[Any]:
    wire, coil, turns = x[0], x[1], x[2]
    shear = (4 * coil**2 - wire * coil) / (12_566 * wire**3 * (coil - wire)) + 1 / (5108 * wire**2)
    return (
        -(turns + 2) * coil * wire**2,
        jnp.arcsinh(1 - coil**3 * turns / (71_785 * wire**4)),
        jnp.arcsinh(shear - 1),
        jnp.arcsinh(1 - 140.45 * wire / (coil**2 * turns)),
        (wire + coil) / 1.5 - 1,
    )


@nameable
@checked
def tension_spring(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make the design of a tension spring.

    The source is Arora (1989), *Introduction to optimum design*, after Coello and Mezura-Montes (2002). Minimise the weight of a spring,
    wire of 0.05 to 0.2, coil of 0.25 to 1.3 and 2 to 15 turns, within limits of deflection, shear stress, frequency and size. The paper's
    best weight is 0.012681; the optimum of these formulas is 0.012665. On larger boxes, which some repositories have, coils thinner than
    their wire divide by 0.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[5]``, ``>= 0``.
    """
    axes = {"wire": (0.05, 0.2), "coil": (0.25, 1.3), "turns": (2, 15)}
    return _made(_tension_spring, 4, axes, (-0.012665232788, (0.0516890614, 0.3567177470, 11.2889660000)), noise_variance)


def _speed_reducer(x: Array) -> Sequence[Any]:
    face, module, teeth, first, second, thin, thick = (x[n] for n in range(7))
    weight = 0.7854 * face * module**2 * (3.3333 * teeth**2 + 14.9334 * teeth - 43.0934) - 1.508 * face * (thin**2 + thick**2)
    weight += 7.4777 * (thin**3 + thick**3) + 0.7854 * (first * thin**2 + second * thick**2)
    stress = [
        jnp.sqrt((745 * length / (module * teeth)) ** 2 + square) / (0.1 * shaft**3 * limit) - 1
        for length, shaft, square, limit in ((first, thin, 16.9e6, 1100), (second, thick, 157.5e6, 850))
    ]
    return (
        -weight,
        27 / (face * module**2 * teeth) - 1,
        397.5 / (face * module**2 * teeth**2) - 1,
        1.93 * first**3 / (module * teeth * thin**4) - 1,
        1.93 * second**3 / (module * teeth * thick**4) - 1,
        *stress,
        module * teeth / 40 - 1,
        5 * module / face - 1,
        face / (12 * module) - 1,
        (1.5 * thin + 1.9) / first - 1,
        (1.1 * thick + 1.9) / second - 1,
    )


@nameable
@checked
def speed_reducer(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make the design of a speed reducer.

    The source is Lemonge et al. (2010), *Constrained optimization problems in mechanical engineering design*. Minimise the weight of a gear
    box over face 2.6 to 3.6, module 0.7 to 0.8, 17 to 28 teeth (an axis of whole numbers), shafts of length 7.3 to 8.3 and 7.8 to 8.3 and
    diameter 2.9 to 3.9 and 5 to 5.5, within eleven limits. The paper's best weight is 2996.348165; with the second shaft from 7.3 on, as
    some repositories have it, it would be 2994.47.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[12]``, ``>= 0``.
    """
    axes: dict[str, Any] = {"face": (2.6, 3.6), "module": (0.7, 0.8), "teeth": integers(17, 28)}
    axes |= {"first length": (7.3, 8.3), "second length": (7.8, 8.3), "first diameter": (2.9, 3.9), "second diameter": (5, 5.5)}
    best = -2996.3481649685, (3.5, 0.7, 17, 7.3, 7.8, 3.3502146661, 5.2866832298)
    return _made(_speed_reducer, 11, axes, best, noise_variance)


def _keane_bump(x: Array) -> Sequence[Any]:
    squares = jnp.cos(x) ** 2
    size = jnp.sum(jnp.arange(1, x.shape[0] + 1, dtype=x.dtype) * x**2)
    # Without the maximum the bump divides by 0 at 0.
    bump = jnp.abs(jnp.sum(squares**2) - 2 * jnp.prod(squares)) / jnp.sqrt(jnp.maximum(size, 1))
    return bump, jnp.arcsinh(0.75 - jnp.prod(x)), jnp.mean(x) / 7.5 - 1


@nameable
@checked
def keane_bump(*, noise_variance: NoiseVariance = 0.0) -> BoxProblem:
    """Make Keane's bump of ten variables with two constraints.

    Maximise it on ``[0, 10]^10`` where ``prod x >= 0.75`` and the mean of ``x`` is at most 7.5. The bump is ``|sum cos^4 x - 2 prod cos^2
    x| / sqrt(sum_i i x_i^2)`` of Keane (1994), *Experiences with optimizers in structural design*. The best value known in ten dimensions,
    0.7473103, is of Mishra (2007), *Minimization of Keane's bump function*; hundreds of optima are local.

    Args:
      noise_variance: Gaussian noise variance of the outputs, one number or ``[3]``, ``>= 0``.
    """
    high = 3.1238903780, 3.0691548883, 3.0142823345, 2.9575883663, 1.4660413608
    low = 0.3680585105, 0.3634823207, 0.3591206373, 0.3549542818, 0.3509666518
    best = 0.7473103615261, (*high, *low)
    return _made(_keane_bump, 2, {f"x{n}": (0, 10) for n in range(1, 11)}, best, noise_variance)
