"""Check of an argument that is a dataset of a study's results."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxbandit.core.fields import Check, Shape

__all__ = ["ONE", "RESULTS"]


@dataclasses.dataclass(frozen=True)
class _Results(Check):
    allowed: str
    dimensions: tuple[str, ...]

    def takes(self, value: Any) -> bool:
        import xarray as xr  # an extra of studies and reports, which alone call this

        return isinstance(value, xr.Dataset) and "status" in value and all(value.sizes.get(name) for name in self.dimensions)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        """Its measures are looked up by name."""


RESULTS: Check = _Results("a dataset of results, with status and the dimensions algorithm, trial and round", ("trial", "round"))
ONE: Check = _Results("a dataset of one algorithm's results, with status and the dimensions trial and round", ("trial", "round"))
