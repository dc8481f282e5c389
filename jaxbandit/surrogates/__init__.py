"""Gaussian-process posteriors on finite domains, in three interchangeable forms behind one interface."""

from jaxbandit.surrogates.choose import surrogate
from jaxbandit.surrogates.evidence import Collapsed, Fit, LogNormal, Prior, fit, fit_many, log_evidence, maximise
from jaxbandit.surrogates.posterior import AbstractSurrogate, Posterior, Prediction, Step, Surrogate
from jaxbandit.surrogates.precision import PRECISIONS, arithmetic

__all__ = [
    "PRECISIONS",
    "AbstractSurrogate",
    "Collapsed",
    "Fit",
    "LogNormal",
    "Posterior",
    "Prediction",
    "Prior",
    "Step",
    "Surrogate",
    "arithmetic",
    "fit",
    "fit_many",
    "log_evidence",
    "maximise",
    "surrogate",
]
