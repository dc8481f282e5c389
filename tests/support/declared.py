"""Declared classes and public names of the package."""

import dataclasses
import enum
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

import jaxbandit
import jaxbandit.gradients
import jaxbandit.session
from jaxbandit import delays, kernels, problems
from jaxbandit.core import fields
from jaxbandit.core.declare import Declared, parameters

# A value for each field that has no default.
REQUIRED: dict[str, dict[str, Any]] = {
    "Anytime": {"algorithm": jaxbandit.Rpol()},
    "Custom": {"function": lambda t, gain: 1 + gain},
    "Empirical": {"values": [0, 2]},
    "Gram": {"matrix": np.eye(3)},
    "Heteroscedastic": {"variance": np.ones(3)},
    "Lipschitz": {"constant": 2.0, "noise_bound": 0.1},
    "Monotone": {"axis": 0},
    "OnAxes": {"kernel": kernels.White()},
    "PerOutput": {"delays": (delays.NoDelay(),), "models": (problems.Noiseless(),)},
    "PosteriorMean": {"kernel": kernels.White(), "points": np.ones((2, 1)), "weights": np.ones(2)},
    "Product": {"left": kernels.White(), "right": kernels.White()},
    "Refitted": {"algorithm": jaxbandit.Rpol()},
    "Residuals": {"table": np.ones((2, 3))},
    "Scale": {"kernel": kernels.White()},
    "Sum": {"left": kernels.White(), "right": kernels.White()},
}


def required(kind: type) -> dict[str, Any]:
    """Return values of the fields of a class that have no default."""
    names = {parameter.name for parameter in parameters(kind)}
    return {name: value for name, value in REQUIRED.get(kind.__name__, {}).items() if name in names}


def declared_classes(kind: type = Declared) -> Iterator[type]:
    """Return every concrete class of the package that declares fields."""
    for own in kind.__subclasses__():
        if own.__module__.startswith("jaxbandit.") and not inspect.isabstract(own):
            yield own
        yield from declared_classes(own)


# The classes by the public module that defines them, or else by their part of the package.
NAMED = {module.__name__: name for name in jaxbandit.__all__ if inspect.ismodule(module := getattr(jaxbandit, name))}
CLASSES = {f"jaxbandit.{NAMED.get(kind.__module__, kind.__module__.split('.')[1])}.{kind.__name__}": kind for kind in declared_classes()}


@functools.cache
def public_names() -> dict[str, Any]:
    """Return every public object by its shortest path."""
    found: dict[str, Any] = {}
    known, left = {id(jaxbandit)}, [("", jaxbandit)]
    while left:
        path, module = left.pop(0)
        for name in dir(module):
            item = getattr(module, name)
            if inspect.ismodule(item):
                if id(item) not in known:
                    left.append((f"{path}{name}.", item))
                known.add(id(item))
            elif not callable(item) or id(item) not in known:
                known.add(id(item))
                found[f"{path}{name}"] = item
    return found


def path_of(kind: type) -> str:
    return next((path for path, item in public_names().items() if item is kind), kind.__name__)


def declared_fields() -> dict[str, dict[str, Any]]:
    """Return what every declared field says, in plain values."""
    return {
        f"{path_of(kind)}.{parameter.name}": {
            "allowed": parameter.check.allowed,
            "classes": [kind.__name__ for kind in parameter.check.classes],
            "shape": shape_of(parameter.shape),
            "letter": parameter.symbol,
            "static": parameter.static,
            "above": [f"{other.words} {other}" for other in parameter.above],
            "default": "required" if own.default is dataclasses.MISSING else said(own.default),
        }
        for kind in declared_classes()
        for parameter, own in zip(parameters(kind), dataclasses.fields(kind), strict=True)
    }


def shape_of(shape: fields.Shape | None) -> str | None:
    """Return the name of a declared shape, or its words."""
    return shape and next((name for name, item in vars(fields).items() if item is shape), shape.words)


def signatures() -> dict[str, str]:
    """Return signatures of public callables, and values of public constants."""
    found = {}
    for path, item in public_names().items():
        found[path] = called(item)
        for name, method in methods(item) if inspect.isclass(item) else ():
            found[f"{path}.{name}"] = called(method)
    return found


METHODS = (types.FunctionType, property, functools.cached_property, classmethod, staticmethod)


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Return a class's public methods, with those of private bases."""
    public = {id(item) for item in public_names().values()} - {id(kind)}
    for base in reversed(kind.__mro__):
        if id(base) not in public and base.__module__.startswith("jaxbandit") and base not in Declared.__mro__:
            yield from ((name, item) for name, item in vars(base).items() if not name.startswith("_") and isinstance(item, METHODS))


def called(item: Any) -> str:
    """Return a function's arguments and defaults, or the kind of an object."""
    if isinstance(item, property | functools.cached_property):
        return "a property"
    if inspect.isclass(item) and issubclass(item, enum.Enum):
        return f"one of {', '.join(f'{one.name} = {one.value}' for one in item)}"
    item = getattr(item, "__func__", item)
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return said(item)
    return str(signature.replace(parameters=[plain(one) for one in signature.parameters.values()], return_annotation=signature.empty))


class Said(str):
    """Text that shows itself without quotes."""

    __repr__ = str.__str__


def plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter without annotation, whose default shows no address."""
    default = parameter.default if parameter.default is parameter.empty else Said(said(parameter.default))
    return parameter.replace(annotation=parameter.empty, default=default)


def said(value: Any) -> str:
    """Return what a value is, the same in every process."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"{'the class' if inspect.isclass(value) else 'the function'} {value.__qualname__}"
    words = repr(value)
    return f"an object of {type(value).__name__}" if " at 0x" in words or len(words) > 300 else words
