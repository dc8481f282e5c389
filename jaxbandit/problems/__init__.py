"""Problems to optimise: mean reward and constraints, noise, delays, and the optimum that regret is measured against.

Functions that make a problem raise ``InvalidArgument`` on an argument outside the range that they give for it.
"""

from jaxbandit.core.codec import nameable
from jaxbandit.problems import arms, base, data_tables, draws, fixed, heating, modified, noise, rkhs
from jaxbandit.problems.arms import *  # noqa: F403
from jaxbandit.problems.base import *  # noqa: F403
from jaxbandit.problems.data_tables import *  # noqa: F403
from jaxbandit.problems.draws import *  # noqa: F403
from jaxbandit.problems.fixed import *  # noqa: F403
from jaxbandit.problems.heating import *  # noqa: F403
from jaxbandit.problems.modified import *  # noqa: F403
from jaxbandit.problems.noise import *  # noqa: F403
from jaxbandit.problems.rkhs import *  # noqa: F403

__all__ = [
    "nameable", *arms.__all__, *base.__all__, *data_tables.__all__, *draws.__all__, *fixed.__all__, *heating.__all__, *modified.__all__,
    *noise.__all__, *rkhs.__all__,
]  # fmt: skip
__dir__ = __all__.copy  # what completion shows
