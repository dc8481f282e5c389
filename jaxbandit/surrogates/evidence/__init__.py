"""Maximum-posterior fits of kernel hyper-parameters and noise variances, with evidence and priors."""

from jaxbandit.surrogates.evidence.density import LogNormal, Prior, log_evidence
from jaxbandit.surrogates.evidence.fitting import Fit, fit_many
from jaxbandit.surrogates.evidence.host import fit

__all__ = ["Fit", "LogNormal", "Prior", "fit", "fit_many", "log_evidence"]
__dir__ = __all__.copy
