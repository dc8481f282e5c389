"""The cost of low-rank factorisations, predicted from their size and their first columns; and what is then done."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, domains, kernels
from jaxbandit.core import memory
from jaxbandit.surrogates import lowrank, outlook
from jaxbandit.surrogates.outlook import FIRST_LOOK, SURE, Outlook, look_ahead, looks

EXPONENTIAL = np.exp(-0.05 * np.arange(400))
POWER = np.arange(1.0, 400.0) ** -2


def test_an_exponential_fall_is_foreseen_exactly_and_a_power_from_below() -> None:
    needed = np.log(1e6) / 0.05  # columns after which 1e-6 is left
    for done in (128, 256):
        assert look_ahead(1000, 500, EXPONENTIAL[:done], 1e-6).columns == pytest.approx(needed, rel=0.02)
    seen = [look_ahead(1000, 500, POWER[:done], 1e-8).columns for done in (128, 256)]
    assert seen[0] < seen[1] < 1e4, "a power needs 10,000 columns"
    assert look_ahead(1000, 500, np.ones(128), 1e-6).columns == np.inf
    assert look_ahead(1000, 500, np.full(128, 1e-9) + EXPONENTIAL[:128] * 1e-9, 1e-6).columns == 128, "there already"


def test_doubt_falls_with_the_number_of_columns() -> None:
    def hopeless(done: int, columns: float) -> bool:
        return Outlook(points=4096, done=done, most=1000, columns=columns).hopeless

    assert not hopeless(FIRST_LOOK, 3999) and hopeless(FIRST_LOOK, 4001)
    assert not hopeless(SURE, 999) and hopeless(SURE, 1001) and hopeless(4 * SURE, 1001)


def test_only_what_takes_long_is_looked_at() -> None:
    assert looks(400, 100) == set() and looks(400, 129) == set(), "as all small domains were built before"
    assert looks(4096, 1024) == {128, 256, 512}


def test_a_rough_kernel_in_six_dimensions_is_given_up_soon() -> None:
    """4,096 points under a Matern kernel: the features took minutes, to be thrown away."""
    domain = domains.grid([0.0] * 6, [1.0] * 6, 4)
    asked: list[Outlook] = []

    def unasked(prospects: Outlook) -> bool:
        asked.append(prospects)
        return outlook.unasked(prospects)

    phi, residual = lowrank.pivoted_cholesky(kernels.Matern52(length_scale=0.5), domain.points, 1e-8, 3125, unasked)
    assert phi.shape[1] == asked[-1].done <= SURE and residual > 1e-3 and asked[-1].columns > 3125
    whole, _ = lowrank.pivoted_cholesky(kernels.Matern52(length_scale=0.5), domain.points, 1e-8, phi.shape[1])
    np.testing.assert_array_equal(phi, whole, err_msg="the columns so far are what they would have been")


def test_long_builds_are_said_and_what_does_not_fit_is_refused(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Outlook(points=20_000, done=FIRST_LOOK, most=20_000, columns=900.0)
    with caplog.at_level(logging.WARNING, "jaxbandit"):
        assert outlook.asked_for(slow) and outlook.asked_for(Outlook(20_000, SURE, 20_000, 900.0))
        assert outlook.asked_for(Outlook(20_000, FIRST_LOOK, 20_000, 9000.0))
        assert outlook.asked_for(Outlook(500, FIRST_LOOK, 500, 200.0))
    once, long = caplog.messages
    assert once == f"surrogate: building 900 features or more on 20,000 points, at least {slow.seconds:,.0f} s"
    assert "9,000 features" in long and long.endswith("form='rows' with horizon= takes seconds")
    assert not outlook.unasked(Outlook(20_000, FIRST_LOOK, 20_000, 9000.0)), "more than a minute that nobody asked for"
    monkeypatch.setattr(outlook, "host_memory", lambda: 10**8)
    with pytest.raises(InvalidArgument, match=r"^form: 'features' on 20,000 points needs 900 .*form='rows' with horizon=, fewer points"):
        outlook.asked_for(slow)


def test_long_axes_are_said_and_left_out_where_nobody_asked_for_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING, "jaxbandit"):
        assert outlook.axes_asked_for([900, 900]) and outlook.axes_unasked([900, 900]) and not caplog.messages
        assert outlook.axes_asked_for([6000]) and not outlook.axes_unasked([6000]), "more than a minute"
        outlook.tell_of_products("ranged", (200, 200, 200), (20, 20, 20), tables=4)
    long, products = caplog.messages
    assert long.startswith("surrogate: building the product form on axes of 6,000 points, about 86 s; form='rows'")
    work = (200 * 20**3 + 200**2 * 20**2 + 200**3 * 20) * 4 * 13  # 13 halvings of 8,000 products
    assert products == f"ranged: choosing products of features on 8,000,000 points, about {1e-9 * work:,.0f} s"
    monkeypatch.setattr(outlook, "host_memory", lambda: 10**8)
    with pytest.raises(
        InvalidArgument, match=r"^form: 'product' needs eigenvectors of an axis of 6,000 points, .*form='rows' with horizon="
    ):
        outlook.axes_asked_for([6000])
    assert not outlook.axes_unasked([3000])


def test_the_forms_are_chosen_by_what_building_them_costs(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = domains.grid([0.0], [1.0], 150)

    def build(form: str) -> str:
        model = jaxbandit.surrogate(domain, kernels.SquaredExponential(), noise_variance=0.1, form=form, horizon=100)
        return str(model.forms[0].name)

    assert build("auto") == "product"
    monkeypatch.setattr(outlook, "PER_EIGEN", 1.0)
    with caplog.at_level(logging.WARNING, "jaxbandit"):
        assert build("auto") == "features" and not caplog.messages
        assert build("product") == "product" and "axes of 150 points" in caplog.messages[0]
        caplog.clear()
        monkeypatch.setattr(outlook, "FIRST_LOOK", 4)
        monkeypatch.setattr(outlook, "PER_COLUMN", 1.0)
        jaxbandit.ranged(domain, kernels.SquaredExponential(length_scale=0.3), low=0.2, high=0.4, noise_variance=0.1)
        assert caplog.messages[0].startswith("ranged: building ") and "on an axis of 150 points, at least" in caplog.messages[0]
        monkeypatch.setattr(outlook, "host_memory", lambda: 1000)
        with pytest.raises(InvalidArgument, match=r"^domain: an axis of 150 points needs .* a larger low= or a smoother kernel"):
            jaxbandit.ranged(domain, kernels.SquaredExponential(length_scale=0.3), low=0.2, high=0.4, noise_variance=0.1)


def test_rows_that_do_not_fit_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(**options: Any) -> jaxbandit.Surrogate:
        domain = domains.grid([0.0], [1.0], 150)
        return jaxbandit.surrogate(domain, kernels.Matern12(), noise_variance=0.1, form="rows", **options)

    assert build(horizon=5).forms[0].trial_bytes < 100_000 < build().forms[0].trial_bytes
    monkeypatch.setattr(memory, "host_memory", lambda: 100_000)
    build(horizon=5)
    with pytest.raises(InvalidArgument, match=r"^form: the rows of one trial on 150 points would take .* give horizon=, .* \(now 150"):
        build()
