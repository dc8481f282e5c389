"""The interface of surrogates: all that algorithms, exploration strategies and safe sets may ask a Gaussian-process model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.domains import Domain

if TYPE_CHECKING:
    from jaxbandit.surrogates.posterior import Prediction, Surrogate

Array = jax.Array


class AbstractSurrogate:
    """Model of the reward and the constraints that takes in observations; abstract.

    :class:`~jaxbandit.Surrogate` takes in every observation in its own round; :class:`~jaxbandit.feedback.DelayedSurrogate` takes in what a
    feedback policy makes of values that arrive late. ``k = 1 + m`` outputs on ``M`` points. Posteriors are pytrees that only the surrogate
    looks into.

    Attributes:
      domain: the ``M`` points.
    """

    if TYPE_CHECKING:  # declared as read-only; at run time a property here would keep subclasses from declaring a field

        @property
        def domain(self) -> Domain: ...

    @property
    def model(self) -> Surrogate:
        """The Gaussian-process model itself: domain, factorised kernels, noise variances and prior means."""
        raise TypeError(f"{type(self).__name__} must define model")

    @property
    def outputs(self) -> int:
        """Number of modelled functions, ``k = 1 + m``."""
        return len(self.model.groups)

    @property
    def constraints(self) -> int:
        """Number of constraints ``m``."""
        return len(self.model.groups) - 1

    @property
    def dtype(self) -> np.dtype:
        """Floating type of beliefs."""
        return np.dtype(jnp.asarray(self.model.noise_variance).dtype)

    def init(self) -> Any:
        """Return the posterior before any observation, which is the prior."""
        raise TypeError(f"{type(self).__name__} must define init")

    def condition(self, posterior: Any, index: Array, values: Array) -> Any:
        """Return the posterior that has taken in ``values [k]`` observed at grid ``index []``, all of them at once."""
        raise TypeError(f"{type(self).__name__} must define condition")

    def learn(self, posterior: Any, feedback: Any) -> Any:
        """Return the posterior at the end of a round in which feedback was late; only a surrogate under a feedback policy has it."""
        raise TypeError(f"{type(self).__name__} takes in observations at once; feedback.Wait().bind(...) gives one for late feedback")

    def predict(self, posterior: Any) -> Prediction:
        """Return the mean and standard deviation ``[k, M]`` at every point, and the information gain ``[k]``."""
        raise TypeError(f"{type(self).__name__} must define predict")

    def arrived(self, posterior: Any) -> Prediction:
        """Return the prediction from the values that have arrived alone; the same as :meth:`predict` unless a policy says otherwise."""
        return self.predict(posterior)

    def gain(self, posterior: Any) -> Array:
        """Return the realised information gain ``[G]`` of each group of outputs, ``1/2 sum log(1 + sigma^2 / lambda)``."""
        raise TypeError(f"{type(self).__name__} must define gain")

    def draw(self, posterior: Any, key: Array, scale: Array) -> Array:
        """Return independent joint draws ``[k, M]`` from ``GP(mean, scale^2 covariance)``, with ``scale [k]``.

        Raises:
          InvalidArgument: when the form of the posterior has no joint draws (``rows``).
        """
        raise TypeError(f"{type(self).__name__} must define draw")

    def covariance(self, posterior: Any, output: int, indices: Array) -> Array:
        """Return the posterior covariance ``[n, M]`` of one output between the points at ``indices [n]`` and every point."""
        raise TypeError(f"{type(self).__name__} must define covariance")
