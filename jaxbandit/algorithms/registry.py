"""The algorithms of the library, one line each: the public names, study files, tests and the shoot-out read them from here."""

from typing import Any

from jaxbandit.algorithms.base import Algorithm as Algorithm
from jaxbandit.algorithms.baselines import Admmbo as Admmbo
from jaxbandit.algorithms.baselines import Cei as Cei
from jaxbandit.algorithms.baselines import ConstrainedThompson as ConstrainedThompson
from jaxbandit.algorithms.baselines import Oco as Oco
from jaxbandit.algorithms.baselines import Oracle as Oracle
from jaxbandit.algorithms.baselines import RandomSearch as RandomSearch
from jaxbandit.algorithms.bpe import Bpe as Bpe
from jaxbandit.algorithms.optimistic import Cbo as Cbo
from jaxbandit.algorithms.optimistic import Config as Config
from jaxbandit.algorithms.optimistic import Epbo as Epbo
from jaxbandit.algorithms.optimistic import PrimalDual as PrimalDual
from jaxbandit.algorithms.optimistic import Rpol as Rpol
from jaxbandit.algorithms.optimistic import Scgp as Scgp
from jaxbandit.algorithms.optimistic import Se2 as Se2
from jaxbandit.algorithms.optimistic import Se3 as Se3
from jaxbandit.algorithms.optimistic import Unconstrained as Unconstrained
from jaxbandit.algorithms.safe_sets import SafeOpt as SafeOpt
from jaxbandit.algorithms.safe_sets import SgpUcb as SgpUcb
from jaxbandit.algorithms.safe_sets import StageOpt as StageOpt
from jaxbandit.algorithms.wrappers import Anytime as Anytime
from jaxbandit.algorithms.wrappers import Refitted as Refitted

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    name: kind for name, kind in list(globals().items()) if isinstance(kind, type) and issubclass(kind, Algorithm) and kind is not Algorithm
}
"""The algorithms above by their class names."""
