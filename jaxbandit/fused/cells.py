"""Functions of one point at all points of a grid, inside kernels.

JAX traces a function at a single point, so that all of its arrays are short. Every entry of such an array is a cell: a number, or a row
with a number for each point of the grid. No slice, stack, transposition or gather is left for a kernel's compiler.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.numerics.ties import least_of_best

if TYPE_CHECKING:
    from jax.extend import core

Value: TypeAlias = Any
"""Number or row of a kernel: an array of JAX, or a number of NumPy."""
Ref: TypeAlias = Any
"""Memory that a kernel reads and writes, of Pallas."""
Cells: TypeAlias = np.ndarray
"""Array of objects whose entries are values."""
Operation: TypeAlias = Callable[..., Value]


class Unsupported(Exception):
    """Error whose message names the operation that no kernel supports."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Shape and reductions of a row inside a kernel.

    There are ``size`` points. They lie along the first axis of ``shape``, and trials along the second. Reductions keep the first axis with
    length 1.
    """

    size: int
    shape: tuple[int, ...]

    def full(self, x: Value) -> Value:
        """Return a number or a row as a row."""
        return x if np.shape(x) == self.shape else jnp.broadcast_to(x, self.shape)

    def points(self) -> Value:
        """Return the numbers of the points as a row."""
        return jax.lax.broadcasted_iota(jnp.int32, self.shape, 0).astype(np.float32)

    def reduce(self, function: Operation, x: Value) -> Value:
        """Return a reduction of a row over the points."""
        return function(self.full(x), axis=0, keepdims=True)

    def everywhere(self, mask: Value) -> Value:
        """Return whether a row of booleans holds at every point."""
        return self.reduce(jnp.min, as_numbers(mask)) > np.float32(0.5)

    def pick(self, score: Value) -> Value:
        """Return the index that :func:`~jaxbandit.acquisition.pick` gives, as float32."""
        score = self.full(score)
        tied = score >= least_of_best(self.reduce(jnp.max, score), self.reduce(jnp.min, score))
        return self.reduce(jnp.min, self.select(tied, self.points(), np.float32(self.size)))

    def sqrt(self, x: Value) -> Value:
        return jnp.sqrt(x)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        return jnp.where(condition, yes, no)


def as_numbers(x: Value) -> Value:
    """Return booleans, badly reduced by kernels, as float32 1 and 0."""
    return jnp.where(x, np.float32(1), np.float32(0))


def _quotient(x: Value, y: Value) -> Value:
    if not jnp.issubdtype(jnp.result_type(x, y), jnp.floating):
        raise Unsupported("it divides whole numbers (div)")
    return x / y


def _converted(x: Value, dtype: np.dtype) -> Value:
    if isinstance(x, np.generic):
        # A kernel takes constants as NumPy's numbers only.
        return x.astype(dtype)
    if np.issubdtype(dtype, np.bool_):
        return x != 0
    if np.issubdtype(jnp.result_type(x), np.bool_):
        return jnp.where(x, jnp.ones((), dtype), jnp.zeros((), dtype))
    return jnp.asarray(x).astype(dtype)


def _power(x: Value, y: int) -> Value:
    product = functools.reduce(operator.mul, [x] * abs(y)) if y else x * 0 + 1
    return product if y >= 0 else 1 / product


# Functions of entries. If they differ between kernels, they are methods of ``Rows``.
ELEMENTWISE: dict[str, Operation] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "eq", "ne", "lt", "le", "gt", "ge")},
    **{name: getattr(jnp, name) for name in ("abs", "ceil", "exp", "floor", "log", "sign", "square", "tanh")},
    **dict.fromkeys(("copy", "optimization_barrier", "reshard", "stop_gradient"), lambda x: x),
    "add_any": operator.add,
    "and": operator.and_,
    "clamp": lambda low, x, high: jnp.minimum(jnp.maximum(x, low), high),
    "div": _quotient,
    "is_finite": lambda x: jnp.abs(x) < np.inf,
    "max": jnp.maximum,
    "min": jnp.minimum,
    # Mosaic GPU of JAX 0.12 inverts no booleans: "Register bitwidth ... must be divisible by 8".
    "not": lambda x: as_numbers(x) < np.float32(0.5),
    "or": operator.or_,
    "pow": jnp.power,
    "rem": jnp.fmod,
}
# Reductions, each with its result for an empty array.
REDUCTIONS: dict[str, tuple[Operation, float]] = {
    "reduce_max": (jnp.maximum, -np.inf),
    "reduce_min": (jnp.minimum, np.inf),
    "reduce_sum": (operator.add, 0),
    "reduce_prod": (operator.mul, 1),
    "reduce_and": (operator.and_, True),
    "reduce_or": (operator.or_, False),
}
# Equations that only call another function.
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint"}


def compute(closed: core.ClosedJaxpr, arguments: Sequence[Cells], rows: Rows) -> list[Cells]:
    """Return a traced function of cells, or raise :class:`Unsupported`."""
    # Import it here, because it loads Pallas, and most processes do not need Pallas.
    from jax.extend import core

    known: dict[core.Var | core.Literal, Cells] = {
        var: cells_of(value, var.aval) for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)
    }
    known |= dict(zip(closed.jaxpr.invars, arguments, strict=True))

    def read(atom: core.Var | core.Literal) -> Cells:
        return cells_of(atom.val, atom.aval) if isinstance(atom, core.Literal) else known[atom]

    for equation in closed.jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        known.update(zip(equation.outvars, _computed(equation, inputs, rows), strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]


def cells_of(value: Value, aval: Any) -> Cells:
    """Return the entries of a constant as cells, numbers of NumPy."""
    array = np.asarray(value, aval.dtype)
    return boxed([array[place] for place in np.ndindex(array.shape)], array.shape)


def boxed(values: Sequence[Value], shape: tuple[int, ...]) -> Cells:
    """Return values of a kernel as cells of some shape."""
    cells = np.empty(shape, object)
    for place, value in zip(np.ndindex(shape), values, strict=True):
        cells[place] = value
    return cells


def _computed(equation: core.JaxprEqn, inputs: list[Cells], rows: Rows) -> list[Cells]:
    name, params = equation.primitive.name, equation.params
    if name in CALLS:
        return compute(called_by(equation), inputs, rows)
    if name in REDUCTIONS:
        return [functools.reduce(functools.partial(_reduced, *REDUCTIONS[name]), sorted(params["axes"], reverse=True), inputs[0])]
    aval: Any = equation.outvars[0].aval
    shape = aval.shape
    if name in ("reshape", "squeeze", "expand_dims"):
        return [inputs[0].reshape(shape)]
    if name == "broadcast_in_dim":
        axes = dict(zip(params["broadcast_dimensions"], inputs[0].shape, strict=True))
        return [np.broadcast_to(inputs[0].reshape([axes.get(axis, 1) for axis in range(len(shape))]), shape)]
    if name == "slice":
        return [inputs[0][tuple(map(slice, params["start_indices"], params["limit_indices"], params["strides"] or [1] * inputs[0].ndim))]]
    if name == "concatenate":
        return [np.concatenate(inputs, params["dimension"])]
    if name == "stack":
        return [np.stack(inputs, params["axis"])]
    if name == "split":
        return np.split(inputs[0], np.cumsum(params["sizes"])[:-1], params["axis"])
    if name == "transpose":
        return [inputs[0].transpose(params["permutation"])]
    of_kernel: dict[str, Operation] = {
        "sqrt": rows.sqrt,
        "select_n": lambda condition, no, yes: rows.select(condition, yes, no),
        "integer_pow": lambda x: _power(x, params["y"]),
        "convert_element_type": lambda x: _converted(x, params["new_dtype"]),
    }
    function = of_kernel.get(name, ELEMENTWISE.get(name))
    if function is None:
        raise Unsupported(f"it uses an operation that kernels lack ({name})")
    # The arrays may have no entries.
    broadcast = np.broadcast_shapes(*(each.shape for each in inputs))
    return [np.frompyfunc(function, len(inputs), 1)(*inputs, out=np.empty(broadcast, object))]


def called_by(equation: core.JaxprEqn) -> core.ClosedJaxpr:
    """Return the function that an equation of ``CALLS`` calls."""
    from jax.extend import core

    called: Any = next(equation.params[name] for name in ("jaxpr", "call_jaxpr", "fun_jaxpr") if name in equation.params)
    return called if isinstance(called, core.ClosedJaxpr) else core.ClosedJaxpr(called, ())


def _reduced(function: Operation, of_empty: float, cells: Cells, axis: int) -> Cells:
    reduced = np.full((*cells.shape[:axis], *cells.shape[axis + 1 :]), np.float32(of_empty), object)
    return np.frompyfunc(function, 2, 1).reduce(cells, axis, out=reduced) if cells.shape[axis] else reduced
