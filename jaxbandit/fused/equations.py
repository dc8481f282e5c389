"""The equations of a traced function, and their division into those before a kernel and those inside it.

A function is traced by :func:`jax.make_jaxpr`. What does not depend on functions of the grid (random numbers, schedules of widths) stays
before the kernel, with XLA; the rest is the kernel's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.extend import core


class Unsupported(Exception):
    """A kernel cannot do what a function asks for; the message says what that is."""


# Equations that only call another function.
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "remat2", "checkpoint"}
# What a kernel makes itself of constants, or on the grid, for it would otherwise read it from memory.
MADE_INSIDE = {"iota", "broadcast_in_dim", "convert_element_type", "select_n", "eq", "lt", "add", "mul"}


@dataclasses.dataclass(frozen=True, eq=False)
class Name:
    """A variable, equal to itself alone: a function that is called twice has its variables twice."""

    aval: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A value that is known when the function is traced."""

    value: np.ndarray
    aval: Any


Operand: TypeAlias = Name | Constant


@dataclasses.dataclass(frozen=True, eq=False)
class Equation:
    """``outputs = primitive(inputs)``."""

    primitive: Any
    inputs: tuple[Operand, ...]
    outputs: tuple[Name, ...]
    params: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the primitive, such as ``"add"``."""
        return str(self.primitive.name)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A traced function without calls of others: its arguments, its equations in order, and what it returns."""

    arguments: tuple[Name, ...]
    equations: tuple[Equation, ...]
    results: tuple[Operand, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Division:
    """A program in two parts: ``before`` gives ``needs``, from which ``inside`` makes what else is returned."""

    before: tuple[Equation, ...]
    inside: tuple[Equation, ...]
    needs: tuple[Name, ...]
    made: tuple[Name, ...]  # of the results, those that the second part makes


def inlined(closed: core.ClosedJaxpr) -> Program:
    """Return the program of a closed jaxpr, with every call replaced by the equations of the function called."""
    equations: list[Equation] = []

    def run(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Operand]) -> list[Operand]:
        known: dict[Any, Operand] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {var: Constant(np.asarray(value), var.aval) for var, value in zip(jaxpr.constvars, constants, strict=True)}

        def read(atom: Any) -> Operand:
            return Constant(np.asarray(atom.val), atom.aval) if isinstance(atom, core.Literal) else known[atom]

        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            if equation.primitive.name in CALLS:
                params = equation.params
                called = params.get("jaxpr") or params.get("call_jaxpr") or params.get("fun_jaxpr")
                closed = isinstance(called, core.ClosedJaxpr)
                outputs = run(called.jaxpr if closed else called, called.consts if closed else (), inputs)
            else:
                outputs = [Name(var.aval) for var in equation.outvars]
                equations.append(Equation(equation.primitive, tuple(inputs), tuple(outputs), equation.params))  # type: ignore[arg-type]
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    arguments = tuple(Name(var.aval) for var in closed.jaxpr.invars)
    results = run(closed.jaxpr, closed.consts, arguments)
    return Program(arguments, tuple(equations), tuple(results))


def needed(equations: Iterable[Equation], wanted: Iterable[Operand]) -> tuple[Equation, ...]:
    """Return the equations on which ``wanted`` depends, in order."""
    alive, kept = set(wanted), []
    for equation in reversed(tuple(equations)):
        if any(output in alive for output in equation.outputs):
            kept.append(equation)
            alive.update(equation.inputs)
    return tuple(reversed(kept))


def divide(program: Program, grid: Sequence[bool], size: int) -> Division:
    """Return the program in two parts.

    Args:
      program: the whole function.
      grid: which of its arguments hold functions of the grid that the kernel owns.
      size: number of points ``M``, the length of the last axis of such arrays.
    """
    depends = {argument for argument, owned in zip(program.arguments, grid, strict=True) if owned}
    outside: dict[Name, Equation] = {}
    inside: list[Equation] = []
    for equation in program.equations:
        if any(operand in depends for operand in equation.inputs):
            inside.append(equation)
            depends.update(equation.outputs)
        else:
            outside.update(dict.fromkeys(equation.outputs, equation))
    chosen = set(needed(inside, program.results))
    waiting = [operand for equation in chosen for operand in equation.inputs]
    while waiting:
        operand = waiting.pop()
        maker = outside.get(operand) if isinstance(operand, Name) else None
        if maker is None or maker in chosen or maker.name not in MADE_INSIDE:
            continue
        if on_grid(operand.aval, size) or all(isinstance(own, Constant) and own.aval.shape == () for own in maker.inputs):
            chosen.add(maker)
            waiting.extend(maker.inputs)
    kernel = tuple(equation for equation in program.equations if equation in chosen)
    made = {output for equation in kernel for output in equation.outputs}
    inputs = dict.fromkeys(operand for equation in kernel for operand in equation.inputs)
    needs = tuple(operand for operand in inputs if isinstance(operand, Name) and operand not in made)
    made_inside = {output for equation in inside for output in equation.outputs}
    returned = tuple(dict.fromkeys(result for result in program.results if isinstance(result, Name) and result in made_inside))
    direct = [result for result in program.results if result not in made_inside]
    before = needed(dict.fromkeys(outside.values()), [*needs, *direct])
    return Division(before, kernel, needs, returned)


def on_grid(aval: Any, size: int) -> bool:
    """Say whether the last axis of an array is the grid's."""
    return bool(aval.shape[-1:] == (size,))


def check_axes(division: Division, size: int) -> None:
    """Raise :class:`Unsupported` unless the axis of the grid can be told from all others by its length."""
    avals = [operand.aval for equation in division.inside for operand in (*equation.inputs, *equation.outputs)]
    others = {length for aval in avals for length in (aval.shape[:-1] if on_grid(aval, size) else aval.shape)}
    if size in others or size == 1:
        raise Unsupported(f"the grid has {size} points, as many as another axis of what is computed on it")


def evaluate(equations: Iterable[Equation], known: dict[Operand, Any]) -> None:
    """Compute equations by JAX itself; ``known`` holds the values of their inputs and takes those of their outputs."""

    def read(operand: Operand) -> Any:
        return operand.value if isinstance(operand, Constant) else known[operand]

    for equation in equations:
        primitive = equation.primitive
        outputs = primitive.bind(*map(read, equation.inputs), **primitive.get_bind_params(equation.params))
        known.update(zip(equation.outputs, outputs if primitive.multiple_results else [outputs], strict=True))


def traced(function: Any, arguments: Any) -> tuple[Program, Any]:
    """Return the program of ``function`` at arrays like the leaves of ``arguments``, and the structure of what it returns."""
    leaves, structure = jax.tree.flatten(arguments)
    closed, shape = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(structure, flat)), return_shape=True)(*leaves)
    return inlined(closed), jax.tree.structure(shape)
