"""What a learner does while feedback is on its way: wait for it, hallucinate it, or censor it.

A policy binds a surrogate to a *learner*, which offers algorithms the surrogate's own interface: ``init``, ``learn``, ``predict``,
``draw``. Any algorithm runs under any policy.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static
from jaxbandit.feedback.censoring import Censoring
from jaxbandit.feedback.hallucinating import Hallucinating
from jaxbandit.feedback.waiting import Waiting
from jaxbandit.surrogates import Surrogate


@pytree
class Wait:
    """The posterior holds what has arrived, and nothing else: the naive use of an algorithm under delay."""

    name: ClassVar[str] = "wait"

    def bind(self, surrogate: Surrogate, *, apart: bool, capacity: int, axis: str | None) -> Waiting:
        """The learner on ``surrogate``.

        ``apart`` says that outputs have delays of their own, ``capacity`` how many rounds of feedback are kept, ``axis`` names the batch
        axis of trials, if there is one.
        """
        return Waiting(surrogate=surrogate.separate() if apart else surrogate, axis=axis)

    def validate(self, outputs: int) -> None:
        """Nothing to check."""


@pytree
class Hallucinate:
    """The mean of what has arrived, with the deviation of all points chosen, as GP-BUCB (Desautels, Krause and Burdick 2014)."""

    name: ClassVar[str] = "hallucinate"

    def bind(self, surrogate: Surrogate, *, apart: bool, capacity: int, axis: str | None) -> Hallucinating:
        """As :meth:`Wait.bind`."""
        return Hallucinating(surrogate=surrogate, arrivals=surrogate.separate() if apart else surrogate, axis=axis)

    def validate(self, outputs: int) -> None:
        """Nothing to check."""


@pytree
class Censor:
    """All points chosen, with ``minimum`` in place of values that have not arrived (Verma et al. 2022; RPOL sec. 5).

    A value that takes more than ``window`` rounds is never used.

    Attributes:
      window: ``m >= 0`` rounds.
      minimum: what a missing value counts as, the least possible one; one number or ``[1 + m]``.
    """

    name: ClassVar[str] = "censor"
    window: int = static(default=30)
    minimum: Any = 0.0

    def bind(self, surrogate: Surrogate, *, apart: bool, capacity: int, axis: str | None) -> Censoring:
        """As :meth:`Wait.bind`."""
        return Censoring(surrogate=surrogate, window=self.window, capacity=capacity, minimum=self.minimum, axis=axis)

    def validate(self, outputs: int) -> None:
        """Raise ``InvalidArgument`` on a negative window, or a minimum that is not finite or not one per output."""
        checks.integer("Censor.window", self.window, least=0)
        checks.finite("Censor.minimum", self.minimum)
        if np.shape(self.minimum) not in ((), (outputs,)):
            raise checks.InvalidArgument(
                f"Censor.minimum: expected one number, or one for each of the {outputs} outputs, got shape {list(np.shape(self.minimum))}"
            )
