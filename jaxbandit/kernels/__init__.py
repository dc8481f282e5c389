"""Covariance functions as pytrees: hyper-parameters are leaves; ``+`` and ``*`` build sums, products and scaled kernels.

Every kernel maps inputs ``x [n, d]`` and ``y [p, d]`` to ``k(x, y) [n, p]`` and has ``diag(x) [n]``. Length-scales are scalars or one
per axis (``[d]``, ARD), in the units of the inputs. A kernel that is a product of one-dimensional kernels returns them from
:meth:`Kernel.along_axes`; surrogates on product grids then work axis by axis, which is cheap.

Reference for the formulas: Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, chapter 4.
"""

from jaxbandit.kernels.axes import OnAxes, parts_on_axes
from jaxbandit.kernels.base import Kernel, Product, Scale, Sum, same
from jaxbandit.kernels.categories import Categorical, Gram
from jaxbandit.kernels.checking import check_covariance
from jaxbandit.kernels.elementary import Constant, Linear, White
from jaxbandit.kernels.stationary import Matern12, Matern32, Matern52, Periodic, RationalQuadratic, SquaredExponential

__all__ = [
    "Categorical",
    "Constant",
    "Gram",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OnAxes",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Scale",
    "SquaredExponential",
    "Sum",
    "White",
    "check_covariance",
    "parts_on_axes",
    "same",
]
__dir__ = __all__.copy  # what completion shows
