"""Problems to optimise: mean reward and constraints, noise, delays, and the optimum that regret is measured against."""

from jaxbandit.core.codec import nameable
from jaxbandit.problems._arms import ArmsData
from jaxbandit.problems.artificial import ARTIFICIAL, artificial
from jaxbandit.problems.base import (
    AbstractProblem,
    Family,
    Optimum,
    Problem,
    best_mixed_policy,
    from_functions,
    from_tables,
    optimum,
)
from jaxbandit.problems.building import NAIVE_CONTROLLER, BuildingDay, Zone, building, building_day
from jaxbandit.problems.data_rate import data_rate
from jaxbandit.problems.data_tables import from_columns, from_csv
from jaxbandit.problems.equalities import Equalities, with_equalities
from jaxbandit.problems.full_information import FullInformation, full_information
from jaxbandit.problems.gp_draws import GpDraws, gp_draws, gp_draws_infeasible
from jaxbandit.problems.light import light, light_or_synthetic, light_synthetic
from jaxbandit.problems.noise import (
    CentredPoisson,
    Gaussian,
    Heteroscedastic,
    Mirrored,
    Noise,
    Noiseless,
    PerOutput,
    PerPoint,
    Residuals,
    StudentT,
    Uniform,
)
from jaxbandit.problems.queueing import queueing
from jaxbandit.problems.rkhs import RkhsBinding, RkhsThreshold, rkhs_1d, rkhs_1d_binding
from jaxbandit.problems.rkhs_2d import RKHS_2D_LENGTH_SCALES, RkhsInterpolants, rkhs_2d, rkhs_2d_draws
from jaxbandit.problems.sine import CONTINUUM_OPTIMUM, CONTINUUM_POINT, sine, sine_delayed
from jaxbandit.problems.stocks import stocks, stocks_or_synthetic, stocks_synthetic

__all__ = [
    "ARTIFICIAL",
    "CONTINUUM_OPTIMUM",
    "CONTINUUM_POINT",
    "NAIVE_CONTROLLER",
    "RKHS_2D_LENGTH_SCALES",
    "AbstractProblem",
    "ArmsData",
    "BuildingDay",
    "CentredPoisson",
    "Equalities",
    "Family",
    "FullInformation",
    "Gaussian",
    "GpDraws",
    "Heteroscedastic",
    "Mirrored",
    "Noise",
    "Noiseless",
    "Optimum",
    "PerOutput",
    "PerPoint",
    "Problem",
    "Residuals",
    "RkhsBinding",
    "RkhsInterpolants",
    "RkhsThreshold",
    "StudentT",
    "Uniform",
    "Zone",
    "artificial",
    "best_mixed_policy",
    "building",
    "building_day",
    "data_rate",
    "from_columns",
    "from_csv",
    "from_functions",
    "from_tables",
    "full_information",
    "gp_draws",
    "gp_draws_infeasible",
    "light",
    "light_or_synthetic",
    "light_synthetic",
    "nameable",
    "optimum",
    "queueing",
    "rkhs_1d",
    "rkhs_1d_binding",
    "rkhs_2d",
    "rkhs_2d_draws",
    "sine",
    "sine_delayed",
    "stocks",
    "stocks_or_synthetic",
    "stocks_synthetic",
    "with_equalities",
]
__dir__ = __all__.copy  # what completion shows
