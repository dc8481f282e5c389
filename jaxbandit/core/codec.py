"""Objects as plain values, and back: the one encoding of study files, journals, attributes of results, audit traces and fingerprints.

A table ``{"type": "Rpol", "penalty_growth": 0.5}`` names a class that has declared its fields, or a function that is marked by
:func:`nameable`, and holds values, or tables in turn, for its fields. The package's are named as they are called, a user's
``"module:Name"``: whoever reads such a name has to have imported the module before, for reading a table imports nothing; of a file that a
command has named the name alone is enough, see :mod:`jaxbandit.core.own`. What could not be found again, defined within a function or in
``__main__``, is refused when it is written.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Annotated, Any, TypeAlias, TypeVar

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument, check_known, did_you_mean, leaves, short, spelled
from jaxbandit.core.declare import Declared, Parameter, Role, parameters
from jaxbandit.core.declare import Maker as Maker
from jaxbandit.core.doors import option_of
from jaxbandit.core.fields import Words
from jaxbandit.core.own import LOADED
from jaxbandit.core.provenance import remember

Plain: TypeAlias = "bool | int | float | str | Sequence[Plain] | Mapping[str, Plain] | None"
"""Values that JSON and TOML have."""

Table: TypeAlias = Annotated[Mapping[str, Any], Words("a table of one")]
"""An object as a study file has it: its type and fields, ``{"type": "sine", "points_per_axis": 50}``."""

M = TypeVar("M", bound=Maker)
T = TypeVar("T")

# The names before the words of a docstring's list, and these words, which may go on in lines that are further in.
FIELD = re.compile(r"^  (\w+(?:, \w+)*): (.+(?:\n    .*)*)", re.MULTILINE)
PACKAGE = __name__.partition(".")[0]
MAX_NUMBERS_DESCRIBED = 64  # larger arrays are named by their shape: a table belongs in the data, not in an attribute

# Names.

_FUNCTIONS: dict[str, Maker] = {}  # those marked as nameable, by name
_READERS: set[str] = set()  # those of them whose objects depend on files


def nameable(maker: M) -> M:
    """Let tables name ``maker``, a function of plain values and of objects with roles, which returns what its annotation says.

    The objects that it returns remember the call, as a table of its name and arguments.
    """
    if not inspect.isfunction(maker):
        raise InvalidArgument(f"maker: must be a function, got {short(maker)}")
    signature = functools.cache(inspect.signature)

    @functools.wraps(maker)
    def call(*args: Any, **kwargs: Any) -> Any:
        item = maker(*args, **kwargs)
        arguments = signature(maker).bind(*args, **kwargs).arguments
        if not isinstance(item, Role) or item.made_from is not None:
            return item
        return remember(item, made_from={"type": _name(maker), **arguments})

    _FUNCTIONS[_name(maker)] = call
    return typing.cast(M, call)


def reads_files(maker: M) -> M:
    """Mark ``maker`` as :func:`nameable` does, and as one whose objects depend on files, too."""
    _READERS.add(_name(maker))
    return nameable(maker)


def says_all(table: Table) -> bool:
    """Return whether a table says all that its object depends on, as one of a function that reads files does not."""
    return table.get("type") not in _READERS


def origin_of(item: object) -> Table | None:
    """Return the table, or the call as a table of objects, that an object was made by; ``None`` where it is not known."""
    return item.made_from if isinstance(item, Role) else None


class Named(dict[str, T]):
    """Classes and functions by name; ``named["RPOL-UCB"]`` is ``Rpol``, too: other names count, and neither case nor punctuation do."""

    def spelled(self, name: str) -> str:
        """Return the name of what ``name`` asks for; itself where there is nothing."""
        kinds = ((word, maker) for word, maker in self.items() if isinstance(maker, type) and issubclass(maker, Role))
        return spelled(name, self, ((word, *kind.also_called()) for word, kind in kinds))

    def __missing__(self, name: str) -> T:
        if (found := self.spelled(name)) in self:
            return self[found]
        raise InvalidArgument(f"there is no {name!r}{did_you_mean(name, self)}; known are {', '.join(self)}")


def words_of_fields(maker: Maker) -> dict[str, str]:
    """Return the words of docstrings on each argument of a function, or field of a class and its bases."""
    found: dict[str, str] = {}
    for item in reversed(maker.__mro__) if isinstance(maker, type) else [maker]:
        for names, words in FIELD.findall(inspect.cleandoc(item.__doc__ or "")):
            found |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    return found


def makers(*roles: type[Role]) -> Named[Maker]:
    """Return the package's classes and functions that a table can name where an object of one of ``roles`` is wanted, by name.

    The classes are those of a role that has opted in (``in_files = True``).
    """
    classes = {kind.__name__: kind for role in roles for kind in _final_classes(role) if kind.in_files and ":" not in _name(kind)}
    functions = {name: maker for name, maker in _FUNCTIONS.items() if ":" not in name and issubclass(_returned(maker), roles)}
    return Named(sorted((classes | functions).items()))


def _final_classes(role: type[Role]) -> Iterator[type[Role]]:
    if dataclasses.is_dataclass(role) and not inspect.isabstract(role):
        yield role
    for kind in role.__subclasses__():
        yield from _final_classes(kind)


def word_of(role: type[Role]) -> str:
    """Return what study files and messages call an object of a role, such as ``"algorithm"``."""
    return role.called or role.__name__.lower()


@functools.cache
def _returned(maker: Maker) -> type:
    """Return the class that a marked function returns, by its annotation."""
    returned = typing.get_type_hints(maker).get("return")
    return returned if isinstance(returned, type) else object


def _name(maker: Maker) -> str:
    """Return the name of a class or function in tables."""
    return maker.__name__ if maker.__module__.partition(".")[0] == PACKAGE else f"{maker.__module__}:{maker.__name__}"


def name_of(item: object) -> str:
    """Return the full name of a class, a function, or whatever else can be called."""
    return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', repr(item))}"


def _imported(name: str, roles: tuple[type[Role], ...]) -> Maker | None:
    """Return a user's class or marked function for one of ``roles`` by its name ``module:Name``, if its module has been imported."""
    module, _, short_name = name.partition(":")
    maker = _defined(module, short_name)
    if isinstance(maker, type) and issubclass(maker, roles):
        return maker if dataclasses.is_dataclass(maker) and maker.in_files else None
    marked = _FUNCTIONS.get(name)
    return marked if marked is not None and maker is marked and issubclass(_returned(marked), roles) else None


def _defined(module: str, name: str) -> object:
    """Return what a module that has been imported defines under a name, ``None`` where there is nothing; nothing is imported or run."""
    imported = sys.modules.get(module)
    return vars(imported).get(name) if isinstance(imported, ModuleType) else None


# Objects as plain values.


def _fields(item: object) -> Iterator[tuple[str, Any]] | None:
    """Return names and values of the fields of a dataclass, or entries of a mapping; ``None`` of anything else."""
    if isinstance(item, Mapping):
        return ((str(name), value) for name, value in item.items())
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return ((field.name, getattr(item, field.name)) for field in dataclasses.fields(item))
    return None


def describe(item: object) -> Any:
    """Return an item for people to read: a dataclass as ``{"type": ..., field: ...}``, a large array as its shape."""
    if item is None or isinstance(item, bool | str | int | float):
        return item
    if (held := _fields(item)) is not None:
        return ({} if isinstance(item, Mapping) else {"type": type(item).__name__}) | {name: describe(value) for name, value in held}
    if isinstance(item, tuple | list):
        return [describe(value) for value in item]
    if isinstance(item, np.ndarray | np.generic | jax.Array):
        array = np.asarray(item)
        return array.tolist() if array.size <= MAX_NUMBERS_DESCRIBED else f"array {list(array.shape)} {array.dtype}"
    return name_of(item) if callable(item) else repr(item)


def to_plain(item: object, where: str = "it", *, given: bool = False) -> Any:
    """Return an item as :func:`from_plain` reads it: no field holds ``None``, and the numbers of a list are of one type.

    With ``given`` an object that a table made is that table again. Raises ``InvalidArgument`` on what no table can describe, such as a
    function; ``where`` names the place.
    """
    has_table = isinstance(item, Role) and item.in_files
    if (made_from := origin_of(item)) is not None and (given or not has_table):
        item = made_from
    if item is None or isinstance(item, bool | str | int | float):
        return item
    if isinstance(item, Mapping):
        return {str(name): to_plain(value, f"{where}.{name}", given=given) for name, value in item.items()}
    if has_table and (held := _fields(item)) is not None:
        fields = {name: to_plain(value, f"{where}.{name}", given=given) for name, value in held if value is not None}
        if (kind := type(item)).__module__ == "__main__" or _defined(kind.__module__, kind.__name__) is not kind:
            words = f"{where}: a {kind.__name__} cannot be written as a table, for its class, {name_of(kind)}, cannot be imported again"
            raise InvalidArgument(f"{words}; define it at the top of a module of its own")
        return {"type": _name(kind)} | fields
    if isinstance(item, tuple | list) and any(isinstance(part, Role | Mapping) for part in item):
        return [to_plain(value, f"{where}[{number}]", given=given) for number, value in enumerate(item)]
    if isinstance(item, tuple | list | np.ndarray | np.generic | jax.Array):
        return np.asarray(item).tolist()
    raise InvalidArgument(f"{where}: a {type(item).__name__} cannot be written as a table")


as_given = functools.partial(to_plain, given=True)


def exact(item: object, name: Callable[[type], str] = name_of) -> Any:
    """Return plain values, equal for equal items alone: arrays by their hash, classes by ``name``; ``InvalidArgument`` where none are."""
    if item is None or isinstance(item, bool | str):
        return item
    if (held := _fields(item)) is not None:
        return ({} if isinstance(item, Mapping) else {"class": name(type(item))}) | {field: exact(value, name) for field, value in held}
    if isinstance(item, int | float):
        return hex(item) if isinstance(item, int) and not -(2**63) <= item < 2**64 else float(item)
    if isinstance(item, tuple | list):
        return [exact(value, name) for value in item]
    if isinstance(item, np.ndarray | np.generic | jax.Array) and item.dtype.kind in "biuf":
        array = np.asarray(item)
        array = array.astype(np.float64) if array.dtype.kind == "f" or array.ndim == 0 else array.astype(np.int64)
        return float(array) if array.ndim == 0 else [list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    if callable(item):
        return name_of(item)
    raise InvalidArgument(f"study: a {type(item).__name__} has no fingerprint; use numbers, arrays and dataclasses")


def _with_text(maker: Maker) -> str:
    """Return the name of a class in tables, with what the text of a file of the user's own counts for."""
    own = LOADED.get(maker.__module__)
    return _name(maker) + (f"@{own.digest}" if own else "")


stable = functools.partial(exact, name=_with_text)  # whose classes, with the names of tables, may move within the package


def to_fields(item: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass that its place in a table tells the class of, as :func:`from_fields` reads them."""
    return dict(as_given({name: value for name, value in _fields(item) or () if value is not None}, where))


def digest(plain: Plain) -> str:
    """Return the SHA-256 of plain values, such as :func:`exact` returns."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def in_words(item: object) -> str:
    """Return a dataclass in a few words: its type, with its numbers, such as ``Poisson(mean 15)``."""
    described = describe(item) if dataclasses.is_dataclass(item) else {}
    numbers = [f"{name} {value:g}" for name, value in described.items() if isinstance(value, int | float) and not isinstance(value, bool)]
    return type(item).__name__ + (f"({', '.join(numbers)})" if numbers else "")


# Plain values as objects.


def from_plain(role: type[Role] | Sequence[type[Role]], table: object, where: str, word: str = "") -> Any:
    """Return the object of a role, or of one of several, that a table describes by its type and fields; what is no table stays as it is.

    Raises ``InvalidArgument`` on an unknown name or field, with the nearest known one, and on values that the object refuses; messages
    name the place by ``where``, and an object of several roles by ``word``.
    """
    if not isinstance(table, Mapping):
        return table
    values, roles = dict(table), (role,) if isinstance(role, type) else tuple(role)
    word = word or word_of(roles[0])
    if "type" not in values:
        raise InvalidArgument(f'{where}: the table has no type; say which {word}, as in type = "{next(iter(makers(*roles)))}"')
    maker = _look_up(word, roles, values.pop("type"), where)
    fields = check_fields(maker, values, where, f"{maker.__name__} takes")
    arguments = {name: _value(name, fields[name].roles, fields[name].static, value, f"{where}.{name}") for name, value in values.items()}
    try:
        made = maker(**arguments)
        return remember(made, made_from={**table, "type": _name(maker)}) if isinstance(made, Role) else made
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidArgument(f"{where}: {maker.__name__} refuses {short(dict(table))}: {lacking(maker, arguments) or error}") from error


def from_fields(kind: type[T], table: object, where: str) -> T:
    """Return the ``kind`` whose fields a table holds; raises ``InvalidArgument`` on what is no table, and on unknown or missing fields."""
    values = dict(check_table(table, where))
    fields = check_fields(kind, values, where, f"{where} takes")
    for name, value in values.items():
        if issubclass(kind, Declared) and isinstance(value, list):
            values[name] = _value(name, (), fields[name].static, value, f"{where}.{name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidArgument(f"{where}: {lacking(kind, values) or error}") from error


def lacking(maker: Maker, given: Table) -> str:
    """Return what a table lacks of the arguments of a class or function, in words; nothing where it lacks none."""
    needed = [name for name, one in inspect.signature(maker).parameters.items() if one.default is one.empty and one.kind != one.VAR_KEYWORD]
    missing = [name for name in needed if name not in given]
    return f"it lacks {', '.join(missing)}" if missing else ""


def from_value(value: object, where: str) -> Any:
    """Return a value of any field as an object of whatever role its table names, or an array of numbers from their list."""
    return _value("value", (Role,), False, list(value) if isinstance(value, tuple) else value, where)


def check_table(table: object, where: str) -> Table:
    """Return a table; raise ``InvalidArgument`` on anything else."""
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{where}: expected a table, got {short(table)}")
    return table


def check_fields(maker: Maker, table: Table, where: str, words: str) -> dict[str, Parameter]:
    """Return the fields of a class or function by name; raise ``InvalidArgument`` on one that it lacks, with the nearest known one."""
    fields = {parameter.name: parameter for parameter in parameters(maker)}
    for name in table:
        check_known(name, fields, f"{where}.{name}", words)
    return fields


def _look_up(word: str, roles: tuple[type[Role], ...], name: object, where: str) -> Maker:
    """Return the class or function of a name; raises ``InvalidArgument`` with the nearest one when there is none."""
    if not isinstance(name, str):
        raise InvalidArgument(f"{where}.type: expected the name of a {word} as text, got {short(name)}")
    known = makers(*roles)
    maker = _imported(name, roles) if ":" in name else known.get(known.spelled(name))
    if maker is None and ":" not in name:  # of a file that the command has named
        maker = next((found for module in LOADED if (found := _imported(f"{module}:{name}", roles)) is not None), None)
    if maker is not None:
        return maker
    words = f"{where}: there is no {word} {short(name)}"
    if ":" in name:
        way = f"import its module first{option_of('own', ', by {} ' + name.partition(':')[0] + '.py')}"
        raise InvalidArgument(f"{words} in the modules that have been imported; {way}")
    own = option_of("own", "; a class of your own comes by {} FILE.py")
    raise InvalidArgument(f"{words}{did_you_mean(name, known)}; known are {', '.join(known)}{own}")


def _value(word: str, roles: Sequence[type[Role]], is_static: bool, value: object, where: str) -> Any:
    """Return the value of one field: tables of roles become objects, lists of numbers arrays, or tuples where the field is static.

    Any other table or list passes as it is: the field's own check refuses or takes it.
    """
    if isinstance(value, Mapping):
        return from_plain(roles, value, where, word) if roles else value
    if not isinstance(value, list):
        return value
    tables = any(isinstance(item, Mapping) for item in value)
    if is_static or tables:
        places = [f"{where}[{number}]" if tables else where for number in range(len(value))]
        return tuple(_value(word, roles, is_static, item, place) for item, place in zip(value, places, strict=True))
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return value
    mixed = array.dtype.kind != "b" and any(isinstance(leaf, bool) for leaf in leaves(value))  # NumPy takes True for 1.0
    return array if array.dtype.kind in "biuf" and not mixed else value
