"""Check of an argument that is a dataset of a study's results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import Check, Shape

__all__ = ["ONE", "RESULTS", "OneResult", "Results"]


def _are_results(value: Any) -> bool:
    import xarray as xr  # an extra of studies and reports, which alone call this

    there = isinstance(value, xr.Dataset) and "status" in value and all(value.sizes.get(name) for name in ("trial", "round"))
    return there and value.sizes.get("algorithm", 1) > 0


def _verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
    for own, variable in value.data_vars.items():
        if {"trial", "round"} <= set(variable.dims) and variable.dtype.kind not in "biuf":
            raise InvalidArgument(f"{name}: the measure {own} must hold real numbers, got {variable.dtype}")
    if value["status"].dtype.kind not in "iu":
        raise InvalidArgument(f"{name}: status must hold whole numbers, got {value['status'].dtype}")
    labels = value["algorithm"].values.ravel().tolist() if "algorithm" in value.coords else []
    if len(set(labels)) < len(labels):
        raise InvalidArgument(f"{name}: must have distinct labels along algorithm, got {short(labels)}")


RESULTS = Check("a dataset of results, with status and the dimensions algorithm, trial and round", _are_results, _verify)
ONE = Check("a dataset of one algorithm's results, with status and the dimensions trial and round", _are_results, _verify)

if TYPE_CHECKING:
    import xarray as xr

    Results: TypeAlias = xr.Dataset
    OneResult: TypeAlias = xr.Dataset
else:  # xarray is loaded by whoever has made a dataset
    Results = Annotated[Any, RESULTS]
    OneResult = Annotated[Any, ONE]
