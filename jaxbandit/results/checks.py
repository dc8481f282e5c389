"""Check of an argument that is a dataset of a study's results."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import Check, Shape

__all__ = ["ONE", "RESULTS"]


@dataclasses.dataclass(frozen=True)
class _Results(Check):
    allowed: str
    dimensions: tuple[str, ...]

    def takes(self, value: Any) -> bool:
        import xarray as xr  # an extra of studies and reports, which alone call this

        there = isinstance(value, xr.Dataset) and "status" in value and all(value.sizes.get(name) for name in self.dimensions)
        return there and value.sizes.get("algorithm", 1) > 0

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for own, variable in value.data_vars.items():
            if {"trial", "round"} <= set(variable.dims) and variable.dtype.kind not in "biuf":
                raise InvalidArgument(f"{name}: the measure {own} must hold real numbers, got {variable.dtype}")
        if value["status"].dtype.kind not in "iu":
            raise InvalidArgument(f"{name}: status must hold whole numbers, got {value['status'].dtype}")
        labels = value["algorithm"].values.ravel().tolist() if "algorithm" in value.coords else []
        if len(set(labels)) < len(labels):
            raise InvalidArgument(f"{name}: must have distinct labels along algorithm, got {short(labels)}")


RESULTS: Check = _Results("a dataset of results, with status and the dimensions algorithm, trial and round", ("trial", "round"))
ONE: Check = _Results("a dataset of one algorithm's results, with status and the dimensions trial and round", ("trial", "round"))
