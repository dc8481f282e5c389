"""What is meant by a name that is not there: names of other libraries, the nearest ones, and fields of what an object holds."""

import copy
import pickle

import pytest

import jaxbandit as jb

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
