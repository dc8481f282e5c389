"""Registry of algorithms, for public names, study files and tests."""

from typing import Any

from jaxbandit.algorithms.admmbo import Admmbo as Admmbo
from jaxbandit.algorithms.base import Algorithm as Algorithm
from jaxbandit.algorithms.baselines import Cei as Cei
from jaxbandit.algorithms.baselines import ConstrainedThompson as ConstrainedThompson
from jaxbandit.algorithms.baselines import Oracle as Oracle
from jaxbandit.algorithms.baselines import RandomSearch as RandomSearch
from jaxbandit.algorithms.bpe import Bpe as Bpe
from jaxbandit.algorithms.cobar import Cobar as Cobar
from jaxbandit.algorithms.csafeopt import CSafeOpt as CSafeOpt
from jaxbandit.algorithms.duals import Cbo as Cbo
from jaxbandit.algorithms.duals import PrimalDual as PrimalDual
from jaxbandit.algorithms.duals import Scgp as Scgp
from jaxbandit.algorithms.goose import Goose as Goose
from jaxbandit.algorithms.msafeopt import MSafeOpt as MSafeOpt
from jaxbandit.algorithms.oco import Oco as Oco
from jaxbandit.algorithms.pdcbo import Pdcbo as Pdcbo
from jaxbandit.algorithms.penalty_epochs import Se2 as Se2
from jaxbandit.algorithms.penalty_epochs import Se3 as Se3
from jaxbandit.algorithms.rpol import Rpol as Rpol
from jaxbandit.algorithms.safe_sets import SafeOpt as SafeOpt
from jaxbandit.algorithms.safe_sets import SgpUcb as SgpUcb
from jaxbandit.algorithms.safe_sets import StageOpt as StageOpt
from jaxbandit.algorithms.scbo import Scbo as Scbo
from jaxbandit.algorithms.ucbd import UcbD as UcbD
from jaxbandit.algorithms.upper_bounds import Config as Config
from jaxbandit.algorithms.upper_bounds import Epbo as Epbo
from jaxbandit.algorithms.upper_bounds import Unconstrained as Unconstrained
from jaxbandit.algorithms.wrappers import Anytime as Anytime
from jaxbandit.algorithms.wrappers import Refitted as Refitted
from jaxbandit.core.codec import Named

ALGORITHMS: Named[type[Algorithm[Any]]] = Named(
    (name, kind)
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, Algorithm) and kind is not Algorithm
)
"""The algorithms above by their class names; ``ALGORITHMS["RPOL-UCB"]`` finds one by its title, too."""
