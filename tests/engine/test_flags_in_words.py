"""Warnings of flags, and refusals of algorithms without their facts."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InitialDesign, InvalidArgument, Status, delays, informed, kernels, metrics, problems
from jaxbandit.core.status import MESSAGES, REMEDIES, status_in_words
from jaxbandit.session import Axis
from jaxbandit.study import Model, Run, Study, from_toml, make_plan, run_study
from jaxbandit.study import flags_in_words as results_in_words
from tests.support.synthetic_results import results

POINTS, HORIZON, TRIALS = 6, 4, 3
CAUTIOUS = [jaxbandit.SafeOpt, jaxbandit.StageOpt, jaxbandit.SgpUcb]


@functools.cache
def model(outputs: int = 2) -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=0.5)
    return jaxbandit.surrogate(problem().domain, kernel, noise_variance=0.1, outputs=outputs, form="features")


@functools.cache
def problem() -> problems.Problem:
    domain = jaxbandit.domains.grid([0.0], [1.0], POINTS)
    return problems.from_tables(domain, np.linspace(8.0, 9.0, POINTS), np.linspace(-1.0, 1.0, POINTS))


def simulate(algorithm: Any, of: Any = None, believed: Any = None, **options: Any) -> jaxbandit.Trajectory:
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(0), "block": 1, **options}
    return jaxbandit.simulate(problem() if of is None else of, algorithm, believed or model(), **options)


def in_study(algorithm: Any, **options: Any) -> Any:
    return make_plan(Study("safe", runs=(Run("mine", problem(), algorithm, model(), **options),), trials=2, horizon=HORIZON))


def in_session(algorithm: Any, directory: Path, **options: Any) -> Any:
    own = Model(kernel=kernels.SquaredExponential(length_scale=0.5), noise_variance=0.1)
    axes = [Axis.between("x", 0.0, 1.0, POINTS)]
    return jaxbandit.Session.create(directory, axes, algorithm, own, key=jax.random.key(0), constraints=["cost <= 1"], **options)


@pytest.mark.parametrize("kind", CAUTIOUS)
def test_a_safe_set_without_points_known_to_be_safe_does_not_start(kind: Callable[..., Any], tmp_path: Path) -> None:
    for start in (
        lambda: simulate(kind()),
        lambda: simulate(jaxbandit.Anytime(algorithm=kind())),
        lambda: simulate(kind(), informed=_tells_nothing),
        lambda: in_session(kind(), tmp_path / "session"),
    ):
        with pytest.raises(InvalidArgument, match=rf"^{kind.__name__}\.seeds: needs points .* {kind.__name__}\(seeds=\[.*SafestSeeds"):
            start()
    assert not (tmp_path / "session").exists(), "nothing is written"
    with pytest.raises(InvalidArgument, match=rf"^run 'mine': {kind.__name__}\.seeds: needs points"):
        in_study(kind())
    in_study(kind(seeds=[0]))
    in_study(kind(), informed=informed.SafestSeeds())


def _tells_nothing(instance: Any, algorithm: Any, surrogate: Any) -> Any:
    return algorithm, surrogate


def test_a_study_file_and_the_oracle_alike(tmp_path: Path) -> None:
    file = tmp_path / "safe.toml"
    text = """
trials = 2
horizon = 3
model = {kernel = {type = "SquaredExponential", length_scale = 1.0}, noise_variance = 0.1}
problem.sine = {type = "sine", points_per_axis = 4}
"""
    file.write_text(text + 'algorithm.safe = {type = "SafeOpt"}\n')
    with pytest.raises(InvalidArgument, match=r"^run 'safe': SafeOpt\.seeds: needs points"):
        make_plan(from_toml(file))
    file.write_text(text + 'algorithm.safe = {type = "SafeOpt", informed = {type = "SafestSeeds"}}\n')
    make_plan(from_toml(file))
    with pytest.raises(InvalidArgument, match=r"^run 'mine': Oracle\.index: nobody told it"):
        in_study(jaxbandit.Oracle())


@pytest.mark.full
def test_seeds_of_the_model_are_taken_when_asked_for_and_flagged_unless_certified() -> None:
    with pytest.warns(UserWarning, match=r"3 of 3 trials: the algorithm began at seeds .* \(give seeds that are known to be safe"):
        guessed = simulate(jaxbandit.SafeOpt(count=2))
    assert np.all(np.asarray(guessed.status) & int(Status.SEEDS_UNCERTAIN) != 0)
    sure = jaxbandit.simulate(
        problem(),
        jaxbandit.SafeOpt(count=2),
        jaxbandit.replace(model(), prior_mean=np.array([0.0, -9.0])),
        horizon=HORIZON,
        trials=TRIALS,
        key=jax.random.key(0),
    )
    assert np.all(np.asarray(sure.status) & int(Status.SEEDS_UNCERTAIN) == 0)


def test_every_flag_is_one_warning_with_the_number_of_trials_and_the_remedy() -> None:
    with pytest.warns(UserWarning) as said:
        run = simulate(jaxbandit.Cbo())
    assert np.all(np.asarray(run.status) == int(Status.ALL_CLIPPED))
    [words] = [str(warning.message) for warning in said]
    assert words == f"simulate: 3 of 3 trials: {MESSAGES[Status.ALL_CLIPPED]} ({REMEDIES[Status.ALL_CLIPPED]})"
    assert said[0].filename == __file__, "at the caller's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(jaxbandit.Cbo(reward_clip=1e3))


@pytest.mark.full
def test_transformations_and_lost_feedback() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        status = jax.jit(lambda key: simulate(jaxbandit.Cbo(), key=key).status)(jax.random.key(0))
    assert np.all(np.asarray(status) == int(Status.ALL_CLIPPED)), "flagged, and nothing said"
    late: dict[str, Any] = {"delay": delays.Constant(rounds=2), "capacity": 1}
    with pytest.warns(UserWarning) as said:
        run = simulate(jaxbandit.Rpol(), **late)
    lost = int(np.sum(np.asarray(run.lost)))
    [words] = [str(warning.message) for warning in said]
    assert lost and words.startswith(f"simulate: {lost} values were lost by a buffer of 1 rounds; 3 of 3 trials: delayed feedback")
    # A buffer may be traced, too.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda key: simulate(jaxbandit.Rpol(), key=key, **late).lost)(jax.random.key(0))


def test_lines_of_flags() -> None:
    assert set(REMEDIES) == set(MESSAGES) and len(set(REMEDIES.values())) == len(REMEDIES)
    both = int(Status.NONFINITE_SCORE | Status.STOPPED)
    lines = status_in_words(np.array([[0, both], [both, int(Status.STOPPED)]]))
    assert [line.split(" (")[0] for line in lines] == [
        f"2 of 4 trials: {MESSAGES[Status.NONFINITE_SCORE]}",
        f"3 of 4 trials: {MESSAGES[Status.STOPPED]}",
    ]
    assert status_in_words(np.zeros(3, np.int32)) == []
    assert status_in_words(np.array([both]))[0].startswith("1 of 1 trial: ")
    dataset = results(labels=["a", "b", "c", "d", "e"], trials=2, rounds=3)
    dataset["status"] = dataset.status + int(Status.STOPPED) * (dataset.algorithm != "b")
    # Four of the five have the same flag.
    [line] = results_in_words(dataset)
    assert line.startswith(f"a, c, d and 1 more, each: 2 of 2 trials: {MESSAGES[Status.STOPPED]}")


def shifted(offset: float, factor: float = 1.0) -> problems.Problem:
    """Return the problem with scaled and shifted rewards."""
    return jaxbandit.replace(problem(), means=np.stack([factor * (problem().means[0] - 8) + offset, problem().means[1]]), noise=QUIET)


QUIET = problems.Gaussian(variance=0.01)
FAR = int(Status.FAR_FROM_PRIOR)
LONG: dict[str, Any] = {"horizon": 8}
OFFSET = {"offset by 1e6": shifted(1e6), "offset by 8": shifted(8.0), "1e6 times as large": shifted(0.0, 1e6)}


@pytest.mark.parametrize("name", OFFSET)
def test_values_that_the_model_calls_impossible_are_flagged_and_warned_of(name: str) -> None:
    """An offset by 8 deviations is more than the papers' problems have."""
    with pytest.warns(UserWarning, match=r"simulate: 3 of 3 trials: observed values lay so far .* impossible \(give prior_mean and"):
        run = simulate(jaxbandit.Rpol(), OFFSET[name], **LONG)
    assert np.all(np.asarray(run.status) == FAR) and np.all(metrics.healthy(run.status))
    # Values up to 19 deviations away pass if some are near.
    for fits in (shifted(0.0), shifted(0.0, 20.0)):
        assert np.all(np.asarray(simulate(jaxbandit.Rpol(), fits, **LONG).status) == 0)
    if name == "offset by 8":
        few = [
            simulate(jaxbandit.Rpol(), OFFSET[name], horizon=4),
            # Random search does not learn.
            simulate(jaxbandit.RandomSearch(), OFFSET[name], **LONG),
            simulate(jaxbandit.Rpol(), OFFSET[name], jaxbandit.replace(model(), prior_mean=np.array([8.0, 0.0])), **LONG),
        ]
        assert not any(np.any(np.asarray(run.status) & FAR) for run in few)


def test_values_count_once_they_arrive_by_the_last_round() -> None:
    # Both delays share a program.
    options = LONG | {"capacity": 5}
    late = {delay: simulate(jaxbandit.Rpol(), shifted(8.0), delay=delays.Constant(rounds=delay), **options).status for delay in (3, 4)}
    assert np.all(np.asarray(late[3]) == FAR) and not np.any(np.asarray(late[4])), "five values arrive, and four"


@pytest.mark.full
def test_values_of_an_initial_design_count() -> None:
    begun = simulate(jaxbandit.Rpol(), shifted(8.0), horizon=4, initial=InitialDesign(random=2))
    assert np.all(np.asarray(begun.status) == FAR)


@pytest.mark.full
def test_studies_and_sessions_say_so_too(tmp_path: Path) -> None:
    study = Study("far", runs=(Run("mine", shifted(8.0), jaxbandit.Rpol(), model()),), trials=2, horizon=8, metrics=("reward",))
    [line] = results_in_words(run_study(study, segment=4))
    assert line.startswith(f"mine: 2 of 2 trials: {MESSAGES[Status.FAR_FROM_PRIOR]}")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        session = in_session(jaxbandit.Rpol(), tmp_path / "session", standardise=False)
        for _ in range(5):
            session.tell(session.ask(), reward=8.0, constraints=0.5)
    assert [str(one.message).partition(" is ")[0] for one in warned] == ["tell: reward = 8"]
    with session, pytest.warns(UserWarning, match="^ask: observed values lay so far from the prior mean"):
        assert session.ask().status & Status.FAR_FROM_PRIOR
        assert session.ask().status & Status.FAR_FROM_PRIOR
    with session.open(tmp_path / "session") as again, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.ask().status & Status.FAR_FROM_PRIOR


def test_a_noise_variance_that_is_far_from_the_problems_is_said_once() -> None:
    kernel = kernels.SquaredExponential(length_scale=0.5)
    noisy = {variance: jaxbandit.replace(shifted(0.0), noise=problems.Gaussian(variance=variance)) for variance in (1.0, 1e-5, 0.0)}
    own = [jaxbandit.surrogate(problem().domain, kernel, noise_variance=noise, form="features") for noise in ([0.1, 1e-3], [0.1, 0.02])]
    said = {(1.0, 0): "0.001 for constraint 1, .* has 1", (1e-5, 1): "0.1 for reward, .* has 1e-05"}
    for (variance, number), words in said.items():
        with pytest.warns(UserWarning, match=rf"^noise_variance: the model's is {words}, more than 100 times off") as warned:
            simulate(jaxbandit.Rpol(), noisy[variance], own[number])
            assert warned[0].filename == __file__
        with pytest.warns(UserWarning, match="^noise_variance: the model's"):
            make_plan(Study("off", runs=(Run("mine", noisy[variance], jaxbandit.Rpol(), own[number]),), trials=1, horizon=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The noise is 50 times off.
        simulate(jaxbandit.Rpol(), noisy[1.0], own[1])
        # The problem has no noise.
        simulate(jaxbandit.Rpol(), noisy[0.0], own[0])
