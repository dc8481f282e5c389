"""Delay models: how many rounds ``tau >= 0`` pass before feedback arrives; feedback of round ``s`` is seen at ``s + tau``.

Every model derives from :class:`Delay`. ``draw`` makes the delays of one round, one per output, reward first, and traces under ``jit``
and ``vmap``; so does ``mean``. ``quantile`` and ``validate`` look at concrete numbers. Four fields are common to all models but
:class:`NoDelay` and the wrappers, see :class:`~jaxbandit.delays.base.Model`:

- ``shared``: whether all outputs of a round get the same draw; they are independent otherwise.
- ``maximum``: longer draws are cut to it, a whole number, or ``None`` (then to ``LONGEST_DELAY``).
- ``xi``, ``b``: the pair that ``sub_exponential`` returns instead of the model's own; both or neither.

``mean`` and ``sub_exponential`` are those before the cut. The cut can only lower the mean, and the pair stays valid: ``min(x, c)`` is
increasing and 1-Lipschitz in ``x``, so ``tau - E[tau]`` after the cut is smaller in convex order, its generating function included.
"""

from jaxbandit.delays import base, models
from jaxbandit.delays.base import *  # noqa: F403
from jaxbandit.delays.models import *  # noqa: F403

__all__ = [*base.__all__, *models.__all__]
__dir__ = __all__.copy  # what completion shows
