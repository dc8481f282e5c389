"""Flags and refusals of the algorithms with penalties, clips, epochs and schedules."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Anytime, Cbo, Epbo, InvalidArgument, Scgp, Se2, Se3, Status, domains, kernels, penalties, problems
from jaxbandit.engine import simulation
from tests.support import panel

HORIZON, EPOCH, TRIALS, SIZE = 6, 3, 3, 16
NOISE = 0.05
CAP = 1e6


@functools.cache
def problem(shift: float = 0.0, *, constraints: int = 2, noiseless: bool = True) -> problems.Problem:
    """Return a wave with constraints within 1 of ``shift``."""
    x = np.sort(np.random.default_rng(6).random(SIZE))
    costs = np.stack([np.cos(5 * x + j) for j in range(constraints)]) + shift
    variance = np.array([NOISE] + [0.0 if noiseless else NOISE] * constraints)
    return problems.from_tables(domains.product([x]), np.sin(7 * x), costs, noise=problems.Gaussian(variance=variance))


def model(of: problems.Problem, **changes: Any) -> jaxbandit.Surrogate:
    given = {"kernel": kernels.SquaredExponential(length_scale=0.3), "noise_variance": NOISE} | changes
    return jaxbandit.surrogate(of.domain, given.pop("kernel"), outputs=of.outputs, form="features", **given)


def simulate(of: Any, algorithm: Any, surrogate: jaxbandit.Surrogate | None = None, **options: Any) -> jaxbandit.Trajectory:
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(2), "block": 1} | options
    return jax.tree.map(np.asarray, jaxbandit.simulate(of, algorithm, model(of) if surrogate is None else surrogate, **options))


def flagged(run: jaxbandit.Trajectory, flag: Status) -> np.ndarray:
    return (np.asarray(run.status) & int(flag)) != 0


def assert_finite(run: jaxbandit.Trajectory) -> None:
    for field in ("values", "multipliers", "widths", "information_gain"):
        assert np.all(np.isfinite(getattr(run, field))), field
    assert np.all(np.asarray(run.failed_round) == 0)


# Penalty caps.


@pytest.mark.full(but=("float64",))
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("psi", [penalties.Exponential(c=1000.0), penalties.Polynomial(c=1e8, n=40.0)])
def test_an_overflow_of_psi_stops_at_the_cap_and_is_flagged(psi: Any, precision: str) -> None:
    """``exp(1000 * 2)`` is infinite in either precision, and so is ``(2e8)^40``."""
    with jax.enable_x64(precision == "float64"):
        assert np.isinf(np.asarray(jax.jit(psi.__call__)(2.0))), "the case must overflow"
        run = simulate(problem(3.0), Se2(psi=psi, epoch=EPOCH, penalty_cap=CAP))
    assert np.all(flagged(run, Status.PENALTY_CAPPED))
    assert_finite(run)
    np.testing.assert_array_equal(run.multipliers[:, :EPOCH], np.ones((TRIALS, EPOCH, 2)))
    np.testing.assert_array_equal(run.multipliers[:, EPOCH:], np.full((TRIALS, HORIZON + 1 - EPOCH, 2), CAP))
    assert "penalty factor reached its cap" in jaxbandit.explain(int(run.status[0]))
    assert np.all(jaxbandit.metrics.healthy(run.status)), "a capped penalty is a note, not a failure"


def by_exponentials(of: problems.Problem, c: float, **options: Any) -> jaxbandit.Trajectory:
    """Run a program of the test above."""
    with jax.enable_x64(True):
        return simulate(of, Se2(psi=penalties.Exponential(c=c), epoch=EPOCH, **options))


def test_moderate_penalties_are_not_flagged() -> None:
    run = by_exponentials(problem(0.0), 0.5)
    assert not np.any(flagged(run, Status.PENALTY_CAPPED))
    assert run.multipliers.max() > 1.0
    never = by_exponentials(problem(-3.0), 1000.0)
    assert not np.any(flagged(never, Status.PENALTY_CAPPED))
    np.testing.assert_array_equal(never.multipliers, np.ones((TRIALS, HORIZON + 1, 2)))


def test_a_capped_psi_of_one_observation_is_flagged() -> None:
    """Averages of epochs may be negative, and the cap still counts."""
    means = np.array(problem(3.0).means)
    # Only the point chosen first differs.
    means[1:, 1:] = -30.0
    run = by_exponentials(jaxbandit.replace(problem(3.0), means=means), 1000.0)
    np.testing.assert_array_equal(run.multipliers, np.ones((TRIALS, HORIZON + 1, 2)))
    assert_finite(run)
    assert np.all(flagged(run, Status.PENALTY_CAPPED))


def test_a_cap_reached_in_the_last_round_is_flagged() -> None:
    """Only the second epoch's ``kappa`` reaches the cap."""
    run = by_exponentials(problem(3.0), 0.5, penalty_cap=7.5)
    assert np.all(run.multipliers[:, EPOCH : 2 * EPOCH] < 7.5) and np.all(run.multipliers[:, 2 * EPOCH :] == 7.5)
    assert np.all(flagged(run, Status.PENALTY_CAPPED))


# Clips.


@functools.cache
def clipped() -> dict[str, dict[str, jaxbandit.Trajectory]]:
    """Return runs whose clip cuts no side, either or both sides."""
    plain = problem(-0.5, noiseless=False)
    # Before any data every UCB is 3, every width being 3 and every deviation 1.
    cases = {"above": (2.9, {}), "below": (1.0, {"prior_mean": [-9.0, 0.0, 0.0]}), "roomy": (3.1, {})}
    found = {}
    for case, (clip, changes) in cases.items():
        algorithms = {"cbo": Cbo(reward_clip=clip), "scgp": Scgp(reward_clip=clip), "anytime": Anytime(algorithm=Cbo(reward_clip=clip))}
        given = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(2)}
        found[case] = panel.play(problems.full_information(plain), algorithms, model(plain, **changes), **given)
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", ["cbo", "scgp", "anytime"])
def test_a_clip_that_cuts_every_point_is_flagged(name: str) -> None:
    above, below, roomy = (clipped()[case][name] for case in ("above", "below", "roomy"))
    assert np.all(flagged(above, Status.ALL_CLIPPED)) and np.all(flagged(below, Status.ALL_CLIPPED))
    assert not np.any(flagged(roomy, Status.ALL_CLIPPED))
    for run in (above, below, roomy):
        assert_finite(run)
        assert np.all(jaxbandit.metrics.healthy(run.status))
    assert "clip B cut the estimate of every point" in jaxbandit.explain(int(above.status[0]))


# Refusals.

PLAIN = functools.partial(problem, -0.5)


def on_plain(algorithm: Any, **changes: Any) -> None:
    simulate(PLAIN(), algorithm, model(PLAIN(), **changes))


def on_shown(algorithm: Any) -> None:
    simulate(problems.full_information(PLAIN()), algorithm, model(PLAIN()))


SE, M12 = kernels.SquaredExponential(length_scale=0.3), kernels.Matern12(length_scale=0.3)
ONE_KERNEL = "models a combination of outputs; give all of them one kernel and noise_variance"
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    **{
        f"Slater constant {value}": (lambda value=value: on_shown(Scgp(slater=value)), "Scgp.slater: ")
        for value in (0.0, -0.1, 1.01, np.nan)
    },
    **{
        f"schedule {value!r}": (lambda value=value: on_shown(Scgp(schedule=value)), "Scgp.schedule: must be one of 1, 2")
        for value in (0, 3, "1")
    },
    "Slater constants for two": (lambda: on_shown(Scgp(slater=np.array([0.5, 0.5]))), "Scgp.slater: expected one number"),
    "SCGP's clip": (lambda: on_shown(Scgp(reward_clip=0.0)), "Scgp.reward_clip: must be > 0"),
    "SCGP without samples": (lambda: on_plain(Scgp()), "problem: Scgp sees a noisy constraint function before it chooses"),
    "negative rho": (lambda: on_plain(Epbo(penalty=-0.5)), "Epbo.penalty: must be >= 0"),
    "one negative rho": (lambda: on_plain(Epbo(penalty=np.array([1.0, -1.0]))), "Epbo.penalty: must be >= 0"),
    "rho for three": (lambda: on_plain(Epbo(penalty=np.ones(3))), "Epbo.penalty: expected one number, or one for each of the 2"),
    "infinite rho": (lambda: on_plain(Epbo(penalty=np.inf)), "Epbo.penalty: 1 of 1 values are NaN or infinite"),
    "V of 0": (lambda: on_plain(Cbo(step_divisor=0.0)), "Cbo.step_divisor: must be > 0"),
    "negative V": (lambda: on_plain(Cbo(step_divisor=-2.0)), "Cbo.step_divisor: must be > 0"),
    "V inside Anytime": (lambda: on_plain(Anytime(algorithm=Cbo(step_divisor=-2.0))), "Cbo.step_divisor: must be > 0"),
    **{
        f"{algorithm.__name__} of epoch {value!r}": (
            lambda algorithm=algorithm, value=value: on_plain(algorithm(epoch=value)),
            f"{algorithm.__name__}.epoch: must be a whole number >= 1",
        )
        for algorithm in (Se2, Se3)
        for value in (0, -1, 2.5, True)
    },
    **{
        f"{algorithm.__name__} with two kernels": (
            functools.partial(on_plain, algorithm(), kernel=[SE, M12, SE]),
            f"surrogate: {algorithm.name} {ONE_KERNEL}",
        )
        for algorithm in (Se2, Se3)
    },
    **{
        f"{algorithm.__name__} with two noise variances": (
            functools.partial(on_plain, algorithm(), noise_variance=[0.1, 0.1, 0.2]),
            f"surrogate: {algorithm.name} {ONE_KERNEL}",
        )
        for algorithm in (Se2, Se3)
    },
    "Se2 inside Anytime": (lambda: on_plain(Anytime(algorithm=Se2()), kernel=[SE, M12, SE]), f"surrogate: se2 {ONE_KERNEL}"),
    # The factor kappa starts there.
    "cap of 1": (lambda: on_plain(Se2(penalty_cap=1.0)), "Se2.penalty_cap: must lie in (1, inf)"),
    "infinite cap": (lambda: on_plain(Se2(penalty_cap=np.inf)), "Se2.penalty_cap: 1 of 1 values are NaN or infinite"),
    "flat psi": (lambda: on_plain(Se2(psi=penalties.Exponential(c=0.0))), "Exponential.c: must be > 0"),
    "decreasing psi": (lambda: on_plain(Se2(psi=penalties.Polynomial(c=-1.0))), "Polynomial.c: must be > 0"),
    "concave psi": (lambda: on_plain(Se2(psi=penalties.Polynomial(n=0.9))), "Polynomial.n: must lie in [1, inf)"),
    "psi for three": (lambda: on_plain(Se2(psi=penalties.Exponential(c=np.ones(3)))), "Exponential.c: "),
    "powers for three": (lambda: on_plain(Se2(psi=penalties.Polynomial(n=np.full(3, 2.0)))), "Polynomial.n: "),
    "step of 0": (lambda: on_plain(Se3(step=0.0)), "Se3.step: must be > 0"),
    "negative step": (lambda: on_plain(Se3(step=-0.1)), "Se3.step: must be > 0"),
    "no reward's clip": (lambda: on_plain(Cbo(reward_clip=-1.0)), "Cbo.reward_clip: must be > 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_refused_by_name(what: str) -> None:
    call, message = BAD[what]
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert str(caught.value).startswith(message)


GOOD: dict[str, Callable[[], Any]] = {
    "Slater constant 1": lambda: on_shown(Scgp(slater=1.0)),
    "schedule 2": lambda: on_shown(Scgp(schedule=2)),
    "no penalty": lambda: on_plain(Epbo(penalty=0.0)),
    "a rho for each": lambda: on_plain(Epbo(penalty=np.array([0.0, 5.0]))),
    "epochs of one round": lambda: on_plain(Se2(epoch=1)),
    "prior means may differ": lambda: on_plain(Se3(epoch=1), prior_mean=[1.0, 0.0, -1.0]),
    "linear psi": lambda: on_plain(Se2(psi=penalties.Polynomial(n=1.0), penalty_cap=1.01)),
}


@pytest.mark.parametrize("what", GOOD)
def test_the_ends_of_each_range_are_allowed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks above let the limits through: the program's entry is reached."""

    class ReachedError(Exception):
        pass

    def stop(*args: Any, **kwargs: Any) -> None:
        raise ReachedError

    monkeypatch.setattr(simulation, "play_all", stop)
    with pytest.raises(ReachedError):
        GOOD[what]()
