"""What is meant by a name that is not there: names of other libraries, and the nearest ones."""

import functools
import re
from pathlib import Path

import pytest

import jaxbandit as jb
from jaxbandit.core.hints import ELSEWHERE

PAGE = Path(__file__).parents[2] / "notebooks" / "pages" / "coming_from.md"

PROBLEM = jb.problems.sine(4)
MODEL = PROBLEM.model(jb.kernels.SquaredExponential(length_scale=1.0))
GUESSES = {
    "a kernel": (lambda: jb.kernels.RBF, "module 'jaxbandit.kernels' has no attribute 'RBF', did you mean 'SquaredExponential'?"),
    "a kernel with its smoothness": (lambda: jb.kernels.Matern(nu=2.5), "did you mean 'Matern52'?"),
    "a kernel of the package": (lambda: jb.RBF, "did you mean 'kernels.SquaredExponential'?"),
    "a delay of the package": (lambda: jb.Poisson, "did you mean 'delays.Poisson'?"),
    "a spelling": (lambda: jb.optimize, "did you mean 'optimise'?"),
    "an argument": (lambda: jb.simulate(PROBLEM, jb.Rpol(), MODEL, horizon=3, seed=0), "argument 'seed', did you mean 'key'?"),
    "a class of a module": (lambda: jb.Axis, "module 'jaxbandit' has no attribute 'Axis', did you mean 'session.Axis'?"),
    "an argument of a problem": (lambda: jb.problems.sine(points=4), "argument 'points', did you mean 'points_per_axis'?"),
    "an argument by its name elsewhere": (lambda: jb.surrogate(PROBLEM.domain, alpha=0.1), "did you mean 'noise_variance'?"),
    "nothing near of an argument": (lambda: jb.problems.sine(zzz=4), "unexpected keyword argument 'zzz'"),
    "nothing near of a module": (lambda: jb.delays.zzz, "module 'jaxbandit.delays' has no attribute 'zzz'"),
}


# What users of other libraries type first, and a name of this one that answers it.
FROM_ELSEWHERE = {
    "Client": "Session.create",
    "Study": "Session.create",
    "create_study": "Session.create",
    "BayesianOptimization": "Session.create",
    "Optimizer": "Session.create",
    "UpperConfidenceBound": "Unconstrained",
    "UtilityFunction": "Unconstrained",
    "ExpectedImprovement": "Cei",
    "qLogNoisyExpectedImprovement": "Cei",
    "SingleTaskGP": "surrogate",
    "GaussianProcessRegressor": "surrogate",
    "ScaleKernel": "kernels.Scale",
    "RBF": "kernels.SquaredExponential",
    "RBFKernel": "kernels.SquaredExponential",
    "Matern": "kernels.Matern52",
    "MaternKernel": "kernels.Matern52",
    "gp_minimize": "optimise",
    "minimize": "optimise",
    "maximize": "optimise",
    "fmin": "optimise",
    "optimize_acqf": "optimise",
    "TuRBO": "Scbo",
    "Real": "(low, high)",
    "suggest_float": "(low, high)",
    "Integer": "domains.integers",
    "suggest_int": "domains.integers",
    "Categorical": "session.Axis.of_categories",
    "ThompsonSampling": "ConstrainedThompson",
    "TPESampler": "optuna.Sampler",
}


@pytest.mark.parametrize("name", FROM_ELSEWHERE)
def test_a_name_of_another_library_leads_to_what_stands_for_it(name):
    with pytest.raises(AttributeError) as error:
        getattr(jb, name)
    assert FROM_ELSEWHERE[name] in str(error.value).partition("attribute")[2]


def test_hints_and_the_page_of_equivalents_say_the_same():
    """Every hint names things that exist, and stands on the page, beside one of the names that it answers."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for words, names in ELSEWHERE.items():
        for name in re.findall(r"`([\w.]+)`", words):
            assert functools.reduce(getattr, name.split("."), jb) is not None
        here = [name for name in re.findall(r"`\(?(\w[\w.]*)", words)] + (["texts"] if words.startswith("texts") else [])
        beside = [
            right for left, right in rows if {word.replace("_", "").lower() for word in re.findall(r"\w+", left)} & set(names.split())
        ]
        assert any(word.rpartition(".")[2] in right for right in beside for word in here), words


def test_nothing_of_another_kind_is_guessed():
    for name in ("Clint", "zebra", "Realm"):
        with pytest.raises(AttributeError, match=f"'{name}'$"):
            getattr(jb, name)


@pytest.mark.parametrize("name", GUESSES)
def test_a_guess_is_answered_with_what_was_meant(name):
    guess, words = GUESSES[name]
    with pytest.raises((AttributeError, TypeError)) as error:
        guess()
    assert str(error.value).endswith(words)
