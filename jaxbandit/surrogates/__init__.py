"""Gaussian-process posteriors on finite domains, in three interchangeable forms behind one interface."""

from jaxbandit.surrogates.choose import surrogate
from jaxbandit.surrogates.evidence import fit, log_evidence
from jaxbandit.surrogates.posterior import AbstractSurrogate, Posterior, Prediction, Step, Surrogate
from jaxbandit.surrogates.precision import PRECISIONS, arithmetic

__all__ = [
    "PRECISIONS",
    "AbstractSurrogate",
    "Posterior",
    "Prediction",
    "Step",
    "Surrogate",
    "arithmetic",
    "fit",
    "log_evidence",
    "surrogate",
]
