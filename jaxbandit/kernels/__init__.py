"""Covariance functions as pytrees, with hyper-parameters as leaves.

Every kernel maps inputs ``x [n, d]`` and ``y [p, d]`` to ``k(x, y) [n, p]`` and has ``diag(x) [n]``. ``+`` and ``*`` build sums, products
and scaled kernels. Length-scales are scalars or one per axis (``[d]``, ARD), in the units of the inputs. A product of one-dimensional
kernels returns its factors from :meth:`Kernel.along_axes`; surrogates on product grids then work axis by axis, which is cheap.

Reference for the formulas: Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, chapter 4.
"""

from jaxbandit.core.hints import missing
from jaxbandit.kernels import base, functions
from jaxbandit.kernels.base import *  # noqa: F403
from jaxbandit.kernels.functions import *  # noqa: F403

__all__ = [*base.__all__, *functions.__all__]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
