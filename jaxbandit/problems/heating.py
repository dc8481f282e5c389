"""Tuning of a building's heating controller (Xu et al. 2023, CONFIG, sec. 6.3), on a small differentiable thermal model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Declared, checked
from jaxbandit.core.fields import between, choice, exactly, finite, finite_numbers, nonnegative, per_output_of_two, positive, whole
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, PerOutput, Scalar
from jaxbandit.domains import grid
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Gaussian

__all__ = ["NAIVE_CONTROLLER", "BuildingDay", "Zone", "building", "building_day"]

DAY = 24.0  # h
# Least and greatest gain in kW/K, daytime set-point in deg C, time of switching from night to day in h.
LIMITS = ((0.5, 18.0, 0.0), (5.0, 25.0, 8.0))
# A choice that ignores energy: full gain, a set-point a little above the comfortable 21 deg C, an early switch.
NAIVE_CONTROLLER = (5.0, 21.5, 2.0)


HOUR = between(0, DAY, open_low=False)
STEP = choice(1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)  # minutes that divide an hour


@pytree
class Zone(Declared):
    r"""A thermal zone with two heat capacities, its heating, its occupants and one winter's day.

    .. math::
        C_a \dot T_a &= (T_w - T_a) / R_{aw} + A I(t) + u, \qquad u = \mathrm{clip}(K_p (\text{set-point} - T_a), 0, u_{\max}) \\
        C_w \dot T_w &= (T_a - T_w) / R_{aw} + (T_o(t) - T_w) / R_{wo}

    with air ``a``, walls ``w``, outdoors ``o``, in kW, kWh, K and h. The structure is the model "TiTe" of Bacher and Madsen (2011),
    "Identifying suitable models for the heat dynamics of buildings", Energy and Buildings 43(7), fitted there to an office of light
    construction of some 120 m^2. Capacities, resistances and window area below are round numbers of the order of magnitude of such
    fits, not theirs. They agree with ISO 13790, where a building of light construction has 110 kJ/K for each m^2 of floor: 3.7 kWh/K.
    We chose the weather, the heating and the hours: a clear winter's day in central Europe.

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
    air_capacity: Annotated[Scalar, positive] = 1.0
    wall_capacity: Annotated[Scalar, positive] = 3.0
    air_to_wall: Annotated[Scalar, positive] = 0.9
    wall_to_outdoors: Annotated[Scalar, positive] = 4.5
    window_area: Annotated[Scalar, nonnegative] = 6.0
    max_power: Annotated[Scalar, positive] = 8.0
    night_set_point: Annotated[Scalar, finite] = 16.0
    comfort: Annotated[Scalar, finite] = 21.0
    arrive: Annotated[Scalar, HOUR] = 8.0
    leave: Annotated[Scalar, HOUR] = 18.0
    initial_air: Annotated[Scalar, finite] = 16.0
    initial_wall: Annotated[Scalar, finite] = 14.0
    outdoor_mean: Annotated[Scalar, finite] = 0.0
    outdoor_swing: Annotated[Scalar, finite] = 4.0
    irradiance: Annotated[Scalar, nonnegative] = 0.4
    sunrise: Annotated[Scalar, finite] = 8.0
    sunset: Annotated[Scalar, finite] = 16.5

    def outdoor_temperature(self, hour: Array) -> Array:
        """Return the outdoor temperature ``T_o`` in deg C at ``hour [...]``."""
        return self.outdoor_mean + self.outdoor_swing * jnp.cos(2 * jnp.pi * (hour - 15.0) / DAY)

    def solar_gain(self, hour: Array) -> Array:
        """Return the solar gain ``A I`` in kW at ``hour [...]``."""
        up = (hour - self.sunrise) / (self.sunset - self.sunrise)
        return self.window_area * self.irradiance * jnp.where((up > 0) & (up < 1), jnp.sin(jnp.pi * up), 0.0)

    def _check(self, name: str, outputs: int | None) -> None:
        if checks.is_traced((self.arrive, self.leave, self.sunrise, self.sunset)):
            return
        if not (self.arrive < self.leave and self.sunrise < self.sunset):
            raise checks.InvalidArgument(
                f"{name}.leave, {name}.sunset: arrive must be before leave, and sunrise before sunset, got arrive={self.arrive},"
                f" leave={self.leave}, sunrise={self.sunrise}, sunset={self.sunset}"
            )


@pytree
class BuildingDay:
    """Time series of one simulated day of ``n`` steps, with its energy and its deviation from comfort."""

    time: Array  # [n] h, the beginning of each step
    air: Array  # [n] deg C at the beginning of each step
    wall: Array  # [n] deg C at the beginning of each step
    outdoor: Array  # [n] deg C in the middle of each step
    set_point: Array  # [n] deg C, mean over the step
    solar: Array  # [n] kW in the middle of each step
    power: Array  # [n] kW of heating, held over the step
    energy: Array  # [] kWh of heating
    deviation: Array  # [] K, mean of |air - comfort| over the occupied hours


@checked
def building_day(
    controller: Annotated[ArrayLike | Sequence[float], finite_numbers, exactly(3, words="gain, set-point and time of switching")],
    zone: Zone = Zone(),
    *,
    minutes: Annotated[int, STEP] = 5,
) -> BuildingDay:
    """Simulate a day under a controller ``[3]``: gain ``K_p`` in kW/K, daytime set-point in deg C, time of switching to it in h.

    The model is integrated by explicit Euler steps of ``minutes``. The function is pure: it can be compiled, batched, and
    differentiated with respect to the controller and the zone's constants. To give the switching time a gradient, the step in which
    it falls has the time-average of the powers of both set-points.
    """
    gain, day_set_point, switch = jnp.asarray(controller, float)
    step = minutes / 60.0
    time = jnp.arange(round(DAY / step), dtype=float) * step

    def share_after(hour: Scalar) -> Array:  # share of each step that lies after the hour, [n]
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
        time=time,
        air=air,
        wall=wall,
        outdoor=outdoor,
        set_point=zone.night_set_point + (day_set_point - zone.night_set_point) * daytime,
        solar=solar,
        power=power,
        energy=step * jnp.sum(power),
        deviation=jnp.sum(occupied * jnp.abs(air - zone.comfort)) / jnp.sum(occupied),
    )


@nameable
@checked
def building(
    points_per_axis: Annotated[int, whole(2)] = 15,
    *,
    zone: Zone = Zone(),
    threshold: Annotated[float, positive] = 0.75,
    minutes: Annotated[int, STEP] = 5,
    standardised: bool = True,
    noise_variance: Annotated[PerOutput, nonnegative, per_output_of_two] = 0.0025,
) -> Problem:
    """Tune the heating controller ``u = K_p (set-point - temperature)`` of a building for one day: least energy at enough comfort.

    An action is ``K_p`` in [0.5, 5] kW/K, the daytime set-point in [18, 25] deg C and the hour in [0, 8] of switching to it from the
    night's fixed one. ``f = -energy`` of heating, ``g`` = mean ``|temperature - comfort|`` over the occupied hours ``- threshold``. The
    paper's simulator (Energym, Modelica) is replaced by :class:`Zone`; all numbers are ours, because the paper gives none.

    A proportional controller holds a temperature below its set-point, the more so the lower the gain: a low gain saves at night, and
    needs a higher set-point by day. On 15^3 points 16.5% are feasible; the best, 63.1 kWh at (1.46, 22.5, 5.7), lies inside the box;
    the cheapest, 36.8 kWh, violates. Heat stored at midnight earns nothing.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^3``.
      zone: the building, its occupants and the day.
      threshold: largest mean deviation allowed, ``g_thr > 0``, K.
      minutes: length of a simulated step; a divisor of an hour.
      standardised: give the reward mean 0 and standard deviation 1 over the grid, and divide the constraint by its standard deviation
        there, which does not change the feasible set (recommended: both then fit a prior variance near 1, and their sum is the paper's
        measure of quality, up to a constant). ``False`` keeps kWh and K.
      noise_variance: Gaussian noise variance of reward and constraint, one number or ``[2]``, ``>= 0``, in the tables' units. The paper
        gives none; the default is its model's ``lambda = 0.05^2``.

    Raises:
      InvalidArgument: on a parameter out of range, or steps too long for the zone's air and the greatest gain.
    """
    decay = minutes / 60.0 * (LIMITS[1][0] + 1.0 / zone.air_to_wall) / zone.air_capacity
    if decay > 1.0:
        raise checks.InvalidArgument(f"minutes: steps of {minutes} overshoot by the greatest gain; at most {int(minutes / decay)} here")
    domain = grid(*LIMITS, points_per_axis)
    with jax.enable_x64(True):
        energy, deviation = (np.asarray(table) for table in _simulated(np.asarray(domain.points), zone, minutes))
    reward, constraint = -energy, deviation - threshold
    if standardised:
        reward, constraint = (reward - reward.mean()) / reward.std(), constraint / constraint.std()
    return from_tables(domain, reward, constraint, noise=Gaussian(variance=noise_variance), name="building")


@partial(jax.jit, static_argnames="minutes")
def _simulated(controllers: Array, zone: Zone, minutes: int) -> tuple[Array, Array]:
    """Return the energy ``[M]`` and the deviation ``[M]`` of controllers ``[M, 3]``."""

    def outcome(controller: Array) -> tuple[Array, Array]:
        day = building_day(controller, zone, minutes=minutes)
        return day.energy, day.deviation

    return jax.vmap(outcome)(controllers)
