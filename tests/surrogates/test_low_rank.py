"""Low-rank factorisations: what their first columns let expect, when they are given up, and what does not fit memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, domains, kernels
from jaxbandit.host import memory
from jaxbandit.surrogates import features
from jaxbandit.surrogates.features import EFFORT, expected_columns

EXPONENTIAL = np.exp(-0.05 * np.arange(400))
POWER = np.arange(1.0, 400.0) ** -2


def test_an_exponential_fall_is_foreseen_exactly_and_a_power_from_below() -> None:
    needed = np.log(1e6) / 0.05  # columns after which 1e-6 is left
    for done in (128, 256):
        assert expected_columns(EXPONENTIAL[:done], 1e-6) == pytest.approx(needed, rel=0.02)
    seen = [expected_columns(POWER[:done], 1e-8) for done in (128, 256)]
    assert seen[0] < seen[1] < 1e4, "a power needs 10,000 columns"
    assert expected_columns(np.ones(128), 1e-6) == np.inf
    assert expected_columns(np.full(128, 1e-9) + EXPONENTIAL[:128] * 1e-9, 1e-6) == 128, "there already"


def test_a_rough_kernel_in_six_dimensions_is_given_up_soon() -> None:
    """4,096 points under a Matern kernel: the features took minutes, to be thrown away."""
    points, kernel = domains.grid([0.0] * 6, [1.0] * 6, 4).points, kernels.Matern52(length_scale=0.5)
    phi, chosen, residual = features.pivots(kernel, points, 1e-8, 3125)
    assert phi.shape[1] == len(chosen) <= 4 * EFFORT.first_check and residual > 1e-3
    asked: list[float] = []
    further, _, _ = features.pivots(kernel, points, 1e-8, phi.shape[1] + 1, asked.append)
    assert asked and min(asked) > EFFORT.first_check and further.shape[1] == phi.shape[1] + 1, "what is asked for goes on"
    np.testing.assert_array_equal(phi, further[:, :-1], err_msg="the columns so far are what they would have been")


def test_only_what_takes_long_is_looked_at() -> None:
    asked: list[float] = []
    features.pivots(kernels.Matern12(), domains.grid([0.0], [1.0], 300).points, 1e-12, 300, asked.append)
    assert not asked, "as all small domains were built before"


def test_the_forms_are_chosen_by_what_building_them_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    domain, smooth = domains.grid([0.0], [1.0], 150), kernels.SquaredExponential(length_scale=0.3)

    def build(form: str) -> str:
        model = jaxbandit.surrogate(domain, kernels.SquaredExponential(), noise_variance=0.1, form=form, horizon=100)
        return str(model.forms[0].name)

    assert build("auto") == "product"
    with monkeypatch.context() as patch:
        patch.setattr(features, "EFFORT", dataclasses.replace(EFFORT, max_cubes=1e6))
        assert build("auto") == "features" and build("product") == "product"
    monkeypatch.setattr(features, "EFFORT", dataclasses.replace(EFFORT, checked_work=0, first_check=2))
    monkeypatch.setattr(memory, "host_memory", lambda: 1000)
    with pytest.raises(InvalidArgument, match=r"^domain: the .* on an axis of 150 points would take .* a larger low= or a smoother kernel"):
        jaxbandit.ranged(domain, smooth, low=0.2, high=0.4, noise_variance=0.1)
    with pytest.raises(
        InvalidArgument, match=r"^form: the .* 'features' needs on 150 points would take .* form='rows' with horizon=, fewer"
    ):
        build("features")
    with pytest.raises(InvalidArgument, match=r"^form: the eigenvectors of an axis of 150 points .*form='rows' with horizon="):
        build("product")
    monkeypatch.setattr(features, "host_memory", lambda: 1000)
    assert build("rows") == "rows" and features.product_features(smooth, domain, 1e-6, 10, asked=False) is None


def test_rows_that_do_not_fit_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(**options: Any) -> jaxbandit.Surrogate:
        domain = domains.grid([0.0], [1.0], 150)
        return jaxbandit.surrogate(domain, kernels.Matern12(), noise_variance=0.1, form="rows", **options)

    assert build(horizon=5).forms[0].trial_bytes < 100_000 < build().forms[0].trial_bytes
    monkeypatch.setattr(memory, "host_memory", lambda: 100_000)
    build(horizon=5)
    with pytest.raises(InvalidArgument, match=r"^form: the rows of one trial on 150 points would take .* give horizon=, .* \(now 150"):
        build()
