"""Suggestions, lines of warnings, flags, keys and functions of platforms."""

import functools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import InvalidArgument, Status, delays, domains, explain, kernels, problems
from jaxbandit.core import keys
from jaxbandit.core.blocks import by_platform
from jaxbandit.core.doors import warn
from jaxbandit.core.hints import ELSEWHERE
from jaxbandit.core.status import FAILED, MESSAGES
from jaxbandit.session import Axis, Model, Session
from jaxbandit.study import Run, Study, make_plan

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


# Each first name of another library has a name of this one that answers it.
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


KERNEL = kernels.SquaredExponential()
NOISY = problems.sine(4, noise_variance=1.0)
DOOR_MODEL = jb.surrogate(NOISY.domain, KERNEL, noise_variance=1e-3)


def study() -> Study:
    return Study("noisy", [Run("rpol", NOISY, jb.Rpol(), DOOR_MODEL)], trials=1, horizon=3)


def told() -> None:
    model = Model(kernel=KERNEL, noise_variance=0.1)
    with Session.create(None, [Axis.between("x", 0, 1, 5)], jb.Rpol(), model, key=0, standardise=False) as session:
        session.tell(session.ask(), {"reward": 1e3})


CALLS: dict[str, Callable[[], Any]] = {
    "simulate": lambda: jb.simulate(NOISY, jb.Rpol(), DOOR_MODEL, horizon=3, key=0),
    "make_plan": lambda: make_plan(study()),
    "told": told,
    "traced": lambda: jax.eval_shape(lambda: warn("from a trace") or np.zeros(1)),
    "by other functions": lambda: list(map(warn, ["words"])),
}


@pytest.mark.parametrize("name", CALLS)
def test_warnings_are_of_the_line_of_the_user(name: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        CALLS[name]()
    assert said and {warning.filename for warning in said} == {__file__}


def test_flags_are_single_bits_with_words():
    flags = [flag for flag in Status if flag]
    assert all(flag.value.bit_count() == 1 for flag in flags)
    assert set(MESSAGES) == set(flags)
    assert len(set(MESSAGES.values())) == len(flags)
    for flag in flags:
        assert explain(flag) == explain(int(flag)) == MESSAGES[flag]


def test_explain_lists_every_flag():
    assert explain(0) == "ok"
    both = explain(Status.NONFINITE_SCORE | Status.DECLARED_INFEASIBLE)
    assert both == f"{MESSAGES[Status.NONFINITE_SCORE]}; {MESSAGES[Status.DECLARED_INFEASIBLE]}"


def test_failures_are_numbers_and_points_without_meaning():
    nonfinite = Status.NONFINITE_FEEDBACK | Status.NONFINITE_SCORE | Status.NONFINITE_TRUTH
    wrong = Status.NEGATIVE_DELAY | Status.NO_SUCH_POINT | Status.NEGATIVE_WIDTH | Status.NONFINITE_STATE | Status.OUT_OF_RANGE
    assert nonfinite | wrong == FAILED


# Keys and flags.


def data(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_keys_of_trials_streams_and_rounds_are_all_different_and_repeatable():
    root = jax.random.key(0)

    def all_keys():
        for trial in range(5):
            for stream in keys.Stream:
                for t in range(5):
                    yield data(keys.round_key(keys.stream_key(keys.trial_key(root, trial), stream), t))

    once = list(all_keys())
    assert len(set(once)) == len(once) == 25 * len(keys.Stream)
    assert once == list(all_keys())


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_counts_are_drawn_under_every_generator(generator):
    """JAX draws Poisson numbers under one generator only."""
    root = jax.random.key(3, impl=generator)
    same = keys.round_key(root, 1) if generator == "threefry2x32" else jax.random.fold_in(jax.random.key(3), 1)
    made = [keys.threefry(keys.round_key(root, t)) for t in (1, 2)]
    assert data(made[0]) != data(made[1]) and (generator == "unsafe_rbg" or data(made[0]) == data(same))
    for model in (delays.Poisson(mean=4.0), problems.CentredPoisson(rate=4.0)):
        drawn = [
            model.draw(jax.random.fold_in(root, t), 3, *([np.float32] if isinstance(model, problems.Noise) else [])) for t in range(30)
        ]
        assert len(np.unique(drawn)) > 5 and np.std(drawn) < 4


def test_a_seed_is_a_key_wherever_users_give_one():
    family = problems.gp_draws(domain=domains.grid([0.0], [1.0], 3))
    for seed in (5, np.int64(5)):
        assert data(keys.typed(seed)) == data(jax.random.key(5))
        np.testing.assert_array_equal(family.sample(seed).means, family.sample(key=jax.random.key(5)).means)
    for wrong in (-1, 2**32, True, 5.0):
        with pytest.raises(InvalidArgument, match=r"^key: must be"):
            family.sample(wrong)


def test_keys_do_not_depend_on_whether_the_number_is_traced():
    root = jax.random.key(1)
    batched = jax.vmap(lambda i: keys.trial_key(root, i))(jnp.arange(3))
    assert [data(k) for k in batched] == [data(keys.trial_key(root, i)) for i in range(3)]


def test_stream_numbers_are_part_of_the_results():
    """Renumbering a stream would change every stored study."""
    assert [(s.name, s.value) for s in keys.Stream][:5] == [("POLICY", 0), ("NOISE", 1), ("DELAY", 2), ("PROBLEM", 3), ("DESIGN", 4)]


scaled = by_platform(lambda x: jnp.sin(x) * 2.0, cuda=lambda x: jnp.cos(x) * 2.0)


def test_each_platform_has_its_own() -> None:
    x = np.float32([0.5, 1.0])
    np.testing.assert_allclose(scaled(x), 2 * (np.cos(x) if jax.default_backend() == "gpu" else np.sin(x)), rtol=1e-6)
    program = jax.jit(jax.vmap(scaled)).trace(x)
    texts = {platform: program.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda")}
    assert "sine" in texts["cpu"] and "cosine" not in texts["cpu"]
    assert "cosine" in texts["cuda"] and "stablehlo.sine" not in texts["cuda"]


def test_the_derivative_is_that_of_the_default() -> None:
    found = jax.jacrev(scaled)(np.float32([0.5, 1.0]))
    np.testing.assert_allclose(found, np.diag(2 * np.cos([0.5, 1.0])), rtol=1e-6)
    text = jax.jit(jax.grad(lambda x: jnp.sum(scaled(x)))).trace(np.ones(2, np.float32)).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.cosine" in text and "stablehlo.sine" not in text and "stablehlo.case" not in text
