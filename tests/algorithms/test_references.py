"""Steps of algorithms against ``scores(model, record)`` of ``tests/oracles/NAME.py``."""

import functools
import importlib
from collections.abc import Callable

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels, problems
from tests.oracles import bandit, policies
from tests.oracles import gaussian_process as gp
from tests.support import steps
from tests.support.algorithms import ALGORITHMS, REGISTERED
from tests.support.paths import TESTS

Scores = Callable[[bandit.Model, bandit.Record], np.ndarray]
LENGTH_SCALE, NOISE, SIDE, HORIZON = 0.35, 0.05, 6, 16
# References by the name of the algorithm. A file in tests/oracles with this name needs no line here.
REFERENCES: dict[str, Scores] = {
    "primal-dual": lambda model, record: policies.primal_dual(model, record, first=np.ones(2), step=1.0).scores
}
REFERENCES |= {
    name: importlib.import_module(f"tests.oracles.{name}").scores for name in ALGORITHMS if (TESTS / "oracles" / f"{name}.py").exists()
}


def gaps(name: str, scores: Scores) -> np.ndarray:
    """Return the relative loss of each choice of two trials, ``[2, T]``."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points, rng = np.asarray(domain.points), np.random.default_rng(5)
    gram = gp.matern52(points, points, LENGTH_SCALE)
    means = gp.random_functions(gram, 3, rng)
    problem = problems.from_tables(domain, means[0], means[1:] - np.median(means[1:], axis=1)[:, None], noise_variance=NOISE)
    with jax.enable_x64(True):
        kernel = kernels.Matern52(length_scale=LENGTH_SCALE)
        own = jaxbandit.surrogate(domain, kernel, noise_variance=NOISE, outputs=3, form="features")
    model = bandit.Model(grams=np.stack([gram] * 3), noise=np.full(3, NOISE), prior_mean=np.zeros(3), width=bandit.constant(1.0))
    run = steps.play(problem, {name: ALGORITHMS[name]()}, model, own, horizon=HORIZON, trials=2, key=jax.random.key(0), initial=(4, 13))[
        name
    ]
    found = []
    for trial in range(2):
        widths = run.widths[trial].astype(np.float64)
        record = bandit.Record(run.indices[trial], run.values[trial], run.initial_indices[trial], run.initial_values[trial])
        known = bandit.Model(model.grams, model.noise, model.prior_mean, lambda t, gain, widths=widths: widths[t - 1])
        found.append(bandit.score_gaps(scores(known, record), run.indices[trial]))
    return np.stack(found)


@pytest.mark.parametrize("name", REFERENCES)
def test_every_choice_is_the_best_by_its_reference(name: str) -> None:
    assert gaps(name, REFERENCES[name]).max() < 1e-8


def test_another_rule_is_not_the_best() -> None:
    other = functools.partial(policies.unconstrained, strategy="bounds")
    assert gaps("primal-dual", lambda model, record: other(model, record).scores).max() > 1e-3


def test_an_algorithm_without_other_tests_has_a_reference() -> None:
    assert REGISTERED.keys() - REFERENCES.keys() == set(), "write scores(model, record) of tests/oracles/NAME.py"
