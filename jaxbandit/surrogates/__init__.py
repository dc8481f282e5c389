"""Gaussian-process posteriors on finite domains, in three interchangeable forms behind one interface."""

from jaxbandit.surrogates.choose import surrogate
from jaxbandit.surrogates.evidence import Collapsed, Fit, LogNormal, Prior, fit, fit_many, log_evidence, maximise
from jaxbandit.surrogates.posterior import AbstractSurrogate, Posterior, Prediction, Step, Surrogate
from jaxbandit.surrogates.precision import PRECISIONS, arithmetic
from jaxbandit.surrogates.ranged import RangedSurrogate, ranged
from jaxbandit.surrogates.refitted import RefittedPosterior, RefittedSurrogate

__all__ = [
    "PRECISIONS",
    "AbstractSurrogate",
    "Collapsed",
    "Fit",
    "LogNormal",
    "Posterior",
    "Prediction",
    "Prior",
    "RangedSurrogate",
    "RefittedPosterior",
    "RefittedSurrogate",
    "Step",
    "Surrogate",
    "arithmetic",
    "fit",
    "fit_many",
    "log_evidence",
    "maximise",
    "ranged",
    "surrogate",
]
__dir__ = __all__.copy  # what completion shows
