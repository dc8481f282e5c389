"""The building."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp

from experiments.xu_2023 import building as experiment
from jaxbandit import problems
from jaxbandit.problems import Zone, building_day

CONTROLLERS = np.array([[1.46, 22.5, 5.7], [4.3, 20.2, 2.13], [0.7, 24.6, 7.41]])


def reference(controller, zone):
    """Return temperature and power by NumPy on a fine time scale."""
    gain, day, switch = controller
    minutes = np.arange(24 * 60 + 1) / 60

    def power(t, air):
        wanted = day if switch <= t < zone.leave else zone.night_set_point
        return np.clip(gain * (wanted - air), 0, zone.max_power)

    def slope(t, state):
        air, wall = state
        up = (t - zone.sunrise) / (zone.sunset - zone.sunrise)
        sun = zone.window_area * zone.irradiance * np.sin(np.pi * up) if 0 < up < 1 else 0
        outdoor = zone.outdoor_mean + zone.outdoor_swing * np.cos(2 * np.pi * (t - 15) / 24)
        inwards, outwards = (wall - air) / zone.air_to_wall, (outdoor - wall) / zone.wall_to_outdoors
        return [(inwards + sun + power(t, air)) / zone.air_capacity, (outwards - inwards) / zone.wall_capacity]

    run = solve_ivp(slope, (0, 24), [zone.initial_air, zone.initial_wall], t_eval=minutes, max_step=0.02, rtol=1e-8, atol=1e-8)
    air = run.y[0]
    used = np.array([power(t, a) for t, a in zip(minutes, air, strict=True)])
    inside = (minutes >= zone.arrive) & (minutes <= zone.leave)
    deviation = np.trapezoid(np.abs(air - zone.comfort)[inside], minutes[inside]) / (zone.leave - zone.arrive)
    return air, np.trapezoid(used, minutes), deviation


def test_simulated_day_solves_the_differential_equations():
    """Euler's error at 5 minutes is five times that at one."""
    for controller in CONTROLLERS[:2]:
        air, energy, deviation = reference(controller, Zone())
        errors = []
        for minutes in (1, 5):
            day = building_day(controller, minutes=minutes)
            errors.append(np.abs(np.asarray(day.air) - air[:-1:minutes]).max())
            assert float(day.energy) == pytest.approx(energy, abs=0.03 * minutes)
            assert float(day.deviation) == pytest.approx(deviation, abs=5e-4 * minutes)
        assert errors[0] < 0.02 and errors[1] < 0.1 and 3 < errors[1] / errors[0] < 7


def test_energy_is_conserved():
    """Heat gains equal heating and sun less losses."""
    with jax.enable_x64(True):
        zone, day = Zone(), jax.device_get(building_day(CONTROLLERS[0]))
        stored = zone.air_capacity * np.diff(day.air) + zone.wall_capacity * np.diff(day.wall)
        middle = np.arange(2.5, 24 * 60, 5) / 60
        sun, outdoors = jax.device_get(jax.jit(lambda zone, hour: (zone.solar_gain(hour), zone.outdoor_temperature(hour)))(zone, middle))
        brought = day.power + sun + (outdoors - day.wall) / zone.wall_to_outdoors
        np.testing.assert_allclose(stored, brought[:-1] * 5 / 60, atol=1e-12)
        assert float(day.energy) == pytest.approx(float(np.sum(day.power)) * 5 / 60)


def test_steady_state():
    """A proportional controller's power then covers the losses."""
    gain, wanted, outdoor = 2.0, 21.0, -1.0
    loss = 1 / (0.9 + 4.5)
    air = (gain * wanted + loss * outdoor) / (gain + loss)
    wall = air - 0.9 * loss * (air - outdoor)
    zone = Zone(night_set_point=wanted, initial_air=air, initial_wall=wall, outdoor_mean=outdoor, outdoor_swing=0.0, irradiance=0.0)
    day = building_day([gain, wanted, 6.0], zone)
    np.testing.assert_allclose(day.air, air, atol=1e-4)
    assert float(day.energy) == pytest.approx(24 * loss * (air - outdoor), rel=1e-4)
    assert float(day.deviation) == pytest.approx(abs(air - 21.0), abs=1e-4)


def test_actuator_and_set_points():
    day = jax.device_get(building_day([5.0, 25.0, 3.0]))
    assert day.power.min() == 0 and day.power.max() == 8
    # The step with the switching time has the averages over time: 2 of 5 minutes at day, when the heating is at its limit.
    between = jax.device_get(building_day([5.0, 25.0, 3.05]))
    assert between.power[36] == pytest.approx(0.4 * 8 + 0.6 * 5 * (16 - between.air[36]), abs=1e-3)


def test_gradients_match_finite_differences():
    def outcome(controller, zone):
        day = building_day(controller, zone)
        return np.array([day.energy, day.deviation])

    def stacked(controller, zone):
        day = building_day(controller, zone)
        return jnp.stack([day.energy, day.deviation])

    with jax.enable_x64(True):
        derivative, step = jax.jit(jax.jacrev(stacked, argnums=(0, 1))), 1e-6
        for controller in CONTROLLERS:
            gradient, of_zone = jax.device_get(derivative(controller, Zone()))
            for axis, e in enumerate(np.eye(3) * step):
                difference = (outcome(controller + e, Zone()) - outcome(controller - e, Zone())) / (2 * step)
                np.testing.assert_allclose(gradient[:, axis], difference, rtol=1e-5, atol=1e-6)
                # Every parameter matters, the switching time too.
                assert np.all(np.abs(difference) > 1e-3)
            for name in ("air_to_wall", "comfort", "max_power"):
                value = getattr(Zone(), name)
                sides = [outcome(controller, Zone(**{name: value + sign * step})) for sign in (1, -1)]
                np.testing.assert_allclose(getattr(of_zone, name), (sides[0] - sides[1]) / (2 * step), rtol=1e-5, atol=1e-6)


def test_gradients_are_finite_on_the_whole_grid():
    # Switching times lie on the edges of steps.
    points = jnp.asarray(problems.building(4).domain.points, float)
    gradients = jax.jit(jax.vmap(jax.grad(lambda c: (day := building_day(c)).energy + day.deviation)))(points)
    assert np.all(np.isfinite(gradients))


def test_facts():
    """The naive controller is dear, and the best is inside the box."""
    problem, raw = problems.building(), problems.building(standardised=False)
    best, points = problems.optimum(raw), raw.domain.points
    assert float(best.feasible_fraction) == pytest.approx(0.165, abs=0.001)
    assert float(best.value) == pytest.approx(-63.09, abs=0.01)
    np.testing.assert_allclose(points[int(best.index)], [1.464, 22.5, 5.714], atol=1e-3)
    assert float(best.unconstrained_value) == pytest.approx(-36.84, abs=0.01)
    cheapest = int(np.argmax(raw.means[0]))
    assert raw.means[1, cheapest] > 3
    naive = raw.domain.nearest(problems.NAIVE_CONTROLLER)
    assert raw.means[1, naive] < -0.2 and -raw.means[0, naive] > 1.1 * -float(best.value)
    # Standardised: the same problem.
    assert problem.means[0].mean() == pytest.approx(0, abs=1e-12) and problem.means[0].std() == pytest.approx(1)
    assert problem.means[1].std() == pytest.approx(1)
    np.testing.assert_array_equal(problem.means[1] <= 0, raw.means[1] <= 0)
    assert int(problems.optimum(problem).index) == int(best.index)
    day = building_day(points[int(best.index)])
    assert float(day.energy) == pytest.approx(-float(best.value), rel=1e-5)
    assert float(day.deviation) - 0.75 == pytest.approx(raw.means[1, int(best.index)], abs=1e-5)


def test_constants_are_arguments():
    usual, warm = (problems.building(4, zone=zone, standardised=False) for zone in (Zone(), Zone(outdoor_mean=5.0)))
    assert np.all(warm.means[0] > usual.means[0])
    strict = problems.building(4, threshold=0.5, standardised=False)
    np.testing.assert_allclose(strict.means[1], usual.means[1] + 0.25)
    assert problems.building(4, noise_variance=0.0).noise.variance == 0.0


def test_experiment_measures_and_draws(tmp_path):
    """One trial keeps the naive controller, and one sees all."""
    raw = problems.building(4, standardised=False)
    energy, excess = -raw.means[0], raw.means[1]
    naive = raw.domain.nearest(problems.NAIVE_CONTROLLER)
    labels = list(dict.fromkeys((*experiment.PAPERS, *experiment.OTHERS)))
    rounds = np.arange(1, raw.domain.size + 1)
    chosen = np.broadcast_to(np.stack([np.full(rounds.size, naive), rounds - 1]), (len(labels), 2, rounds.size))
    dataset = xr.Dataset(
        {"index": (("algorithm", "trial", "round"), chosen), "status": (("algorithm", "trial"), np.zeros((len(labels), 2), int))},
        coords={"algorithm": labels, "trial": [0, 1], "round": rounds},
        attrs={"parameters": '{"set": "paper", "points_per_axis": 4}'},
    )
    truth = experiment.Truth(dataset)
    quality = truth.with_quality(dataset).quality.sel(algorithm="CONFIG").values
    each = energy / energy.std() + np.maximum(excess, 0) / excess.std()
    np.testing.assert_allclose(quality, [np.full(rounds.size, each[naive]), np.minimum.accumulate(each)])
    assert truth.found(dataset, "CONFIG", 0) == naive and truth.found(dataset, "CONFIG", 1) == truth.best
    assert truth.best == int(problems.optimum(raw).index)
    # A coarse grid has no controller near the naive one.
    first = energy[naive] if excess[naive] <= 0 else np.inf
    np.testing.assert_allclose(truth.least_energy(dataset, "CEI"), [first, energy[truth.best]])
    lines = experiment.notes(dataset)
    assert lines[0].startswith("naive controller: 5.00 kW/K") and any("in 1 of 2 trials" in line for line in lines)
    assert "all parameter sets are the same" in lines[-1]
    experiment.draw(dataset).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
