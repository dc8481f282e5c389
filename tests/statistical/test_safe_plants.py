"""Unsafe evaluations of SafeOpt, StageOpt and SGP-UCB on drawn plants.

The page on sessions says it. ``simulate`` runs the plants; a session with the same model makes the same choices
(``tests/session/test_guarantee.py``). With ``-s`` the table of the page is printed.
"""

import warnings

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import SafeOpt, SgpUcb, StageOpt, domains, informed, kernels, problems
from jaxbandit.session import Axis, Session
from tests.oracles.gaussian_process import squared_exponential

PLANTS, ROUNDS, LENGTH, NOISE = 40, 30, 0.25, 1e-4
METHODS = {"SafeOpt": SafeOpt(), "StageOpt": StageOpt(exploration=15.0), "SGP-UCB": SgpUcb(warm_up=5.0)}
# Factors on the length-scale and on the prior variance of the model, and in how many of the plants an unsafe point was measured.
PRIORS = {
    "right": (1.0, 1.0),
    "length-scale x 2": (2.0, 1.0),
    "length-scale x 1/2": (0.5, 1.0),
    "variance x 2": (1.0, 2.0),
    "variance x 1/2": (1.0, 0.5),
}


def unsafe_plants(method: str, prior: str) -> int:
    """Return the number of plants with an unsafe point."""
    length, variance = PRIORS[prior]
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 30)
    family = problems.gp_draws(
        domain=domain, kernel=kernels.SquaredExponential(length_scale=LENGTH), noise=problems.Gaussian(variance=NOISE)
    )
    kernel = kernels.Scale(kernel=kernels.SquaredExponential(length_scale=LENGTH * length), variance=variance)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=NOISE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = jaxbandit.simulate(
            family, METHODS[method], model, horizon=ROUNDS, trials=PLANTS, key=jax.random.key(0), informed=informed.SafestSeeds()
        )
    violation = run.to_xarray(family, key=jax.random.key(0), label=method).hard_violation
    return int(np.sum(np.asarray(violation.isel(algorithm=0))[:, -1] > 0))


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("method", METHODS)
def test_unsafe_points_are_measured_in_few_plants_where_the_prior_is_right_and_in_more_where_it_is_too_smooth(method: str) -> None:
    counts = {prior: unsafe_plants(method, prior) for prior in PRIORS}
    print(f"{method}: unsafe points in {counts} of {PLANTS} plants")
    assert counts["right"] <= 2
    assert max(counts["length-scale x 1/2"], counts["variance x 2"]) <= 2, "a prior that is too wild is on the safe side"
    assert counts["length-scale x 2"] >= 10, "and the guarantee is void where it is too smooth"


def unsafe_sessions(length: float) -> int:
    """Return the number of unsafe plants of sessions without a model."""
    axes = [Axis.between("x", 0.0, 1.0, 15), Axis.between("y", 0.0, 1.0, 15)]
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, 15)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    values, vectors = np.linalg.eigh(squared_exponential(points, points, length))
    root, unsafe = vectors * np.sqrt(np.maximum(values, 0)), 0
    for plant in range(PLANTS):
        rng = np.random.default_rng(plant)
        reward, cost = (root @ rng.standard_normal(len(points)) for _ in range(2))
        # The negative is as likely a draw.
        cost = cost if cost.min() < -0.3 else -cost
        seed = int(rng.choice(np.flatnonzero(cost < -0.3)))
        goals = {"objective": "maximise f", "constraints": ["g <= 0"]}
        with Session.create(None, axes, SafeOpt(seeds=[seed]), key=plant, **goals) as session:
            chosen = []
            for _ in range(ROUNDS):
                ticket = session.ask()
                chosen.append(ticket.index)
                noise = 0.01 * rng.standard_normal(2)
                session.tell(ticket, {"f": reward[ticket.index] + noise[0], "g": cost[ticket.index] + noise[1]})
        unsafe += bool(np.any(cost[chosen] > 0))
    return unsafe


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
def test_sessions_without_a_model_are_as_safe_as_their_prior_is_right() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = {length: unsafe_sessions(length) for length in (0.25, 0.5, 1.0)}
    print(f"without a model: unsafe points in {counts} of {PLANTS} plants")
    assert counts[0.25] <= 8 and max(counts[0.5], counts[1.0]) <= 2
