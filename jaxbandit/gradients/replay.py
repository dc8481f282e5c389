"""Beliefs along fixed points, with exact derivatives.

The points stay fixed, although an algorithm would choose others; :class:`~jaxbandit.gradients.SmoothedLoss` includes the choices.
"""

from __future__ import annotations

import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, finite, is_traced, short
from jaxbandit.core.declare import Array, Indices, Table, checked
from jaxbandit.core.fields import Words, finite_numbers, integers, numbers
from jaxbandit.core.pytree import canonicalise, pytree, replace
from jaxbandit.domains import Box
from jaxbandit.surrogates import BoxSurrogate, Posterior, Prediction, Surrogate


@pytree
class Replay:
    """Beliefs along ``T`` fixed observations of ``k`` outputs.

    Attributes:
      mean: ``[T, k]`` predictive mean at each point before its value was observed.
      sd: ``[T, k]`` predictive standard deviation of the function there.
      log_density: ``[T, k]`` log density of each value under the prediction, noise included.
      log_evidence: ``[k]`` sums of the log densities, ``log p(y_1, ..., y_T)``.
      belief: mean and deviation ``[k, M]`` after all values.
    """

    mean: Array
    sd: Array
    log_density: Array
    log_evidence: Array
    belief: Prediction


@checked
def replay(
    model: Annotated[Surrogate, Words("a model, jaxbandit.surrogate(...)")],
    indices: Annotated[Indices, numbers],
    values: Annotated[Table, numbers],
) -> Replay:
    """Return beliefs along fixed observations, differentiable in the model.

    Every floating-point leaf of ``model`` that is traced has a derivative. ``jax.grad`` of any of its results with respect to
    ``model.noise_variance`` or ``model.prior_mean`` is exact up to rounding, in forward and in reverse mode; reverse mode keeps about ``2
    sqrt(T)`` posteriors. Points may repeat. Derivatives also exist with respect to ``length_scale`` and ``variance`` of a model of
    :func:`~jaxbandit.ranged`. Its features approximate the kernel up to its ``tolerance``, and their derivative is some thirty times less
    accurate at the shortest length-scale, so choose a small tolerance. Other forms (dense features, products, rows) are computed on the
    host and have no derivative in the kernel; the exact form of a box has derivatives in the numbers of ``model.forms[g].kernel``.

    Args:
      model: the GP model; ``jaxbandit.replace(model, noise_variance=...)`` sets a traced number.
      indices: ``[T]`` numbers of the points observed, on a box the points ``[T, d]`` in the units of its axes.
      values: ``[T, k]`` values observed there, one for each output.

    Raises:
      InvalidArgument: on shapes that do not fit, and, unless they are traced, on points outside the domain or values that are not finite.
    """
    box = model.domain if isinstance(model.domain, Box) else None
    (integers if box is None else finite_numbers)("indices", indices)
    each = () if box is None else (box.dimension,)
    if np.shape(indices)[1:] != each or np.shape(values) != (*np.shape(indices)[:1], model.outputs):
        expected = f"[T, {each[0]}]" if each else "[T]"
        got = f"{list(np.shape(values))} for {list(np.shape(indices))}"
        raise InvalidArgument(f"indices, values: expected values [T, {model.outputs}] for indices {expected}, got {got}")
    if box is not None:
        box.check_inside("indices", indices)
    elif not is_traced(indices):
        given = np.asarray(indices)
        if given.dtype.kind not in "iu" or np.any(given < 0) or np.any(given >= model.domain.size):
            raise InvalidArgument(f"indices: must be whole numbers in [0, {model.domain.size - 1}], got {short(given.tolist())}")
    if not is_traced(values):
        finite("values", values)
    model = canonicalise(replace(model, kernels=())).factorised()
    values = jnp.asarray(values, model.dtype)
    if isinstance(model, BoxSurrogate):
        model, prior, points = model.holding(jnp.asarray(indices))
    else:
        prior, points = model.init(), jnp.asarray(indices, jnp.int32)

    def observe(posterior: Posterior, seen: tuple[Array, Array]) -> tuple[Posterior, tuple[Array, Array, Array]]:
        index, value = seen
        before = model.belief(posterior)
        mean, sd = before.mean[:, index], before.sd[:, index]
        after, steps = model.absorb(posterior, index)
        # The precision is 1 / (lambda + sd^2), without the rounding of sd.
        precision = model.grouped.by_output([step.precision for step in steps])
        density = 0.5 * (jnp.log(precision) - math.log(2 * math.pi) - jnp.square(value - mean) * precision)
        return model.refreshed(model.moved(after, steps, index, value)), (mean, sd, density)

    # Without the checkpoint reverse mode would keep a factor [r, r] for every round.
    @jax.checkpoint
    def stretch(posterior: Posterior, seen: tuple[Array, Array]) -> tuple[Posterior, tuple[Array, Array, Array]]:
        return jax.lax.scan(observe, posterior, seen)

    rounds = points.shape[0]
    length = max(1, math.isqrt(rounds))
    covered = rounds // length * length
    parts = jax.tree.map(lambda x: x[:covered].reshape(rounds // length, length, *x.shape[1:]), (points, values))
    posterior, beliefs = jax.lax.scan(stretch, prior, parts)
    beliefs = jax.tree.map(lambda x: x.reshape(covered, *x.shape[2:]), beliefs)
    posterior, rest = stretch(posterior, (points[covered:], values[covered:]))
    mean, sd, density = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), beliefs, rest)
    belief = model.belief(posterior).prediction
    return Replay(mean=mean, sd=sd, log_density=density, log_evidence=jnp.sum(density, axis=0), belief=belief)
