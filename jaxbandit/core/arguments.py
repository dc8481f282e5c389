"""Checks of the arguments of functions, declared beside the function as those of fields are beside the field."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import jax

from jaxbandit.core.checks import InvalidArgument, is_traced, short
from jaxbandit.core.fields import Check

__all__ = ["check_methods", "takes"]

F = TypeVar("F", bound=Callable[..., Any])


def takes(**declared: Check) -> Callable[[F], F]:
    """Return a decorator of functions: each argument named is checked before the function is called.

    ``@takes(points_per_axis=whole(2), noise_variance=nonnegative.of(per_output))`` says what two arguments may hold. An argument that is
    left out is not checked, so that a default may be anything; one that may be given as ``None`` is declared as ``optional(...)``.
    The decorated function has the mapping as ``declared``.

    Raises:
      InvalidArgument: on an argument that the function does not have; the decorated function raises it on values that are not allowed.
    """
    for name, check in declared.items():
        if not isinstance(check, Check):
            raise InvalidArgument(f"takes.{name}: must be a check of jaxbandit.fields, got {short(check)}")
    return _checking(declared, by_name=True)


def _checking(declared: Mapping[str, Check], *, by_name: bool) -> Callable[[F], F]:
    """Return the decorator of :func:`takes`; ``by_name``: whether it names traced arguments that fail; hooks leave it to the engine."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        unknown = declared.keys() - signature.parameters.keys()
        if unknown:
            raise InvalidArgument(f"takes: {function.__qualname__} has no argument {', '.join(sorted(unknown))}")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                given: Mapping[str, Any] = signature.bind_partial(*args, **kwargs).arguments
            except TypeError:
                given = {}  # the call below fails in Python's own words, which name the function
            for name, value in given.items():
                if name in declared:
                    declared[name](name, value)
            with _naming_traced(given) if by_name else contextlib.nullcontext():
                return function(*args, **kwargs)

        checked.declared = declared  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate


@contextlib.contextmanager
def _naming_traced(given: Mapping[str, Any]) -> Iterator[None]:
    """Turn JAX's errors on traced numbers that are looked at into ``InvalidArgument``, which names the arguments that hold them."""
    try:
        yield
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        traced = [name for name, value in given.items() if is_traced(value)]
        if not traced:
            raise
        words = ", ".join(f"{name}={short(given[name])}" for name in traced)
        raise InvalidArgument(f"{', '.join(traced)}: must be known here, not traced by jit or vmap, got {words}") from error


class _OnADomain(Protocol):
    """Objects that serve some outputs at the points of a domain."""

    @property
    def domain(self) -> Any: ...
    @property
    def outputs(self) -> int: ...


def check_methods(kind: type, methods: Mapping[str, Mapping[str, Check]], *, on_domain: bool = False) -> None:
    """Let those of a class's own ``methods`` refuse arguments that their checks do not allow; to be called by ``__init_subclass__``.

    A base class declares so what the methods of its role take, once for all classes that define them, a user's too. Tracers pass, so
    that compiled programs pay nothing.

    Args:
      kind: the class.
      methods: for each method the checks of its arguments; a method without such an argument, or that the class lacks, is left alone.
      on_domain: whether objects have a ``domain`` and ``outputs``, which points and shapes then have to fit.
    """
    for name, declared in methods.items():
        method = vars(kind).get(name)
        if not inspect.isfunction(method):
            continue
        own = {argument: check for argument, check in declared.items() if argument in inspect.signature(method).parameters}
        setattr(kind, name, _fitting(method, own) if on_domain else _checking(own, by_name=False)(method))


def _fitting(method: Callable[..., Any], declared: Mapping[str, Check]) -> Callable[..., Any]:
    """Return a method that checks its arguments, and that they fit the domain and the outputs of its object."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self: _OnADomain, *args: Any, **kwargs: Any) -> Any:
        try:
            given: Mapping[str, Any] = signature.bind_partial(self, *args, **kwargs).arguments
        except TypeError:
            given = {}  # the call below fails in Python's own words, which name the method
        for name, value in given.items():
            if name in declared and not (value is None and signature.parameters[name].default is None):
                declared[name](name, value, None, self.outputs)
                declared[name].fit_domain(name, value, self.domain.size, self.domain.dimension, None)
        return method(self, *args, **kwargs)

    return checked
