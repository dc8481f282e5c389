"""Coverage of the intervals and probabilities that sessions show.

The page on sessions says it. Neither kernel nor noise is told. With ``-s`` the rows of the page's table are printed.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jaxbandit.session import Axis, Session

EXPERIMENTS, RUNS, SHOWN, WAVES = 50, 24, 100, 1500
# The spectral density is Student's t of these degrees of freedom.
DEGREES = {"squared exponential": None, "Matern-5/2": 5, "Matern-3/2": 3}
# These are standard deviations, and functions have deviation 1.
NOISES = (0.0, 0.05, 0.15, 0.3)


def drawn(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """Return a sum of random waves, close to a random kernel's draw."""
    degrees = DEGREES[str(rng.choice(list(DEGREES)))]
    waves = rng.standard_normal((WAVES, 2)) / np.exp(rng.normal(np.log(0.35), 0.4, 2))
    if degrees is not None:
        waves *= np.sqrt(degrees / rng.chisquare(degrees, (WAVES, 1)))
    shifts, weights = rng.uniform(0, 2 * np.pi, WAVES), rng.standard_normal(WAVES)
    return lambda points: np.sqrt(2 / WAVES) * np.cos(points @ waves.T + shifts) @ weights


def shown(kind: str, design: str, number: int) -> dict[str, np.ndarray]:
    """Return standardised errors ``[2, SHOWN]``, probabilities and outcomes of a constraint."""
    rng = np.random.default_rng([7, number])
    functions, noise = [drawn(rng), drawn(rng)], float(rng.choice(NOISES))
    limit = float(np.quantile(functions[1](rng.uniform(size=(2000, 2))), rng.uniform(0.3, 0.8)))
    axes: Any = {"a": (0.0, 1.0), "b": (0.0, 1.0)} if kind == "box" else [Axis.between(name, 0, 1, 20) for name in ("a", "b")]

    def told(points: np.ndarray) -> np.ndarray:
        return np.stack([function(points) for function in functions]) + noise * rng.standard_normal((2, len(points)))

    goals: dict[str, Any] = {"objective": "maximise y", "constraints": [f"g <= {limit!r}"], "key": number}
    if design == "at random":
        points = rng.uniform(size=(RUNS, 2))
        if kind == "grid":
            points = np.stack(np.divmod(rng.permutation(400)[:RUNS], 20), axis=1) / 19
        goals["history"] = {name: column.tolist() for name, column in zip("abyg", (*points.T, *told(points)), strict=True)}
    with Session.create(None, axes, **goals) as session:
        for _ in range(RUNS if design == "chosen" else 0):
            ticket = session.ask()
            y, g = told(np.array([[ticket.point["a"], ticket.point["b"]]], np.float64))[:, 0]
            session.tell(ticket, {"y": float(y), "g": float(g)})
        belief, measured = session.belief(), session.history()["index"].values
    places = rng.permutation(np.setdiff1d(belief["point"].values, measured))[:SHOWN]
    truth = np.stack([function(np.stack([belief["a"].values, belief["b"].values], axis=1)[places]) for function in functions])
    away = (truth - belief["mean"].values[:, places]) / belief["sd"].values[:, places]
    return {"away": away, "said": belief["probability_of_feasibility"].values[places], "holds": truth[1] <= limit}


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("design", ["at random", "chosen"])
@pytest.mark.parametrize("kind", ["grid", "box"])
def test_intervals_hold_as_often_as_they_say(kind: str, design: str) -> None:
    """A fit's maximum alone covers 87%, and the standard error is 0.9%."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = [shown(kind, design, number) for number in range(EXPERIMENTS)]
    away, said, holds = (np.stack([one[name] for one in every]) for name in ("away", "said", "holds"))
    inside = np.mean(np.abs(away) < 1.96, axis=(1, 2))
    likely = (said >= 0.9) & (said < 0.99)
    error = 2 * np.std(inside) / np.sqrt(EXPERIMENTS)
    row = [kind, design, f"{np.mean(inside):.1%} +- {error:.1%}", f"{np.std(away):.2f}", f"{np.mean(said[likely]):.1%}"]
    print(f"| {' | '.join([*row, f'{np.mean(holds[likely]):.1%}'])} |")
    assert 0.90 < np.mean(inside) < 0.98
    assert np.std(away) < 1.2
    assert np.mean(holds[likely]) > 0.85
