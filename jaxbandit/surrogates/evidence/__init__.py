"""Fitting of kernel hyper-parameters and noise variances: evidence, priors, maximum-posterior fits of one data set or of thousands.

:func:`fit` and :func:`fit_many` are for data on the host; :func:`maximise` is the same search as a pure function of traced data.
"""

from jaxbandit.surrogates.evidence.density import Collapsed, log_evidence
from jaxbandit.surrogates.evidence.fitting import fit, fit_many
from jaxbandit.surrogates.evidence.maximise import Fit, maximise
from jaxbandit.surrogates.evidence.prior import LogNormal, Prior

__all__ = ["Collapsed", "Fit", "LogNormal", "Prior", "fit", "fit_many", "log_evidence", "maximise"]
__dir__ = __all__.copy  # what completion shows
