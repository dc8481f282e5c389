"""Search for the hyper-parameters of scikit-learn's estimators.

Needs the extra ``sklearn``: ``pip install -e ".[sklearn]"`` in a clone.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import cross_validate
from sklearn.utils.metaestimators import available_if

from jaxbandit.core.checks import InvalidArgument, did_you_mean
from jaxbandit.domains.boxes import Side
from jaxbandit.session.optimised import optimise

__all__ = ["SearchCV"]
__dir__ = __all__.copy

# Means over the folds: the score, seconds of fitting and of scoring, and bytes of the pickled fitted estimator.


def _by_best(name: str) -> Any:
    """Return a check whether the best estimator has a method."""

    def has(search: SearchCV) -> bool:
        getattr(vars(search).get("best_estimator_", search.estimator), name)
        return True

    return available_if(has)


class SearchCV(MetaEstimatorMixin, BaseEstimator):
    """Cross-validated search in a box of hyper-parameters, with limits.

    It stands where ``GridSearchCV`` stands: ``SearchCV(SVC(), {"C": jb.domains.log(1e-2, 1e3)}, evaluations=30).fit(X, y)``.

    Args:
      estimator: the estimator; pipelines name their parameters ``step__parameter``.
      axes: hyper-parameters as for :func:`jaxbandit.optimise`: ``(low, high)``, ``domains.log``, ``domains.integers``, or texts.
      evaluations: number of cross-validations.
      objective: ``"maximise score"``, or ``"minimise NAME"`` of another output: ``fit_time`` and ``score_time`` in seconds, ``size`` of
        the pickled fitted estimator in bytes, all means over the folds.
      constraints: limits of outputs, such as ``["fit_time <= 0.5", "size <= 1e6"]``.
      such_that: constraints on the hyper-parameters themselves, such as ``"a <= 2 * b"``.
      scoring, cv, n_jobs: as for ``sklearn.model_selection.cross_validate``, with one score.
      refit: whether to fit the best estimator on all data at the end.
      random_state: seed of the search.

    Attributes:
      best_params_: best hyper-parameters whose limits hold.
      best_score_: their mean score over the folds.
      best_estimator_: the estimator with them, fitted on all data if ``refit``.
      cv_results_: outputs of every cross-validation, with the hyper-parameters as ``params``.
      optimised_: the result of :func:`jaxbandit.optimise`.

    Raises:
      InvalidArgument: in ``fit``, on an objective or a constraint of an unknown output, and as ``optimise`` does.
    """

    def __init__(
        self,
        estimator: Any,
        axes: Mapping[str, Any],
        *,
        evaluations: int = 30,
        objective: str = "maximise score",
        constraints: Sequence[str] = (),
        such_that: Sequence[str] = (),
        scoring: Any = None,
        cv: Any = None,
        n_jobs: int | None = None,
        refit: bool = True,
        random_state: int = 0,
    ) -> None:
        self.estimator, self.axes, self.evaluations, self.objective = estimator, axes, evaluations, objective
        self.constraints, self.such_that, self.scoring, self.cv = constraints, such_that, scoring, cv
        self.n_jobs, self.refit, self.random_state = n_jobs, refit, random_state

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Search, and fit the best estimator. ``params`` go to ``cross_validate``."""
        words = {word for text in (self.objective, *self.constraints) for word in re.findall(r"[^\W\d]\w*", text)}
        words -= {"maximise", "minimise", "maximize", "minimize", "e"}
        outputs = ("score", "fit_time", "score_time", "size")
        for word in words - {*outputs}:
            raise InvalidArgument(f"constraints: there is no output {word!r}{did_you_mean(word, outputs)}; known are {', '.join(outputs)}")
        tried: list[tuple[dict[str, Any], dict[str, float]]] = []

        def evaluate(**point: Any) -> dict[str, float]:
            chosen = {name: int(value) if isinstance(value, float) and self._is_whole(name) else value for name, value in point.items()}
            candidate, how = clone(self.estimator).set_params(**chosen), {"scoring": self.scoring, "cv": self.cv, "n_jobs": self.n_jobs}
            measured = cross_validate(candidate, X, y, return_estimator="size" in words, params=params or None, **how)
            outputs = {"score": float(np.mean(measured["test_score"]))}
            outputs |= {name: float(np.mean(measured[name])) for name in ("fit_time", "score_time")}
            if "size" in words:
                outputs["size"] = float(np.mean([len(pickle.dumps(fitted)) for fitted in measured["estimator"]]))
            tried.append((chosen, outputs))
            return {name: value for name, value in outputs.items() if name in words}

        self.optimised_ = optimise(
            evaluate,
            self.axes,
            self.evaluations,
            objective=self.objective,
            constraints=self.constraints,
            such_that=self.such_that,
            key=self.random_state,
        )
        best = tried[self.optimised_.points.index(self.optimised_.best)]
        self.best_params_, self.best_score_ = best[0], best[1]["score"]
        self.cv_results_: dict[str, Any] = {name: np.asarray([outputs[name] for _, outputs in tried]) for name in tried[0][1]}
        self.cv_results_["params"] = [chosen for chosen, _ in tried]
        self.best_estimator_ = clone(self.estimator).set_params(**self.best_params_)
        if self.refit:
            self.best_estimator_.fit(X, y, **params)
        return self

    def _is_whole(self, name: str) -> bool:
        return isinstance(side := self.axes[name], Side) and side.scale == "integers"

    @property
    def classes_(self) -> np.ndarray:
        """Classes of the best estimator."""
        return self.best_estimator_.classes_

    def score(self, X: Any, y: Any = None) -> float:
        """Return the best estimator's score on data."""
        return float(self.best_estimator_.score(X, y))

    @_by_best("predict")
    def predict(self, X: Any) -> Any:
        """Return the best estimator's predictions."""
        return self.best_estimator_.predict(X)

    @_by_best("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return the best estimator's probabilities of classes."""
        return self.best_estimator_.predict_proba(X)
