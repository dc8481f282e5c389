"""A session that is told the values of a trial fits as the trial does, and chooses points as good, at every round."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import InitialDesign, Refitted, Unconstrained, domains, kernels, problems, ranged, simulate, surrogate
from jaxbandit.rules.estimators import Bounds
from jaxbandit.session import Axis, Model, Session

ROUNDS, FIRST, EVERY, WIDTH, SIZE = 12, 8, 4, 3.0, 15
AXES = {"a": (0.0, 2.0), "b": (-1.0, 3.0)}
BOX, GRID = domains.box(AXES), domains.grid([0.0, -1.0], [2.0, 3.0], SIZE)


def function(x: Any) -> Any:
    """Values about 70 of a deviation about 1, with one hill, another length-scale along each axis, and a slope."""
    return 70 + 2.4 * jnp.exp(-3 * (x[0] - 1.3) ** 2 - 0.4 * (x[1] - 0.5) ** 2) + 0.4 * x[0] - 0.2 * x[1]


@pytest.mark.full(but=("grid-noisy",))
@pytest.mark.parametrize("noise", [1e-8, 0.16], ids=["quiet", "noisy"])
@pytest.mark.parametrize("kind", ["box", "grid"])
def test_a_session_believes_that_a_trial_chose_best(kind: str, noise: float) -> None:
    """By the upper bounds of a session that was told all before, no point is better by a fiftieth of the values' deviation.

    Its fit and the trial's search for the maximum of one density by different means, to 1e-3 nats, and features of a grid are not exact.
    """
    kernel, box = 1.0 * kernels.SquaredExponential(length_scale=[0.5, 0.5]), kind == "box"
    if box:
        problem = problems.on_box(BOX, function, [], noise_variance=noise)
        model, axes = (
            surrogate(BOX, kernel, noise_variance=noise, outputs=1, precision="float64"),
            [Axis.between(name, *ends) for name, ends in AXES.items()],
        )
    else:
        values = np.asarray([function(x) for x in np.asarray(GRID.points)])
        problem = problems.from_tables(GRID, values, np.zeros((0, GRID.size)), noise=problems.Gaussian(variance=noise))
        axes = [Axis.between(name, *ends, SIZE) for name, ends in AXES.items()]
        model = ranged(GRID, kernel, low=0.1, high=4.0, noise_variance=noise, outputs=1, tolerance=1e-6, precision="float64")
    algorithm, options = Unconstrained(estimator=Bounds(reward_width=WIDTH)), {"horizon": ROUNDS, "key": 3}
    learner, initial = Refitted(algorithm=algorithm, at_start=True, every=EVERY), InitialDesign(random=FIRST)
    run = simulate(problem, learner, model, initial=initial, trials=1, **options)
    chosen = np.concatenate([run.initial_indices[0], run.indices[0]])
    points = np.concatenate([run.initial_points[0], run.points[0]]) if box else np.asarray(GRID.points)[chosen]
    seen, worse = np.concatenate([run.initial_values[0], run.values[0]])[:, 0], []
    own, options = Model(kernel=kernel, noise_variance=noise), options | {"initial": InitialDesign()}
    with Session.create(None, axes, algorithm, own, objective="maximise y", **options) as session:
        for number, (point, value) in enumerate(zip(points, seen, strict=True)):
            place = dict(zip(AXES, point.tolist(), strict=True))
            if number >= FIRST:
                if number % EVERY == 0:
                    session.fit()
                belief = session.belief(width=WIDTH)["upper"].values[0]
                if box:
                    mean, sd, _ = session._believed(tuple(BOX.to_unit(point).tolist()))
                    bound = float(mean[0, 0] + WIDTH * sd[0, 0])
                else:
                    bound = float(belief[chosen[number]])
                worse.append((float(np.max(belief)) - bound) / float(np.std(seen[:number])))
            session.observe(place, {"y": float(value)})
    assert max(worse) < 0.02, worse
