"""The scores from which XLA picks a point, beside which the choices of kernels are judged."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

from jaxbandit import Anytime
from jaxbandit.algorithms.base import Algorithm, Arena
from jaxbandit.engine.rounds import choose_point


def scored(algorithm: Algorithm, arena: Arena, state: Any, t: Any, key: Any) -> tuple[Any, Any]:
    """The choice that XLA makes, and the scores ``[M]`` from which it is picked."""
    inner = algorithm.algorithm if isinstance(algorithm, Anytime) else algorithm
    module, scores = sys.modules[type(inner).__module__], []
    picked = module.pick

    def pick(score: Any) -> Any:
        scores.append(score)
        return picked(score)

    with mock.patch.object(module, "pick", pick):
        return choose_point(algorithm, arena, state, t, key), scores[-1]
