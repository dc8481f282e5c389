"""Choice of the kernel that plays the rounds of an algorithm, or the reason in words why none does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from jaxbandit.algorithms.base import Algorithm, Arena, Scored
from jaxbandit.core.checks import is_traced
from jaxbandit.core.declare import checked
from jaxbandit.core.pytree import canonicalise, float_dtype
from jaxbandit.feedback import Policy
from jaxbandit.fused.cells import CALLS, Unsupported, called_by
from jaxbandit.fused.rounds import Plan, parts_of, play
from jaxbandit.problems import AbstractProblem, FullInformation, Problem
from jaxbandit.surrogates import RangedSurrogate, Surrogate
from jaxbandit.surrogates.features import ProductFeatures, SquareRoot

NOT_MEASURED = "for fused='auto' takes a kernel only where it has been measured to be faster, and no device has run it"
MANY = 7919  # points, as many as no other axis has
LOOPS = ("while", "scan", "cond")


@checked
def describe(algorithm: Algorithm, surrogate: Surrogate, feedback: Policy | None = None) -> str:
    """Return a line on the kernel that plays an algorithm's rounds under ``fused=True``, or on the reason why XLA plays them.

    Args:
      algorithm: an algorithm.
      surrogate: the GP model that it runs with.
      feedback: policy under which it runs with late feedback; default: feedback comes at once.

    Raises:
      InvalidArgument: on objects of other classes, and where the algorithm cannot run with the model.
    """
    try:
        return plan_of(algorithm, surrogate, None, feedback, jax.default_backend()).in_words
    except Unsupported as reason:
        return f"by XLA, because {reason}"


def plan_of(algorithm: Algorithm, surrogate: Surrogate, problem: AbstractProblem | None, feedback: Policy | None, platform: str) -> Plan:
    """Return the kernel that plays the rounds of an algorithm.

    Args:
      algorithm, surrogate: the learner.
      problem: what it runs on; ``None`` for any whose values are its means with noise.
      feedback: policy under which feedback comes late, ``None`` where it comes at once.
      platform: JAX's name of the kind of device.

    Raises:
      Unsupported: when no kernel can play them, with the reason.
    """
    if not isinstance(algorithm, Scored):
        raise Unsupported(f"{type(algorithm).__name__} declares no score of single points")
    if feedback is not None:
        raise Unsupported("its feedback is late")
    if float_dtype() != np.float32 or surrogate.precision != "float32":
        raise Unsupported("kernels compute in float32")
    counts = _counts(surrogate)
    if problem is not None:
        jax.eval_shape(lambda key: _check_instance(problem.sample(key)), jax.random.key(0))
    algorithm, model = canonicalise((algorithm, surrogate.without_kernels()))
    plan = Plan({"cpu": "tpu", "cuda": "gpu"}.get(platform, platform), platform == "cpu", counts)

    def dry(algorithm: Scored, model: Surrogate) -> int:
        arena = Arena(surrogate=model, horizon=jnp.int32(1))
        state = algorithm.init(arena)
        many = parts_of(algorithm, arena, state, points=MANY)
        _check_equations(many.choose, MANY)
        _check_equations(many.learn, None)
        play(plan, algorithm, arena, state, jnp.zeros((model.outputs, arena.size)), jnp.zeros((1, model.outputs)), 1)
        return 0

    jax.eval_shape(dry, algorithm, model)
    return plan


def _counts(surrogate: Surrogate) -> tuple[int, ...]:
    """Return ``Plan.counts`` of a model."""
    if isinstance(surrogate, RangedSurrogate):
        raise Unsupported("its model is one of jaxbandit.ranged, whose features are computed in the run")
    form = surrogate.forms[0]
    if len(surrogate.forms) != 1 or not isinstance(form, SquareRoot):
        raise Unsupported("its outputs do not share one root of features")
    if is_traced(surrogate):
        raise Unsupported("its model is traced")
    if surrogate.noise_differs:
        raise Unsupported("points have different noise variances")
    if surrogate.refresh:
        raise Unsupported("its variance is computed anew after some rounds")
    if not isinstance(form, ProductFeatures) or len(form.axes) != 2:
        return ()
    first, second = np.asarray(form.columns)
    counts = np.bincount(second)
    if not np.array_equal(first[np.lexsort((first, second))], np.concatenate([np.arange(count) for count in counts])):
        return ()  # a product is left out before the last of an axis
    return tuple(counts.tolist())


def _check_instance(instance: AbstractProblem) -> int:
    """Raise :class:`Unsupported` unless the values of a problem's instance are its means and noise that no point changes."""
    if not isinstance(instance, Problem | FullInformation):
        raise Unsupported("its problem has values of another kind than means with noise")
    drawn = instance.draw(jax.random.key(0))
    noise = jax.make_jaxpr(lambda index: instance.noise.apply(drawn, index))(jnp.int32(0)).jaxpr
    if any(noise.invars[0] in equation.invars for equation in noise.eqns):
        raise Unsupported("its noise depends on the point")
    return 0


def _check_equations(closed: core.ClosedJaxpr, points: int | None) -> None:
    """Raise :class:`Unsupported` where a traced function draws, loops or branches, or mixes axes of so many ``points``."""
    for equation in closed.jaxpr.eqns:
        name, inputs, outputs = equation.primitive.name, [x.aval for x in equation.invars], [x.aval for x in equation.outvars]
        if name in CALLS:
            _check_equations(called_by(equation), points)
            continue
        if any(jnp.issubdtype(aval.dtype, jax.dtypes.prng_key) for aval in inputs):
            raise Unsupported("it draws random numbers in every round")
        if name in LOOPS:
            raise Unsupported(f"it loops or branches ({name})")
        of_points, in_outputs = any(points in aval.shape for aval in inputs), [points in aval.shape for aval in outputs]
        if (of_points and not all(in_outputs)) or (name == "iota" and any(in_outputs)):
            raise Unsupported(f"the score of a point depends on other points ({name})")
