"""Gaussian-process posteriors in interchangeable forms behind one interface."""

from jaxbandit.core.hints import missing
from jaxbandit.surrogates import choose, evidence, posterior, precision
from jaxbandit.surrogates.boxes.posterior import BoxSurrogate, Noting
from jaxbandit.surrogates.boxes.refitted import RefittedBox
from jaxbandit.surrogates.choose import *  # noqa: F403
from jaxbandit.surrogates.evidence import *  # noqa: F403
from jaxbandit.surrogates.evidence.ranges import RangedSurrogate, ranged
from jaxbandit.surrogates.evidence.refitted import RefittedPosterior, RefittedSurrogate
from jaxbandit.surrogates.posterior import *  # noqa: F403
from jaxbandit.surrogates.precision import *  # noqa: F403

__all__ = ["BoxSurrogate", "Noting", "RangedSurrogate", "RefittedBox", "RefittedPosterior", "RefittedSurrogate", "ranged"]
__all__ += [*choose.__all__, *evidence.__all__, *posterior.__all__, *precision.__all__]
# Completion shows these names.
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
