"""Figures of the benchmark, computed from what its processes measured."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from experiments.benchmark.machine import CAN_PIN, cores, cpu_model

# Every file has these; null where the horizon is another, or where a peer was left out.
RATIOS = (
    "numpy_over_feature_T500",
    *(f"sklearn_over_{form}_T{horizon}" for form in ("feature", "dense", "product") for horizon in (200, 500)),
)


def engine_figures(settings: dict[str, Any], engine: dict[str, Any]) -> dict[str, Any]:
    """Return the settings, and times, ratios to the bare product, memory and violation of every form of the surrogate."""
    most, long, short = (str(x) for x in (settings["counts"][-1], settings["horizon"], settings["short_horizon"]))
    times = {name: by_count[most] for name, by_count in engine["us"].items()}
    own = {form: {short: engine["short_us"][form], long: times[form]} for form in ("features", "product")}
    return {
        **settings,
        "trials": settings["counts"][-1],
        "gemm_us": times["gemm"],
        "feature_us": times["features"],
        "product_us": times["product"],
        "rows_us": times["rows"],
        "feature_over_gemm": times["features"] / times["gemm"],
        "product_over_gemm": times["product"] / times["gemm"],
        "rows_over_gemm": times["rows"] / times["gemm"],
        **{key: engine[key] for key in ("ranged_us", "ranged_over_product", "ranged_rank", "ranged_low", "ranged_high")},
        "rows_matern_us": engine["matern_us"],
        "rows_trials": engine["rows_trials"],
        "compile_s": engine["compile_s"]["features"],
        "compile_seconds": engine["compile_s"],
        "own_us": own,
        **{key: engine[key] for key in ("us", "violation", "peak_rss_mb", "points", "rank", "dtype")},
    }


def device_figures(devices: dict[str, Any] | None) -> dict[str, Any]:
    """Return the times on one and on two devices with their ratios; null where only one was measured."""

    def speedup(form: str) -> float | None:
        return None if devices is None else devices["1"][form] / devices["2"][form]

    return {"devices": devices, "two_device_speedup": speedup("features"), "two_device_speedup_product": speedup("product")}


def data_rate_figures(settings: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured of ``data-rate``, and what it comes to at the experiment's full size.

    Trials run in blocks of a fixed size, one after the other: time grows in proportion, memory by what their results hold. A row of
    the cache costs more the later it comes, so nothing is said when other rounds, or another grid, or less than a block were run.
    """
    from experiments.shi_eryilmaz_2022.data_rate import EXPERIMENT  # not above: importing an experiment may start a device

    full = EXPERIMENT.defaults
    seconds = peak = None
    same = (settings["points_per_axis"], settings["horizon"]) == (full.points_per_axis, full.horizon)
    if same and settings["trials"] % measured["trials_per_block"] == 0:
        rounds = full.trials * full.horizon
        seconds = measured["build_s"] + sum(measured["compile_s"].values()) + sum(measured["us"].values()) * rounds / 1e6
        peak = measured["peak_rss_mb"] + measured["trial_mb"] * (full.trials - settings["trials"])
    projected = {"full_trials": full.trials, "full_horizon": full.horizon, "full_seconds": seconds, "full_peak_mb": peak}
    return settings | measured | projected


def machine_figures(machine: dict[str, Any], pinned: bool) -> dict[str, Any]:
    """Return what the benchmark ran on, and when."""
    return {
        "backend": machine["backend"],
        "device": machine["device"],
        "cpu_model": cpu_model(),
        "cores": cores(),
        "pinned": pinned and CAN_PIN,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), "jax": machine["jax"], "numpy": machine["numpy"]},
    }


def peer_figures(name: str, peer: dict[str, Any], own: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return a peer's times and its ratios to the engine, with the number of rounds in each key.

    ``over_feature`` is to the feature form in the faster of its two versions, as users get it; ``over_dense`` and ``over_product`` are
    to each version.
    """
    result: dict[str, Any] = {}
    for mark, value in peer.get("us", {}).items():
        dense, product = own["features"][mark], own["product"][mark]
        result[f"{name}_us_T{mark}"] = value
        result[f"{name}_over_feature_T{mark}"] = value / min(dense, product)
        result[f"{name}_over_dense_T{mark}"] = value / dense
        result[f"{name}_over_product_T{mark}"] = value / product
    return result
