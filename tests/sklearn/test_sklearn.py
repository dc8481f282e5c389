"""A search in place of scikit-learn's own."""

import numpy as np
import pytest

import jaxbandit as jb

pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


class Pretender(ClassifierMixin, BaseEstimator):
    """Classifier whose score and size are functions of its parameters."""

    def __init__(self, width: int = 1, shift: float = 0.0) -> None:
        self.width, self.shift = width, shift

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Pretender":
        assert isinstance(self.width, int)
        self.classes_, self.weights_ = np.unique(y), np.zeros(100 * self.width)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.zeros(len(X))

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        return float(1 + self.width - (self.shift - 0.3) ** 2)


X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1] * 3)
AXES = {"width": jb.domains.integers(1, 8), "shift": (0.0, 1.0)}


def test_a_search_finds_the_best_parameters_within_their_limit() -> None:
    # 800 bytes for each unit of width: four fit.
    search = jb.sklearn.SearchCV(Pretender(), AXES, evaluations=25, constraints=["size <= 4000"], cv=2)
    found = clone(search).fit(X, Y)
    assert found.best_params_["width"] == 4 and abs(found.best_params_["shift"] - 0.3) < 0.1
    assert found.best_score_ == pytest.approx(5 - (found.best_params_["shift"] - 0.3) ** 2)
    assert len(found.cv_results_["params"]) == len(found.cv_results_["size"]) == 25
    np.testing.assert_array_equal(found.predict(X), np.zeros(6))
    np.testing.assert_array_equal(found.classes_, [0, 1])
    assert found.score(X, Y) == pytest.approx(found.best_score_) and not hasattr(found, "predict_proba")


@pytest.mark.full
def test_a_search_names_the_parameters_of_a_pipeline_s_steps() -> None:
    axes = {f"pretender__{name}": side for name, side in AXES.items()}
    search = jb.sklearn.SearchCV(make_pipeline(StandardScaler(), Pretender()), axes, evaluations=7, cv=2, refit=False).fit(X, Y)
    assert set(search.best_params_) == {"pretender__width", "pretender__shift"}
    assert search.best_estimator_.get_params()["pretender__width"] == search.best_params_["pretender__width"]


def test_an_unknown_output_is_refused_by_name() -> None:
    search = jb.sklearn.SearchCV(Pretender(), AXES, constraints=["fit_tine <= 1"])
    with pytest.raises(jb.InvalidArgument, match=r"there is no output 'fit_tine', did you mean .*fit_time"):
        search.fit(X, Y)
