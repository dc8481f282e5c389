"""Any pytree dataclass of the library by its exact contents, for fingerprints, and kernels as audit files have them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxbandit import kernels
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.describe import describe, name_of
from jaxbandit.surrogates import RangedSurrogate, Surrogate


def describe_exactly(item: Any) -> Any:
    """Return ``item`` as JSON values, arrays by their hash: equal for equal items, and different for different ones.

    A surrogate is described by what it was made from, since the last bits of its features depend on the machine.
    """
    if isinstance(item, Surrogate) and item.kernels:
        names: tuple[str, ...] = ("noise_variance", "prior_mean", "groups", "domain")
        names += ("length_scale", "variance", "low", "high") if isinstance(item, RangedSurrogate) else ()
        made_from = {"kernels": describe_exactly(item.kernels)} | {name: describe_exactly(getattr(item, name)) for name in names}
        return {"class": "Surrogate", **made_from, "forms": [[form.name, form.rank] for form in item.forms]}
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        own = {f.name: describe_exactly(getattr(item, f.name)) for f in dataclasses.fields(item)}
        return {"class": f"{type(item).__module__}.{type(item).__qualname__}", **own}
    if item is None or isinstance(item, bool | str):
        return item
    if isinstance(item, Mapping):
        return {str(name): describe_exactly(value) for name, value in item.items()}
    if isinstance(item, tuple | list):
        return [describe_exactly(value) for value in item]
    if callable(item):
        return name_of(item)
    array = np.asarray(item)
    if isinstance(item, int) and array.dtype.kind not in "iu":  # more than 64 bits
        return hex(item)
    if array.dtype.kind not in "biuf":
        raise InvalidArgument(f"study: a {type(item).__name__} has no fingerprint; use numbers, arrays and dataclasses")
    array = array.astype(np.float64) if array.dtype.kind == "f" or array.ndim == 0 else array.astype(np.int64)
    return float(array) if array.ndim == 0 else [list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


LETTERS = {"length_scale": "u", "variance": "var"}  # of fields of kernels in audit traces


def kernel_record(kernel: kernels.Kernel) -> dict[str, Any]:
    """Return a kernel as an audit trace writes it: ``{"name": "se", "u": length-scale, "var": variance, ...}``.

    ``u`` is the length-scale of ``exp(-|x - y|^2 / (2 u^2))``, or of the Matern distance; sums and products are nested. The name is the
    ``short_name`` of the kernel's class; its other fields have their own names.
    """
    if isinstance(kernel, kernels.Scale):
        inner = kernel_record(kernel.kernel)
        return {**inner, "var": float(np.asarray(kernel.variance)) * inner["var"]}
    if isinstance(kernel, kernels.OnAxes):
        return {**kernel_record(kernel.kernel), "axes": list(kernel.axes)}
    if isinstance(kernel, kernels.Sum | kernels.Product):
        return {"name": kernel.short_name, "var": 1.0, "parts": [kernel_record(kernel.left), kernel_record(kernel.right)]}
    own = {LETTERS.get(f.name, f.name): _plain(getattr(kernel, f.name)) for f in dataclasses.fields(kernel)}  # type: ignore[arg-type]
    return {"name": kernel.short_name, "var": 1.0} | own


def _plain(value: Any) -> Any:
    """Return the value of a kernel's field as plain values, arrays in full."""
    if isinstance(value, kernels.Kernel):
        return kernel_record(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return np.asarray(value).tolist() if isinstance(value, np.ndarray | jax.Array) else describe(value)
