"""Gaussian-process posteriors on finite domains, in three interchangeable forms behind one interface."""

from jaxbandit.surrogates.choose import surrogate
from jaxbandit.surrogates.posterior import AbstractSurrogate, Posterior, Prediction, Step, Surrogate

__all__ = ["AbstractSurrogate", "Posterior", "Prediction", "Step", "Surrogate", "surrogate"]
