"""``Refitted``: what it wraps, what it refuses, and that its fits undo a wrong length-scale."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import Anytime, Cei, Refitted, Rpol, delays, feedback, kernels, problems
from jaxbandit.algorithms import Arena, Observation
from jaxbandit.core.status import Status

KERNEL = kernels.SquaredExponential(length_scale=1.0)


@functools.cache
def problem() -> problems.Problem:
    return problems.sine(9)


def ranged(length_scale: float = 1.0) -> jb.Surrogate:
    model = jb.ranged(problem().domain, KERNEL, low=0.5, high=2.0, noise_variance=0.05, tolerance=1e-3)
    return jb.replace(model, length_scale=length_scale)


def run(algorithm: jb.Algorithm, model: Any = None, **options: Any) -> jb.Trajectory:
    options = {"horizon": 12, "trials": 2, "key": jax.random.key(0), "block": 1} | options
    return jb.simulate(problem(), algorithm, ranged() if model is None else model, **options)


@pytest.mark.full
def test_before_the_first_fit_it_is_the_algorithm_and_after_it_another() -> None:
    fitted = jb.sweep(Refitted(algorithm=Rpol(), first=6, points=8, steps=3), {"span": [30.0, 2.0]})
    alone = jb.sweep(ranged(), {"length_scale": [1.0, 1.0]})
    design = jb.InitialDesign(random=2)
    with pytest.warns(UserWarning, match="4 of 4 trials: a fit of hyper-parameters ended at an end of their range"):
        at = jax.device_get(run(fitted, initial=design, record="all"))
    plain = jax.device_get(run(Rpol(), alone, initial=design))
    np.testing.assert_array_equal(at.indices[..., :4], plain.indices[..., :4])  # two points of the initial design count
    assert not np.array_equal(at.indices[..., 5:], plain.indices[..., 5:])
    assert not np.any(at.failed_round) and np.all(np.isfinite(at.information_gain))
    assert not np.array_equal(at.information_gain[0], at.information_gain[1]), "the span bounds the fit"
    assert at.length_scales.shape == (2, 2, 12, 1, 1) and np.all(at.length_scales[:, :, :4] == 1.0)
    assert np.all(at.length_scales[:, :, 4:] != 1.0) and np.all(at.length_scales[:, :, 4:10] == at.length_scales[:, :, 4:5])
    assert np.all(at.length_scales[:, :, -1] == at.fitted_length_scales)  # the next fit follows round 10, another round 22
    assert np.all(at.fitted_length_scales == 2.0) and np.all(at.status == int(Status.FIT_AT_BOUND)) and not np.any(plain.status)
    assert plain.fitted_length_scales is None
    table = at.to_xarray(problem())
    assert table.fitted_length_scales.dims == ("algorithm", "trial", "group", "axis")
    np.testing.assert_array_equal(table.fitted_length_scales, at.fitted_length_scales)


def test_it_can_be_wrapped_itself() -> None:
    algorithm = jb.canonicalise(Anytime(algorithm=Refitted(algorithm=Rpol(), first=2, points=8, steps=2), keep_data=True))
    arena = Arena(surrogate=jb.canonicalise(ranged()), horizon=jnp.int32(5))
    start = jax.eval_shape(algorithm.init, arena)
    seen = Observation(index=jnp.int32(3), values=jnp.zeros(2))
    assert jax.eval_shape(algorithm.update, arena, start, seen, jnp.int32(1)) == start


@pytest.mark.full
@pytest.mark.parametrize(("inner", "late"), [(Rpol(), True), (Cei(), False)], ids=["rpol late", "cei at once"])
def test_a_fit_to_the_design_changes_the_model_and_counts_nothing(inner: jb.Algorithm, late: bool) -> None:
    """The state keeps what the algorithm has counted; hyper-parameters and belief are new, and so they are in a wrapper."""
    algorithm = jb.canonicalise(Anytime(algorithm=Refitted(algorithm=inner, at_start=True, points=8, steps=2)))
    surrogate: Any = jax.jit(lambda model: model.factorised())(jb.canonicalise(ranged().without_kernels()))
    surrogate = feedback.Wait().bind(surrogate, separate_outputs=False, capacity=3, axis=None) if late else surrogate
    arena = Arena(surrogate=surrogate, horizon=jnp.int32(5))
    state, learn = jax.jit(algorithm.init)(arena), jax.jit(algorithm.learn)
    for index, reward in ((3, 0.5), (40, -0.2), (77, 1.0)):
        state = learn(arena, state, Observation(index=np.int32(index), values=np.asarray([reward, -1.0], np.float32)))
    begun = jax.jit(algorithm.begin)(arena, state)
    assert jax.tree.structure(begun) == jax.tree.structure(state)
    before, after = (algorithm.diagnose(each)["length_scales"] for each in (state, begun))
    assert float(before[0, 0]) == 1.0 and float(after[0, 0]) != 1.0
    held = [algorithm.algorithm._held(each.inner) for each in (state, begun)]
    np.testing.assert_array_equal(held[0].seen.counts, held[1].seen.counts)
    assert int(held[1].rounds) == 3
    if isinstance(inner, Cei):
        seen = [each.inner.posterior for each in (state, begun)]
        np.testing.assert_array_equal(seen[0].visited, seen[1].visited)
        assert float(seen[0].best) == float(seen[1].best) == 1.0


def made(algorithm: jb.Algorithm, model: Any = None, **options: Any) -> Any:
    return lambda: run(algorithm, model, horizon=2, **options)


REFUSED = {
    "a fixed length-scale": (
        lambda: run(Refitted(algorithm=Rpol()), jb.surrogate(problem().domain, KERNEL, noise_variance=0.05), horizon=2),
        r"^surrogate: Refitted .* jaxbandit\.ranged",
    ),
    "beliefs of its own": (made(Refitted(algorithm=jb.Admmbo())), r"^Refitted\.algorithm: Admmbo keeps beliefs of its own"),
    "another policy": (
        made(Refitted(algorithm=Rpol()), delay=delays.Constant(rounds=2), feedback=feedback.Hallucinate()),
        r"^feedback: Refitted plays with Wait under delay.*Hallucinate, whose belief .* one kernel",
    ),
    "a policy that censors": (
        made(Refitted(algorithm=Rpol()), delay=delays.Constant(rounds=2), feedback=feedback.Censor()),
        r"^feedback: Refitted plays with Wait under delay.*Censor, whose belief .* one kernel",
    ),
    "no delay": (made(Refitted(algorithm=jb.Admmbo()), delay=delays.Constant(rounds=2)), "Admmbo"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_work_with_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(jb.InvalidArgument, match=message):
        call()
