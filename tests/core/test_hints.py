"""What is meant by a name that is not there: names of other libraries, the nearest ones, and fields of what an object holds."""

import copy
import functools
import pickle
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
    "a field": (lambda: jb.kernels.SquaredExponential(lengthscale=1.0), "argument 'lengthscale', did you mean 'length_scale'?"),
    "a field within": (lambda: jb.Rpol(reward_width=2.0), "argument 'reward_width', did you mean 'estimator.reward_width'?"),
    "a field without its name": (lambda: jb.delays.Poisson(15), "fields are given by name: Poisson(mean=15)"),
    "an argument": (lambda: jb.simulate(PROBLEM, jb.Rpol(), MODEL, horizon=3, seed=0), "argument 'seed', did you mean 'key'?"),
    "a run's field": (lambda: jb.study.Run("mine", PROBLEM, jb.Rpol(), kernel=MODEL), "argument 'kernel'"),
    "a model's field": (lambda: jb.study.Model(lengthscale=1.0), "argument 'lengthscale', did you mean 'length_scale'?"),
    "a study's argument": (lambda: jb.study.Study("mine", [], n_trials=3), "argument 'n_trials', did you mean 'trials'?"),
    "an axis's argument": (lambda: jb.session.Axis("x", value=[1.0]), "argument 'value', did you mean 'values'?"),
    "a session's argument": (lambda: jb.Session.create(None, axes=[]), "argument 'axes', did you mean 'domain'?"),
    "a class of a module": (lambda: jb.Axis, "module 'jaxbandit' has no attribute 'Axis', did you mean 'session.Axis'?"),
    "an attribute": (lambda: MODEL.predict(MODEL.init()).std, "'Prediction' object has no attribute 'std', did you mean 'sd'?"),
    "nothing near": (lambda: PROBLEM.zzz, "'Problem' object has no attribute 'zzz'"),
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


def test_an_object_is_probed_and_copied_as_before():
    assert not hasattr(MODEL, "_repr_png_") and not hasattr(MODEL, "__array__")
    assert copy.deepcopy(PROBLEM).name == pickle.loads(pickle.dumps(PROBLEM)).name == "sine"
    with pytest.raises(AttributeError, match="of its own"):
        _ = Broken().failing
    with pytest.raises(TypeError, match="of its own"):
        Broken(number=1)


@jb.pytree
class Broken:
    number: int = 0

    def __post_init__(self):
        if self.number:
            raise TypeError("an error of its own")

    @property
    def failing(self):
        raise AttributeError("an error of its own")
