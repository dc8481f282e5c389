"""Derivatives of simulated studies with respect to hyper-parameters.

An algorithm on a grid chooses by a maximum, so what a trial gives is piecewise constant in every hyper-parameter and its plain derivative
is zero. :class:`SmoothedLoss` has the gradient of the loss smoothed over small steps of the parameters, estimated from antithetic pairs of
trials on common random numbers: ``jax.grad``, ``jax.jit`` and optax work on it, with any algorithm, problem and delay, unchanged::

    params, build = logarithms(Rpol(), model, "estimator.reward_width", "penalty_growth")
    loss = SmoothedLoss(problem, build, horizon=200, pairs=64)
    value, gradient = jax.value_and_grad(loss)(params, jax.random.key(0))
"""

from jaxbandit.core.tuned import Candidate, Tuned
from jaxbandit.gradients.descend import descend
from jaxbandit.gradients.losses import (
    SubjectTo,
    best_feasible,
    hard_violation,
    positive_regret,
    regret,
    regret_and_violation,
    soft_violation,
)
from jaxbandit.gradients.parameters import logarithms
from jaxbandit.gradients.replay import Replay, replay
from jaxbandit.gradients.smoothed import Estimate, SmoothedLoss

__all__ = [
    "Candidate",
    "Estimate",
    "Replay",
    "SmoothedLoss",
    "SubjectTo",
    "Tuned",
    "best_feasible",
    "descend",
    "hard_violation",
    "logarithms",
    "positive_regret",
    "regret",
    "regret_and_violation",
    "replay",
    "soft_violation",
]
__dir__ = __all__.copy  # what completion shows
