"""Problems to optimise: mean reward, constraints, noise, delays and optimum.

Regret is measured against the optimum. Functions that make a problem raise ``InvalidArgument`` on an argument outside its range.
"""

from jaxbandit.core.codec import nameable
from jaxbandit.core.hints import missing
from jaxbandit.problems import base, benchmarks, boxes, data, data_sets, families, fixed, modified, noise, rkhs
from jaxbandit.problems.base import *  # noqa: F403
from jaxbandit.problems.benchmarks import *  # noqa: F403
from jaxbandit.problems.boxes import *  # noqa: F403
from jaxbandit.problems.data import *  # noqa: F403
from jaxbandit.problems.data_sets import *  # noqa: F403
from jaxbandit.problems.families import *  # noqa: F403
from jaxbandit.problems.fixed import *  # noqa: F403
from jaxbandit.problems.modified import *  # noqa: F403
from jaxbandit.problems.noise import *  # noqa: F403
from jaxbandit.problems.rkhs import *  # noqa: F403

__all__ = [
    "nameable", *base.__all__, *benchmarks.__all__, *boxes.__all__, *data.__all__, *data_sets.__all__, *families.__all__,
    *fixed.__all__, *modified.__all__, *noise.__all__, *rkhs.__all__,
]  # fmt: skip
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
