"""All rounds of many trials in one kernel of a GPU or TPU: nothing but the noise and the points chosen passes through the device's memory.

Both kernels have been run by JAX's interpreter, on the very choices of XLA, and compiled for an H100 and a TPU v5e without a device; on no
device has one been measured, so that nothing uses them by itself.
"""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.fields import boolean, choice, exactly, numbers, of_class
from jaxbandit.core.pytree import canonicalise
from jaxbandit.fused.rounds import steps_of
from jaxbandit.surrogates import Surrogate

Array = jax.Array


@takes(
    algorithm=of_class(Algorithm),
    surrogate=of_class(Surrogate),
    means=numbers.of(exactly(None, None, words="one row per function, one column per point")),
    noise=numbers.of(exactly(None, None, None, words="[rounds, functions, trials]")),
    platform=choice("gpu", "tpu"),
    interpret=boolean,
)
def whole_run(
    algorithm: Algorithm, surrogate: Surrogate, means: Array, noise: Array, *, platform: str, interpret: bool = False
) -> tuple[Array, list[Array]]:
    """Play all rounds of all trials in one kernel; feedback comes at once.

    Args:
      algorithm: an algorithm that draws no random numbers of its own and keeps one posterior.
      surrogate: a model in a feature form, whose outputs share one root.
      means: ``[k, M]`` mean values of the functions.
      noise: ``[T, k, trials]`` what is added to them.
      platform: ``"gpu"``, where a block plays one trial in its shared memory, or ``"tpu"``, where a kernel plays 128 side by side.
      interpret: whether JAX's interpreter plays the kernel, as on a CPU.

    Returns:
      The points chosen ``[trials, T]``, and the leaves of the algorithm's state but its belief after the last round, with a leading axis of
      trials.

    Raises:
      InvalidArgument: on objects of other classes and arrays of other shapes.
      Unsupported: when a kernel cannot play the algorithm, with the reason.
    """
    algorithm, surrogate = canonicalise((algorithm, surrogate.without_kernels()))
    size = surrogate.domain.size
    if means.shape != (surrogate.outputs, size):
        raise InvalidArgument(
            f"means: expected shape {[surrogate.outputs, size]}, a row per function of the model, got {list(means.shape)}"
        )
    if noise.shape[1] != surrogate.outputs:
        raise InvalidArgument(f"noise: expected shape [rounds, {surrogate.outputs}, trials], got {list(noise.shape)}")
    trials = noise.shape[-1]
    steps = steps_of(algorithm, surrogate, noise.shape[0])
    kernel = importlib.import_module(f"jaxbandit.fused.whole_{platform}")  # which loads one platform's compilers of kernels
    indices, ended = kernel.run(steps, surrogate, surrogate.forms[0], jnp.asarray(means), jnp.asarray(noise), interpret=interpret)
    after, at = [], 0
    for leaf in steps.start:
        after.append(ended[:, at : at + leaf.size].reshape(trials, *leaf.shape).astype(leaf.dtype))
        at += leaf.size
    return indices, after
