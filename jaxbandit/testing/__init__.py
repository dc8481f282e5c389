"""Checks of roles for your own classes, such as ``check_kernel(Matern72)``.

Each check takes an instance, or a class or function to call without arguments, and returns the instance. A broken promise raises
``AssertionError`` with the class, the promise and the numbers. Statistical checks allow five standard errors of their draws.
"""

from jaxbandit.core.hints import missing
from jaxbandit.testing.algorithms import check_algorithm
from jaxbandit.testing.delays import check_delay
from jaxbandit.testing.kernels import check_kernel
from jaxbandit.testing.plots import check_plot
from jaxbandit.testing.policies import check_policy
from jaxbandit.testing.problems import check_problem

__all__ = ["check_algorithm", "check_delay", "check_kernel", "check_plot", "check_policy", "check_problem"]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)
