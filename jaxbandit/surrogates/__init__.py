"""Gaussian-process posteriors on finite domains, in three interchangeable forms behind one interface."""

from jaxbandit.surrogates.choose import surrogate
from jaxbandit.surrogates.evidence import fit, log_evidence
from jaxbandit.surrogates.posterior import AbstractSurrogate, Posterior, Prediction, Step, Surrogate
from jaxbandit.surrogates.precision import PRECISIONS, arithmetic
from jaxbandit.surrogates.ranged import RangedSurrogate, ranged

__all__ = [
    "PRECISIONS",
    "AbstractSurrogate",
    "Posterior",
    "Prediction",
    "RangedSurrogate",
    "Step",
    "Surrogate",
    "arithmetic",
    "fit",
    "log_evidence",
    "ranged",
    "surrogate",
]
