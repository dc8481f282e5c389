"""Problems of papers with known functions on boxes.

They are ``sine``, ``P1`` to ``P6``, data rates, GPUs with a queue, and a heating controller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks, fields
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array, Declared, Scalar, checked
from jaxbandit.core.declare import PerOutput as OneOrEach
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.delays import POISSON_MEAN, Poisson
from jaxbandit.domains import grid
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.modified import FullInformation, full_information
from jaxbandit.problems.noise import CentredPoisson, Gaussian, PerOutput, Uniform

__all__ = ["ARTIFICIAL", "CONTINUUM_OPTIMUM", "CONTINUUM_POINT", "NAIVE_CONTROLLER", "BuildingDay", "Zone", "artificial", "building"]
__all__ += ["building_day", "data_rate", "queueing", "sine", "sine_delayed"]

Resolution: TypeAlias = Annotated[int, fields.whole(2)]
VarianceOfTwo: TypeAlias = Annotated[OneOrEach, fields.nonnegative, fields.per_output_of_two]

#: The optimum of :func:`sine` over the whole square: x1 = 3 pi / 2, where sin x1 = -1 and the constraint reads sin x2 >= 0.95.
CONTINUUM_POINT = (1.5 * math.pi, math.asin(0.95))
#: The optimal reward of :func:`sine` over the whole square.
CONTINUUM_OPTIMUM = 1.0 - math.asin(0.95)


@nameable
@checked
def sine(points_per_axis: Resolution = 50, *, noise_variance: VarianceOfTwo = 0.05) -> Problem:
    """Make the sine problem, with two small feasible islands.

    It is ``f = -sin x1 - x2``, ``g = sin x1 sin x2 + 0.95`` on ``[0, 6]^2``, and 1.77% of the square is feasible: the small-feasible-region
    problem of RPOL (Guo et al. 2022, sec. 6) and of Shi and Eryilmaz (2022, App. E.1). The optimum on a grid is
    far below the continuum's ``f* = -0.25324``: -0.4493 on 30x30, -0.3487 on 50x50, -0.2728 on 100x100. The second island, around
    ``(pi / 2, 3 pi / 2)``, is a trap with ``f = -5.395``. Slater slack is only 0.05.

    Args:
      points_per_axis: grid resolution ``n``, ``M = n^2``, at least 2.
      noise_variance: Gaussian noise variance of reward and cost, one number or ``[2]``, ``>= 0`` (RPOL: 0.05).
    """
    domain = grid([0.0, 0.0], [6.0, 6.0], points_per_axis)
    x1, x2 = np.asarray(domain.points).T
    reward, constraint = -np.sin(x1) - x2, np.sin(x1) * np.sin(x2) + 0.95
    return from_tables(domain, reward, constraint, noise=Gaussian(variance=noise_variance), name="sine")


@nameable
@checked
def sine_delayed(
    points_per_axis: Resolution = 50,
    *,
    noise_variance: VarianceOfTwo = 0.05,
    mean_delay: Annotated[Scalar, POISSON_MEAN] = 15.0,
) -> Problem:
    """Make :func:`sine` with delayed feedback (RPOL, sec. 6).

    Delays of reward and cost are independent Poisson numbers.

    Args:
      points_per_axis, noise_variance: as for :func:`sine`.
      mean_delay: mean delay of each in rounds, ``>= 0`` (RPOL: 15).
    """
    return replace(sine(points_per_axis, noise_variance=noise_variance), delay=Poisson(mean=mean_delay), name="sine_delayed")


def _branin(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    bowl = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(x1) + 10


def _bowl(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return ((x1 + 3) ** 2 + (x2 + 3) ** 2 - 100) / 2


#: Names of the problems of :func:`artificial`.
ARTIFICIAL = tuple(f"P{n}" for n in range(1, 7))


@nameable
@checked
def artificial(
    name: Annotated[str, fields.choice(*ARTIFICIAL)],
    points_per_axis: Resolution = 100,
    *,
    standardised: bool = True,
    noise_variance: VarianceOfTwo = 0.0025,
) -> Problem:
    """Make one of CONFIG's ``P1`` to ``P6`` on ``[-10, 10]^2``.

    They minimise Branin, or modified Branin, under one constraint (Xu et al. 2023, sec. 6.2, Tables 3 and 4). ``f`` is the objective with
    its sign turned, ``g = c - Qr(c)`` for ``c`` = SinQ (P1, P2), InvBowl (P3, P4) or Bowl (P5, P6), and ``Qr`` is taken over the square,
    not the grid, so that all grids have the same constraint. Shares of feasible points and least objective on 401x401 points: P1 28.7%,
    0.560; P2 28.7%, -359.07; P3 1.64%, 12.164; P4 1.64%, -77.19; P5 57.3%, 0.3986; P6 57.3%, -211.30.

    Args:
      name: ``"P1"`` ... ``"P6"``.
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2`` (the authors' scripts: 100).
      standardised: subtract ``f``'s mean over the grid and divide by its standard deviation there (about 350 to 390); recommended,
        because the objectives reach 2,000. ``False`` keeps the paper's units, as its scripts do.
      noise_variance: Gaussian noise variance of reward and cost, one number or ``[2]``, ``>= 0``, in the tables' units. The paper
        states no variance; the default is its model's ``lambda = 0.05^2``. Its scripts are noiseless (0).
    """
    # Levels are Qr = 3/4 min + 1/4 max over the square. The bowl's least value is -50, at (-3, -3), and its greatest value is 119, at
    # (10, 10). The values of the sine are all of [-1, 1].
    bounds = [(lambda x1, x2: np.sin((x1**2 + x2**2) / 10), -0.5), (lambda x1, x2: -_bowl(x1, x2), -76.75), (_bowl, -7.75)]
    of_constraint, of_objective = divmod(ARTIFICIAL.index(name), 2)
    constraint, level = bounds[of_constraint]
    domain = grid([-10.0, -10.0], [10.0, 10.0], points_per_axis)
    x1, x2 = np.asarray(domain.points).T
    # The second objective of each pair is the modified Branin.
    reward = -(_branin(x1, x2) + 20 * x1 - 30 * x2 if of_objective else _branin(x1, x2))
    if standardised:
        reward = (reward - reward.mean()) / reward.std()
    return from_tables(domain, reward, constraint(x1, x2) - level, noise=Gaussian(variance=noise_variance), name=name)


@nameable
@checked
def data_rate(
    points_per_axis: Resolution = 11,
    *,
    noise_variance: Annotated[Scalar, fields.nonnegative] = 0.01,
    cost_half_width: Annotated[Scalar, fields.nonnegative] = 0.0,
) -> Problem:
    """Make the problem of data rates within an electricity budget.

    Maximise total utility of rates ``x in [0, 2]^4`` subject to ``g = 0.2 x1 + 0.4 x2 + 0.8 x3 + 1.2 x4 - 2 <= 0``. ``U_i = c_i (1 / (1 +
    exp(-a_i (x_i - b_i))) + d_i)`` for servers 1 and 3, ``U_i = c_i (log(a_i x_i + b_i) + d_i)`` for 2 and 4 (Shi and Eryilmaz 2022, App.
    E.2, eq. 35-36, after Lee, Mazumdar and Shroff 2005), ``f = sum_i U_i``. ``c_i`` and ``d_i`` follow from ``U_i(0) = 0``, ``U_i(2) = 1``.
    The constants of Lee et al. are not in the paper: ``a = (5, 1, 5, 1)`` and ``b_i = 1`` are **assumed**. With them ``f* = 2.632`` at
    ``(1.5, 1.75, 1.25, 0)`` on 9^4 points and 2.642 on 11^4, where the constraint is tight.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^4``.
      noise_variance: Gaussian noise variance of the utility, ``>= 0`` (paper: 0.01).
      cost_half_width: half-width of the uniform noise on the cost, ``>= 0``; the paper's constraints have 0 (noiseless) and 0.2.
    """
    domain = grid([0.0] * 4, [2.0] * 4, points_per_axis)
    rates = np.asarray(domain.points)
    # The last two rows are the ends of all axes.
    x = np.vstack([rates, np.zeros(4), np.full(4, 2.0)])
    raw = np.stack([np.log(x[:, i] + 1.0) if i % 2 else np.exp(-np.logaddexp(0.0, -5.0 * (x[:, i] - 1.0))) for i in range(4)])
    low, high = raw[:, -2:-1], raw[:, -1:]
    # Round, so that points exactly on the budget, with the best point among them, are feasible in any floating type.
    constraint = np.round(rates @ np.array([0.2, 0.4, 0.8, 1.2]) - 2.0, 12)
    noise = PerOutput(models=(Gaussian(variance=noise_variance), Uniform(half_width=cost_half_width)))
    return from_tables(domain, sum((raw[:, :-2] - low) / (high - low)), constraint, noise=noise, name="data_rate")


@nameable
@checked
def queueing(
    points_per_axis: Resolution = 21,
    *,
    arrival_rate: Annotated[float, fields.positive] = 6.0,
    noise_variance: Annotated[Scalar, fields.nonnegative] = 0.01,
) -> FullInformation:
    """Make the problem of GPU shares that serve random arrivals.

    Shares ``x in [0, 1]^2`` serve arrivals, seen before the choice, at the least energy. ``f = -2 x_1^2 - x_2^2`` (energy, observed with
    noise), ``g_t = omega_t - sum_i h_i(x_i)`` with ``omega_t ~ Poisson(arrival_rate)`` jobs in a round and known concave service rates
    ``h_i(x) = s_i log(1 + 4 x) / log(5)``, ``s = (6, 4)``, so that ``g <= 0`` is stability of the queue. The paper (Zhou and Ji 2022, App.
    A, after Yu, Neely and Wei 2017) states only the form; energy, rates and all constants are ours. With them the constraint binds (no
    service costs no energy), the best point serves just enough, and the Slater slack is ``sum_i s_i - arrival_rate = 4`` jobs a round.
    ``g_t`` is not bounded, although the paper's Assumption 6 asks for it, because a Poisson number is not.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2``.
      arrival_rate: mean jobs a round, ``> 0``; more than 10 makes the problem infeasible.
      noise_variance: Gaussian noise variance of the energy reading, ``>= 0``.

    Returns:
      A :class:`~jaxbandit.problems.FullInformation` problem: ``constraint_sample(drawn)`` is the round's ``g_t(.)`` as ``[1, M]``.
    """
    domain = grid([0.0, 0.0], [1.0, 1.0], points_per_axis)
    shares = np.asarray(domain.points)  # [M, 2]
    service = (np.log1p(4.0 * shares) / np.log1p(4.0)) @ np.array([6.0, 4.0])
    reward = -(shares**2) @ np.array([2.0, 1.0])
    noise = PerOutput(models=(Gaussian(variance=noise_variance), CentredPoisson(rate=arrival_rate)))
    return full_information(from_tables(domain, reward, arrival_rate - service, noise=noise, name="queueing"))


# The rest tunes a building's heating controller (Xu et al. 2023, CONFIG, sec. 6.3), on a small differentiable thermal model.

#: A choice of :func:`building` that ignores energy: full gain, a set-point a little above the comfortable 21 deg C, an early switch.
NAIVE_CONTROLLER = (5.0, 21.5, 2.0)
Hour: TypeAlias = Annotated[Scalar, fields.between(0, 24.0, open_low=False)]
Minutes: TypeAlias = Annotated[int, fields.choice(1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)]
"""Minutes that divide an hour."""


@pytree
class Zone(Declared):
    r"""A thermal zone with its heating, occupants and winter's day.

    .. math::
        C_a \dot T_a &= (T_w - T_a) / R_{aw} + A I(t) + u, \qquad u = \mathrm{clip}(K_p (\text{set-point} - T_a), 0, u_{\max}) \\
        C_w \dot T_w &= (T_a - T_w) / R_{aw} + (T_o(t) - T_w) / R_{wo}

    with air ``a``, walls ``w``, outdoors ``o``, in kW, kWh, K and h. It has two heat capacities. The structure is the model "TiTe" of
    Bacher and Madsen (2011), "Identifying suitable models for the heat dynamics of buildings", Energy and Buildings 43(7), fitted there to
    an office of light construction of some 120 m^2. Capacities, resistances and window area below are our round numbers of the order of
    magnitude of such fits. They agree with ISO 13790, where a building of light construction has 110 kJ/K for each m^2 of
    floor: 3.7 kWh/K. We chose the weather, the heating and the hours: a clear winter's day in central Europe.

    The outdoor temperature is a sinusoid, warmest at 15 h; the irradiance of the windows is half a sine from ``sunrise`` to ``sunset``.
    The set-point is ``night_set_point`` except from the switching time to ``leave``.

    Attributes:
      air_capacity, wall_capacity: heat capacities ``C_a``, ``C_w``, kWh/K; the air's includes furniture and inner surfaces.
      air_to_wall, wall_to_outdoors: resistances ``R_aw``, ``R_wo``, K/kW.
      window_area: ``A``, effective area of the windows in m^2; the irradiance on it heats the air in full.
      max_power: largest heating power ``u_max``, kW.
      night_set_point: deg C, fixed, as in the paper.
      comfort: temperature in deg C from which deviations are measured.
      arrive, leave: hours between which the zone is occupied; from ``leave`` on the night's set-point holds again.
      initial_air, initial_wall: temperatures in deg C at midnight.
      outdoor_mean, outdoor_swing: mean outdoor temperature over the day, and its amplitude, deg C.
      irradiance: kW/m^2 at the middle of the day.
      sunrise, sunset: hours.
    """

    described: ClassVar[str] = "a thermal zone, problems.Zone(...)"
    air_capacity: Annotated[Scalar, fields.positive] = 1.0
    wall_capacity: Annotated[Scalar, fields.positive] = 3.0
    air_to_wall: Annotated[Scalar, fields.positive] = 0.9
    wall_to_outdoors: Annotated[Scalar, fields.positive] = 4.5
    window_area: Annotated[Scalar, fields.nonnegative] = 6.0
    max_power: Annotated[Scalar, fields.positive] = 8.0
    night_set_point: Annotated[Scalar, fields.finite] = 16.0
    comfort: Annotated[Scalar, fields.finite] = 21.0
    arrive: Hour = 8.0
    leave: Annotated[Hour, fields.Above("arrive")] = 18.0
    initial_air: Annotated[Scalar, fields.finite] = 16.0
    initial_wall: Annotated[Scalar, fields.finite] = 14.0
    outdoor_mean: Annotated[Scalar, fields.finite] = 0.0
    outdoor_swing: Annotated[Scalar, fields.finite] = 4.0
    irradiance: Annotated[Scalar, fields.nonnegative] = 0.4
    sunrise: Annotated[Scalar, fields.finite] = 8.0
    sunset: Annotated[Scalar, fields.finite, fields.Above("sunrise")] = 16.5

    def outdoor_temperature(self, hour: Array) -> Array:
        """Return the outdoor temperature ``T_o`` in deg C at ``hour [...]``."""
        return self.outdoor_mean + self.outdoor_swing * jnp.cos(2 * jnp.pi * (hour - 15.0) / 24.0)

    def solar_gain(self, hour: Array) -> Array:
        """Return the solar gain ``A I`` in kW at ``hour [...]``."""
        up = (hour - self.sunrise) / (self.sunset - self.sunrise)
        return self.window_area * self.irradiance * jnp.where((up > 0) & (up < 1), jnp.sin(jnp.pi * up), 0.0)


@pytree
class BuildingDay:
    """Time series, energy and deviation of a simulated day of ``n`` steps.

    Attributes:
      air, wall: ``[n]`` temperatures in deg C at the beginning of each step.
      power: ``[n]`` kW of heating, constant over a step.
      energy: ``[]`` kWh of heating.
      deviation: ``[]`` K, mean of ``|air - comfort|`` over the occupied hours.
    """

    air: Array
    wall: Array
    power: Array
    energy: Array
    deviation: Array


@checked
def building_day(
    controller: Annotated[
        ArrayLike | Sequence[float], fields.finite_numbers, fields.exactly(3, words="gain, set-point and time of switching")
    ],
    zone: Zone = Zone(),
    *,
    minutes: Minutes = 5,
) -> BuildingDay:
    """Simulate a day of a building under a controller ``[3]``.

    It is the gain ``K_p`` in kW/K, the daytime set-point in deg C, and the time of switching to it in h. The model is integrated by
    explicit Euler steps of ``minutes``. The function is pure: it can be compiled, batched, and differentiated with respect to the
    controller and the zone's constants. The step of the switching time uses the time-average of the powers of both set-points, so that the
    switching time has a gradient.
    """
    return _day(controller if checks.is_traced(controller) else np.asarray(controller, float), zone, minutes)


# Under jit there is one program in place of a program for each operation.
@partial(jax.jit, static_argnames="minutes", inline=True)
def _day(controller: ArrayLike | Sequence[float], zone: Zone, minutes: int) -> BuildingDay:
    gain, day_set_point, switch = jnp.asarray(controller, float)
    step = minutes / 60.0
    time = jnp.arange(round(24 / step), dtype=float) * step

    def share_after(hour: Scalar) -> Array:
        """Return the share ``[n]`` of each step after the hour."""
        return jnp.clip((time + step - hour) / step, 0.0, 1.0)

    daytime = share_after(switch) * (1.0 - share_after(zone.leave))
    outdoor, solar = zone.outdoor_temperature(time + step / 2), zone.solar_gain(time + step / 2)

    def heating(set_point: Scalar, air: Array) -> Array:
        return jnp.clip(gain * (set_point - air), 0.0, zone.max_power)

    def advance(state: tuple[Array, Array], inputs: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        air, wall = state
        at_day, outside, sun = inputs
        power = at_day * heating(day_set_point, air) + (1.0 - at_day) * heating(zone.night_set_point, air)
        inwards, outwards = (wall - air) / zone.air_to_wall, (outside - wall) / zone.wall_to_outdoors
        after = (air + step * (inwards + sun + power) / zone.air_capacity, wall + step * (outwards - inwards) / zone.wall_capacity)
        return after, (air, wall, power)

    start = (jnp.asarray(zone.initial_air, time.dtype), jnp.asarray(zone.initial_wall, time.dtype))
    _, (air, wall, power) = jax.lax.scan(advance, start, (daytime, outdoor, solar))
    occupied = share_after(zone.arrive) * (1.0 - share_after(zone.leave))
    return BuildingDay(
        air=air,
        wall=wall,
        power=power,
        energy=step * jnp.sum(power),
        deviation=jnp.sum(occupied * jnp.abs(air - zone.comfort)) / jnp.sum(occupied),
    )


@nameable
@checked
def building(
    points_per_axis: Resolution = 15,
    *,
    zone: Zone = Zone(),
    threshold: Annotated[float, fields.positive] = 0.75,
    minutes: Minutes = 5,
    standardised: bool = True,
    noise_variance: VarianceOfTwo = 0.0025,
) -> Problem:
    """Make the problem of least heating energy at enough comfort.

    It tunes the controller ``u = K_p (set-point - temperature)`` of a building for one day. An action is ``K_p`` in [0.5, 5] kW/K, the
    daytime set-point in [18, 25] deg C and the hour in [0, 8] of switching to it from the night's fixed set-point. ``f = -energy`` of
    heating, ``g`` = mean ``|temperature - comfort|`` over the occupied hours ``- threshold``. :class:`Zone` replaces the paper's simulator
    (Energym, Modelica); all numbers are ours, because the paper states no numbers.

    A proportional controller keeps the temperature below its set-point, the more so the lower the gain: a low gain saves energy at night,
    and needs a higher set-point by day. Of 15^3 points 16.5% are feasible. The best point, 63.1 kWh at (1.46, 22.5, 5.7), is inside the
    box; the cheapest point, 36.8 kWh, is infeasible. Heat stored at midnight has no value.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^3``.
      zone: the building, its occupants and the day.
      threshold: largest mean deviation allowed, ``g_thr > 0``, K.
      minutes: length of a simulated step; a divisor of an hour.
      standardised: shift and scale the reward to mean 0 and standard deviation 1 over the grid, and divide the constraint by its standard
        deviation there. The feasible set stays the same. Recommended: both then fit a prior variance near 1, and their sum is the paper's
        measure of quality, up to a constant. ``False`` keeps kWh and K.
      noise_variance: Gaussian noise variance of reward and constraint, one number or ``[2]``, ``>= 0``, in the tables' units. The paper
        states no variance; the default is its model's ``lambda = 0.05^2``.

    Raises:
      InvalidArgument: on a parameter out of range, or steps too long for the zone's air and the greatest gain.
    """
    # These are gain in kW/K, daytime set-point in deg C, and time of switching from night to day in h.
    low, high = (0.5, 18.0, 0.0), (5.0, 25.0, 8.0)
    decay = minutes / 60.0 * (high[0] + 1.0 / zone.air_to_wall) / zone.air_capacity
    if decay > 1.0:
        raise checks.InvalidArgument(f"minutes: steps of {minutes} overshoot by the greatest gain; at most {int(minutes / decay)} here")
    domain = grid(low, high, points_per_axis)
    with jax.enable_x64(True):
        energy, deviation = (np.asarray(table) for table in _simulated(np.asarray(domain.points), zone, minutes))
    reward, constraint = -energy, deviation - threshold
    if standardised:
        reward, constraint = (reward - reward.mean()) / reward.std(), constraint / constraint.std()
    return from_tables(domain, reward, constraint, noise=Gaussian(variance=noise_variance), name="building")


@partial(jax.jit, static_argnames="minutes")
def _simulated(controllers: Array, zone: Zone, minutes: int) -> tuple[Array, Array]:
    """Return the energy ``[M]`` and the deviation ``[M]`` of controllers ``[M, 3]``."""
    day = jax.vmap(lambda controller: building_day(controller, zone, minutes=minutes))(controllers)
    return day.energy, day.deviation
