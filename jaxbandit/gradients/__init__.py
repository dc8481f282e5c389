"""Derivatives of simulated studies with respect to hyper-parameters.

An algorithm on a grid chooses by a maximum, so the results of a trial are piecewise constant in every hyper-parameter, and their plain
derivative is zero. :class:`SmoothedLoss` has the gradient of the loss smoothed over small steps of the parameters, estimated from
antithetic pairs of trials on common random numbers. ``jax.grad``, ``jax.jit`` and optax work on it for any algorithm, problem and delay::

    params, build = logarithms(Rpol(), model, "estimator.reward_width", "penalty_growth")
    loss = SmoothedLoss(problem, build, horizon=200, pairs=64)
    value, gradient = jax.value_and_grad(loss)(params, jax.random.key(0))
"""

from jaxbandit.gradients import smoothed
from jaxbandit.gradients.descend import descend, logarithms
from jaxbandit.gradients.replay import Replay, replay
from jaxbandit.gradients.smoothed import *  # noqa: F403
from jaxbandit.results.search import Candidate, Tuned

__all__ = ["Candidate", "Replay", "Tuned", "descend", "logarithms", "replay", *smoothed.__all__]
__dir__ = __all__.copy
