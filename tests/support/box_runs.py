"""A small box, a problem for study files, and short runs."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import Array
from jaxbandit.domains import Box, box
from jaxbandit.kernels import SquaredExponential
from jaxbandit.problems.boxes import BoxProblem
from jaxbandit.study import Model, Study, grid

TOML = """
name = "on a box"
trials = 3
horizon = 6
metrics = ["regret", "best_feasible_value"]
trajectories = true
initial = {random = 3}

[model]
noise_variance = 0.01
precision = "float32"
kernel = {type = "SquaredExponential", length_scale = 0.3}

[problem.valley]
type = "tests.support.box_runs:valley"
domain = {type = "box", candidates = 32, starts = 2, steps = 3, axes = {dose = [0.0, 2.0], rate = {type = "log", low = 0.01, high = 1.0}}}

[algorithm.rpol]
type = "Rpol"
sweep = {"estimator.reward_width" = [1.0, 2.0]}
"""


def reward(x: Array) -> Array:
    return -jnp.square(x[0] - 1.5) - jnp.square(jnp.log10(x[1]) + 0.5)


def limit(x: Array) -> Array:
    return x[0] + jnp.log10(x[1]) - 0.25


def small_box(**changes: Any) -> Box:
    sizes: dict[str, Any] = {"candidates": 32, "starts": 2, "steps": 3} | changes
    return box({"dose": (0.0, 2.0), "rate": jb.domains.log(0.01, 1.0)}, **sizes)


@nameable
def valley(domain: Box | None = None) -> BoxProblem:
    """Make a problem with its optimum on the edge of its constraint.

    It is at ``dose = 9/8`` and ``log10 rate = -7/8``.
    """
    best = (-0.28125, (1.125, 10**-0.875))
    return jb.problems.on_box(small_box() if domain is None else domain, reward, [limit], noise_variance=0.01, best=best, name="valley")


def model(**changes: Any) -> jb.Surrogate:
    return jb.surrogate(small_box(), SquaredExponential(length_scale=0.3), noise_variance=0.01, precision="float32", **changes)


def study(**changes: Any) -> Study:
    """Return the study of :data:`TOML` as objects, with ``changes``."""
    axes: dict[str, Any] = {
        "problems": {"valley": valley()},
        "algorithms": {"rpol": jb.Rpol()},
        "sweeps": {"rpol": {"estimator.reward_width": [1.0, 2.0]}},
        "model": Model(kernel=SquaredExponential(length_scale=0.3), noise_variance=0.01, precision="float32"),
        "initial": jb.InitialDesign(random=3),
    }
    axes |= {name: changes.pop(name) for name in (*axes, "delays", "feedback") if name in changes}
    own: dict[str, Any] = {
        "name": "on a box",
        "trials": 3,
        "horizon": 6,
        "metrics": ("regret", "best_feasible_value"),
        "trajectories": True,
    }
    own |= changes
    return Study(runs=grid(**axes, horizon=own["horizon"]), **own)


def values(points: Any) -> np.ndarray:
    """Reward and constraint ``[2, ...]`` at points ``[..., 2]``, in float64."""
    x = np.asarray(points, np.float64)
    return np.stack([-((x[..., 0] - 1.5) ** 2) - (np.log10(x[..., 1]) + 0.5) ** 2, x[..., 0] + np.log10(x[..., 1]) - 0.25])
