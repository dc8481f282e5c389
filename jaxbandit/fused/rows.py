"""Equations on functions of the grid, with every other axis unrolled, so that a kernel has rows and numbers and nothing else.

An array ``[k, M]`` is ``k`` rows, an array ``[m]`` is ``m`` numbers: arrays of NumPy whose entries are the kernel's values. No slice,
stack, transposition or gather is left for the kernel's compiler; a table is read at a point by a masked sum.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.fused.equations import Constant, Equation, Operand, Unsupported, on_grid
from jaxbandit.fused.error_function import erf, erfc

Array = jax.Array
Cells = np.ndarray  # of dtype object, over all axes but the grid's


@dataclasses.dataclass(frozen=True)
class Rows:
    """The shape of a row inside a kernel, and how it is reduced.

    Attributes:
      size: number of points ``M``.
      shape: shape of a row, of one trial or of several; points beyond ``M`` repeat the last one.
      axis: axis of the points, which reductions keep with length 1; ``None`` where a row is one trial's and reductions give scalars.
      places: ``0, 1, 2, ...`` as a float32 row, where a kernel cannot count and rows may be longer than the grid.
    """

    size: int
    shape: tuple[int, ...]
    axis: int | None
    places: Any = None

    @property
    def padded(self) -> bool:
        """Say whether rows are longer than the grid."""
        return (self.shape[self.axis] if self.axis is not None else int(np.prod(self.shape))) != self.size

    def full(self, x: Any) -> Any:
        """Return a number or a row as a row."""
        return x if np.shape(x) == self.shape else jnp.broadcast_to(x, self.shape)

    def iota(self, dtype: Any) -> Any:
        """Return the points' numbers as a row; places beyond the last point have its number."""
        if self.places is not None:
            return jnp.minimum(self.places, np.float32(self.size - 1)).astype(dtype)
        return jax.lax.broadcasted_iota(jnp.int32, self.shape, 0 if self.axis is None else self.axis % len(self.shape)).astype(dtype)

    def reduce(self, function: Callable[..., Any], x: Any) -> Any:
        """Return a reduction of a row over the points."""
        return function(self.full(x)) if self.axis is None else function(self.full(x), axis=self.axis, keepdims=True)

    def sum(self, x: Any) -> Any:
        """Return the sum of a row, each point once."""
        if self.padded:
            x = jnp.where(self.places < self.size, self.full(x), jnp.zeros((), x.dtype))
        return self.reduce(jnp.sum, x)

    def any(self, x: Any) -> Any:
        """Say whether a row of booleans holds anywhere."""
        return self.reduce(jnp.max, as_numbers(x)) > 0

    def all(self, x: Any) -> Any:
        """Say whether a row of booleans holds everywhere."""
        return self.reduce(jnp.min, as_numbers(x)) > 0

    def first_largest(self, x: Any) -> Any:
        """Return the number of the first point at which a row is largest, as float32."""
        best = self.reduce(jnp.max, x)
        return self.reduce(jnp.min, jnp.where(self.full(x) == best, self.iota(jnp.float32), np.float32(np.inf)))

    def at(self, x: Any, index: Any) -> Any:
        """Return a row at one point."""
        return self.reduce(jnp.sum, jnp.where(self.first(index), self.full(x), jnp.zeros((), x.dtype)))

    def first(self, index: Any) -> Any:
        """Return the row that is true at one place alone, the first of a point."""
        return self.iota(jnp.int32) == index if self.places is None else self.places == jnp.asarray(index).astype(jnp.float32)

    def sqrt(self, x: Any) -> Any:
        """Return a square root; Mosaic GPU has none before JAX 0.11, and there it is ``x (1 / sqrt(x))`` with a step of Newton's method."""
        if self.places is None or jax.__version_info__ >= (0, 11):
            return jnp.sqrt(x)
        inverse = jax.lax.rsqrt(jnp.maximum(x, np.float32(np.finfo(np.float32).tiny)))
        root = x * inverse
        nonpositive = self.select(x < 0, np.float32(np.nan), x)
        return self.select(x > 0, root + np.float32(0.5) * inverse * (x - root * root), nonpositive)

    def log1p(self, x: Any) -> Any:
        """Return ``log(1 + x)``; for Mosaic GPU, which has none, from a logarithm as Kahan does it."""
        if self.places is None:
            return jnp.log1p(x)
        more = 1 + x
        lost = more - 1  # x as far as 1 + x holds it
        whole = self.select(lost == 0, np.float32(1), lost)
        return self.select(lost == 0, x, self.select(more == np.float32(np.inf), more, jnp.log(more) * (x / whole)))

    def select(self, condition: Any, yes: Any, no: Any) -> Any:
        """Return ``yes`` where a condition holds, else ``no``, each a number or a row."""
        if self.places is not None and any(np.shape(x) == self.shape for x in (condition, yes, no)):
            # Mosaic GPU: "Implicit broadcast not implemented with warpgroup semantics".
            if np.shape(condition) != self.shape:
                condition = jnp.broadcast_to(as_numbers(condition), self.shape) > np.float32(0.5)
            dtype = jnp.result_type(yes, no)
            if not np.issubdtype(dtype, np.bool_):
                yes, no = (self.full(jnp.asarray(x, dtype)) for x in (yes, no))
        return jnp.where(condition, yes, no)


def is_boolean(x: Any) -> bool:
    """Say whether a value is true or false, or a row of such."""
    return bool(np.issubdtype(jnp.result_type(x), np.bool_))


def as_numbers(x: Any) -> Any:
    """Return booleans as 1 and 0 in float32; reductions and memory of accelerators do not take booleans well."""
    return jnp.where(x, np.float32(1), np.float32(0))


def _power(x: Any, y: int) -> Any:
    product = functools.reduce(operator.mul, [x] * abs(y)) if y else x * 0 + 1
    return product if y >= 0 else 1 / product


def _quotient(x: Any, y: Any) -> Any:
    if not jnp.issubdtype(jnp.result_type(x, y), jnp.floating):
        raise Unsupported("it divides whole numbers (div)")
    return x / y


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs,
    "add": operator.add,
    "add_any": operator.add,
    "and": operator.and_,
    "ceil": jnp.ceil,
    "copy": lambda x: x,
    "div": _quotient,
    "eq": operator.eq,
    "erf": erf,
    "erfc": erfc,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "floor": jnp.floor,
    "ge": operator.ge,
    "gt": operator.gt,
    "is_finite": lambda x: jnp.abs(x) < np.inf,
    "le": operator.le,
    "log": jnp.log,
    "log1p": jnp.log1p,  # replaced on GPUs, as sqrt is
    "lt": operator.lt,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mul": operator.mul,
    "ne": operator.ne,
    "neg": operator.neg,
    "not": lambda x: as_numbers(x) < np.float32(0.5),  # Mosaic GPU of JAX 0.12: "Register bitwidth ... must be divisible by 8"
    "optimization_barrier": lambda x: x,
    "or": operator.or_,
    "pow": jnp.power,
    "rem": jnp.fmod,
    "rsqrt": jax.lax.rsqrt,
    "sign": jnp.sign,
    "sqrt": jnp.sqrt,
    "square": lambda x: x * x,
    "stop_gradient": lambda x: x,
    "sub": operator.sub,
    "tanh": jnp.tanh,
}
OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_sum": operator.add,
    "reduce_and": operator.and_,
}
OF_NUMBERS |= {"reduce_or": operator.or_, "reduce_prod": operator.mul}


def compute(equations: Sequence[Equation], known: dict[Operand, Cells], rows: Rows) -> None:
    """Compute equations on rows and numbers; ``known`` holds the cells of their inputs and takes those of their outputs.

    Raises:
      Unsupported: on an equation that has no form by rows, with the reason.
    """

    def read(operand: Operand) -> Cells:
        if not isinstance(operand, Constant):
            return known[operand]
        if on_grid(operand.aval, rows.size):
            raise Unsupported("it holds a table of constants over the grid")
        return cells_of(operand.value)

    with np.errstate(all="ignore"):  # constants are NumPy's numbers: what they give is the function's affair
        for equation in equations:
            inputs = [read(operand) for operand in equation.inputs]
            several = equation.name in ("split", "unstack")
            outputs = _parts(equation, inputs[0], rows) if several else [_compute(equation, inputs, rows)]
            for name, cells in zip(equation.outputs, outputs, strict=True):
                known[name] = cells.reshape(outer_shape(name.aval, rows.size))


def cells_of(value: np.ndarray) -> Cells:
    """Return the entries of a constant as cells."""
    cells = np.empty(np.shape(value), object)
    for place in np.ndindex(cells.shape):
        cells[place] = value.dtype.type(value[place])
    return cells


def outer_shape(aval: Any, size: int) -> tuple[int, ...]:
    """Return the axes of an array but the grid's."""
    return tuple(aval.shape[:-1]) if on_grid(aval, size) else tuple(aval.shape)


def mapped(function: Callable[..., Any], *cells: Cells) -> Cells:
    """Return ``function`` of every entry of cells that are broadcast against each other."""
    together = np.broadcast_arrays(*cells)
    found = np.empty(together[0].shape, object)
    for place in np.ndindex(found.shape):
        found[place] = function(*(own[place] for own in together))
    return found


def _compute(equation: Equation, inputs: list[Cells], rows: Rows) -> Cells:
    name, params, size = equation.name, equation.params, rows.size
    avals, aval = [operand.aval for operand in equation.inputs], equation.outputs[0].aval
    if name in ELEMENTWISE or name in ("select_n", "clamp", "integer_pow"):
        if on_grid(aval, size):  # numbers [k, 1] against rows [k, M]
            one = [len(own.shape) == len(aval.shape) and own.shape[-1:] == (1,) for own in avals]
            inputs = [cells.reshape(cells.shape[:-1]) if is_one else cells for cells, is_one in zip(inputs, one, strict=True)]
        return _elementwise(name, params, inputs, rows)
    if name == "convert_element_type":
        return mapped(functools.partial(_converted, dtype=params["new_dtype"]), inputs[0])
    if name == "iota":
        return _iota(params, rows)
    if name == "broadcast_in_dim":
        return _broadcast(params, inputs[0], avals[0], rows)
    if name in ("squeeze", "reshape", "expand_dims"):
        if on_grid(avals[0], size) and not on_grid(aval, size):
            raise Unsupported(f"it folds the grid into another axis ({name})")
        return inputs[0].reshape(outer_shape(aval, size))
    if name == "slice":
        return _slice(params, inputs[0], avals[0], rows)
    if name == "concatenate":
        if on_grid(aval, size) and params["dimension"] == len(aval.shape) - 1:
            raise Unsupported("it joins functions along the grid (concatenate)")
        return np.concatenate(inputs, axis=params["dimension"])
    if name == "stack":
        return np.stack(inputs, axis=params["axis"])
    if name == "transpose":
        permutation, outer = params["permutation"], inputs[0].ndim
        if outer < len(permutation) and permutation[-1] != len(permutation) - 1:
            raise Unsupported("it moves the axis of the grid (transpose)")
        return inputs[0].transpose(permutation[:outer])
    if name in OF_NUMBERS or name == "argmax":
        return _reduction(name, params, inputs[0], avals[0], rows)
    if name in ("gather", "dynamic_slice"):
        return _lookup(equation, inputs, rows)
    raise Unsupported(WORDS.get(name, f"it uses an operation that has no form by rows ({name})"))


WORDS = {
    "while": "its choice depends on a loop of unknown length over functions of the grid (while)",
    "scan": "its choice depends on a loop over functions of the grid (scan)",
    "cond": "its choice depends on a branch over functions of the grid (cond)",
    "top_k": "it sorts points by what is believed of them (top_k)",
    "sort": "it sorts points by what is believed of them (sort)",
    "cumsum": "it numbers points by what is believed of them (cumsum)",
    "dot_general": "it multiplies functions of the grid by a matrix (dot_general)",
    "scatter": "it writes single points of what is believed (scatter)",
}


def check_operations(equations: Sequence[Equation]) -> None:
    """Raise :class:`Unsupported` on an operation that no kernel can have, whatever it is applied to."""
    for equation in equations:
        if equation.name in WORDS:
            raise Unsupported(WORDS[equation.name])


def _elementwise(name: str, params: dict[str, Any], inputs: list[Cells], rows: Rows) -> Cells:
    if name == "integer_pow":
        return mapped(lambda x: _power(x, params["y"]), *inputs)
    if name == "clamp":
        return mapped(lambda low, x, high: jnp.minimum(jnp.maximum(x, low), high), *inputs)
    if name == "select_n":
        if len(inputs) != 3:
            raise Unsupported("it selects from more than two functions (select_n)")
        return mapped(lambda condition, no, yes: rows.select(condition, yes, no), *inputs)
    own = {"sqrt": rows.sqrt, "log1p": rows.log1p}
    return mapped(own[name] if name in own else ELEMENTWISE[name], *inputs)


def _converted(x: Any, dtype: Any) -> Any:
    if isinstance(x, np.generic):
        return x.astype(dtype)  # a kernel takes constants as NumPy's numbers only
    if np.issubdtype(dtype, np.bool_):
        return x != 0
    if is_boolean(x):
        return jnp.where(x, jnp.ones((), dtype), jnp.zeros((), dtype))
    return jnp.asarray(x).astype(dtype)


def _iota(params: dict[str, Any], rows: Rows) -> Cells:
    shape, axis, dtype = params["shape"], params["dimension"], np.dtype(params["dtype"])
    grid = shape[-1:] == (rows.size,)
    cells = np.empty(shape[:-1] if grid else shape, object)
    for place in np.ndindex(cells.shape):
        cells[place] = rows.iota(dtype) if grid and axis == len(shape) - 1 else dtype.type(place[axis])
    return cells


def _broadcast(params: dict[str, Any], cells: Cells, aval: Any, rows: Rows) -> Cells:
    shape, axes, source = params["shape"], list(params["broadcast_dimensions"]), list(aval.shape)
    grid = shape[-1:] == (rows.size,)
    if on_grid(aval, rows.size):
        if not grid or axes[-1] != len(shape) - 1:
            raise Unsupported("it moves the axis of the grid (broadcast_in_dim)")
        axes, source = axes[:-1], source[:-1]
    elif grid and len(shape) - 1 in axes and source[axes.index(len(shape) - 1)] != 1:
        raise Unsupported("it takes another axis for the grid's (broadcast_in_dim)")
    outer = shape[:-1] if grid else shape
    # An axis of length 1 that becomes the grid's is dropped: numbers broadcast against rows by themselves.
    kept = [(length, axis) for length, axis in zip(source, axes, strict=True) if axis < len(outer)]
    view = [1] * len(outer)
    for length, axis in kept:
        view[axis] = length
    return np.broadcast_to(cells.reshape(view), outer)


def _slice(params: dict[str, Any], cells: Cells, aval: Any, rows: Rows) -> Cells:
    starts, ends = params["start_indices"], params["limit_indices"]
    steps = params["strides"] or (1,) * len(starts)
    if on_grid(aval, rows.size) and (starts[-1], ends[-1], steps[-1]) != (0, rows.size, 1):
        raise Unsupported("it takes a part of the grid (slice)")
    return cells[tuple(slice(*part) for part in list(zip(starts, ends, steps, strict=True))[: cells.ndim])]


def _parts(equation: Equation, cells: Cells, rows: Rows) -> list[Cells]:
    axis = equation.params["axis"]
    if axis >= cells.ndim:
        raise Unsupported(f"it takes parts of the grid ({equation.name})")
    sizes = equation.params["sizes"] if equation.name == "split" else (1,) * cells.shape[axis]
    return np.split(cells, np.cumsum(sizes)[:-1], axis=axis)


def _reduction(name: str, params: dict[str, Any], cells: Cells, aval: Any, rows: Rows) -> Cells:
    last = len(aval.shape) - 1
    over_grid = on_grid(aval, rows.size) and last in params["axes"]
    others = sorted((axis for axis in params["axes"] if not (over_grid and axis == last)), reverse=True)
    if over_grid:
        of_rows: dict[str, Callable[..., Any]] = {
            "reduce_max": functools.partial(rows.reduce, jnp.max),
            "reduce_min": functools.partial(rows.reduce, jnp.min),
            "reduce_sum": rows.sum,
            "reduce_and": rows.all,
            "reduce_or": rows.any,
            "argmax": lambda x: rows.first_largest(x).astype(params["index_dtype"]),
        }
        if name not in of_rows:
            raise Unsupported(f"it reduces over the grid by {name}")
        cells = mapped(of_rows[name], cells)
    if others and name == "argmax":
        raise Unsupported("it looks for the largest of several functions (argmax)")
    for axis in others:
        cells = functools.reduce(functools.partial(mapped, OF_NUMBERS[name]), _along(cells, axis))
    return cells


def _along(cells: Cells, axis: int) -> list[Cells]:
    """Return the parts of cells along an axis, each without it."""
    parts = np.split(cells, cells.shape[axis], axis=axis)
    return [part.reshape(cells.shape[:axis] + cells.shape[axis + 1 :]) for part in parts]


def _lookup(equation: Equation, inputs: list[Cells], rows: Rows) -> Cells:
    """Return a table at an index that is known in the kernel alone: at a point of the grid, or one of its rows."""
    params, aval = equation.params, equation.inputs[0].aval
    shape, result, grid = aval.shape, equation.outputs[0].aval, on_grid(aval, rows.size)
    cells, axis, index, fill = inputs[0], *_index(equation, inputs)
    if grid and axis == len(shape) - 1:
        inside = jnp.clip(index, 0, rows.size - 1)
        found = mapped(lambda row: rows.at(row, inside), cells)
    else:
        inside = jnp.clip(index, 0, shape[axis] - 1)
        found, *others = _along(cells, axis)
        for number, other in enumerate(others, start=1):
            found = mapped(functools.partial(rows.select, inside == number), other, found)
    if fill:
        if not jnp.issubdtype(aval.dtype, jnp.floating):
            raise Unsupported(f"it reads whole numbers or booleans at a point that may lie outside ({equation.name})")
        outside = (index < 0) | (index >= shape[axis])
        value = np.asarray(np.nan if params["fill_value"] is None else params["fill_value"], aval.dtype)[()]
        found = mapped(lambda x: rows.select(outside, value, x), found)
    return found.reshape(outer_shape(result, rows.size))


def _index(equation: Equation, inputs: list[Cells]) -> tuple[int, Any, bool]:
    """Return the one axis that is looked up, the index, and whether what lies outside is filled."""
    params, shape = equation.params, equation.inputs[0].aval.shape
    sizes = params["slice_sizes"]
    axes = [axis for axis, (length, whole) in enumerate(zip(sizes, shape, strict=True)) if length != whole]
    if len(axes) != 1 or sizes[axes[0]] != 1:
        raise Unsupported(f"it reads several points or rows at once ({equation.name})")
    if equation.name == "dynamic_slice":
        return axes[0], inputs[1 + axes[0]][()], False
    numbers = params["dimension_numbers"]
    if numbers.start_index_map != (axes[0],) or inputs[1].size != 1:
        raise Unsupported("it reads several points or rows at once (gather)")
    return axes[0], inputs[1].reshape(-1)[0], "FILL" in str(params["mode"])
