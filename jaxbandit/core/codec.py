"""Objects as plain values, and back.

Study files, journals, attributes of results, audit traces and fingerprints share this encoding. A table ``{"type": "Rpol",
"penalty_growth": 0.5}`` names a class that has declared its fields, or a function marked by :func:`nameable`, and has values, or tables in
turn, for its fields. A class of the package goes by its name, a user's by ``"module:Name"``. Reading a table imports nothing, so a user's
module has to be imported before; of a file that a command has named the name alone suffices, see :mod:`jaxbandit.host.user_code`. Writing
refuses classes of ``__main__`` and of functions, because no reader could find them.
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
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeAlias, TypeVar

import jax
import numpy as np

from jaxbandit.core.checks import InvalidArgument, check_known, did_you_mean, leaves, short, spelled
from jaxbandit.core.declare import Declared, Parameter, Role, T, parameters
from jaxbandit.core.declare import Maker as Maker
from jaxbandit.core.doors import option_of
from jaxbandit.core.fields import Words
from jaxbandit.core.pytree import remember

Plain: TypeAlias = "bool | int | float | str | Sequence[Plain] | Mapping[str, Plain] | None"
"""Values that JSON and TOML have."""

ObjectTable: TypeAlias = Annotated[Mapping[str, Any], Words("a table of one")]
"""An object as in a study file, such as ``{"type": "sine", "points_per_axis": 50}``."""

M = TypeVar("M", bound=Maker)


@dataclasses.dataclass(frozen=True)
class Source:
    """A user's file of classes, as its path and its text."""

    path: str
    text: bytes

    @property
    def module(self) -> str:
        """Name of its module."""
        return Path(self.path).stem

    @property
    def digest(self) -> str:
        """Start of the SHA-256 of the text."""
        return hashlib.sha256(self.text).hexdigest()[:16]


# The files that a command has named, by their modules.
LOADED = dict[str, Source]()

# Names.

# Functions marked as nameable, by name, and the names of those whose objects depend on files.
_FUNCTIONS: dict[str, Maker] = {}
_READERS: set[str] = set()


def nameable(maker: M) -> M:
    """Let tables name a function of plain values and objects with roles.

    Its annotation gives the class that it returns. The objects remember the call, as a table of its name and arguments.
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
    """Mark ``maker`` as :func:`nameable`, with objects that depend on files."""
    _READERS.add(_name(maker))
    return nameable(maker)


def says_all(table: ObjectTable) -> bool:
    """Return whether a table describes all that its object depends on."""
    return table.get("type") not in _READERS


def origin_of(item: object) -> ObjectTable | None:
    """Return the table or call that made an object, if known."""
    return item.made_from if isinstance(item, Role) else None


class Named(dict[str, T]):
    """Makers by name or title, whatever the case and punctuation."""

    def spelled(self, name: str) -> str:
        """Return the key that ``name`` means, or ``name`` without such a key."""
        kinds = ((word, maker) for word, maker in self.items() if isinstance(maker, type) and issubclass(maker, Role))
        return spelled(name, self, ((word, *kind.also_called()) for word, kind in kinds))

    def __missing__(self, name: str) -> T:
        if (found := self.spelled(name)) in self:
            return self[found]
        raise InvalidArgument(f"there is no {name!r}{did_you_mean(name, self)}; known are {', '.join(self)}")


def words_of_fields(maker: Maker) -> dict[str, str]:
    """Return docstrings' words on each argument or field, with bases."""
    found: dict[str, str] = {}
    # A list of a docstring has names, a colon, and words that may continue in lines with a deeper indent.
    field = re.compile(r"^  (\w+(?:, \w+)*): (.+(?:\n    .*)*)", re.MULTILINE)
    for item in reversed(maker.__mro__) if isinstance(maker, type) else [maker]:
        for names, words in field.findall(inspect.cleandoc(item.__doc__ or "")):
            found |= dict.fromkeys(names.split(", "), " ".join(words.split()))
    return found


def makers(*roles: type[Role]) -> Named[Maker]:
    """Return the package's makers of ``roles`` that tables can name."""
    classes = {kind.__name__: kind for role in roles for kind in _final_classes(role) if kind.in_files and ":" not in _name(kind)}
    functions = {name: maker for name, maker in _FUNCTIONS.items() if ":" not in name and issubclass(_returned(maker), roles)}
    return Named(sorted((classes | functions).items()))


def _final_classes(role: type[Role]) -> Iterator[type[Role]]:
    if dataclasses.is_dataclass(role) and not inspect.isabstract(role):
        yield role
    for kind in role.__subclasses__():
        yield from _final_classes(kind)


def word_of(role: type[Role]) -> str:
    """Return the word for a role in study files, such as ``"algorithm"``."""
    return role.called or role.__name__.lower()


@functools.cache
def _returned(maker: Maker) -> type:
    """Return the class that the annotation of a marked function names."""
    returned = typing.get_type_hints(maker).get("return")
    return returned if isinstance(returned, type) else object


def _name(maker: Maker) -> str:
    """Return the name of a class or function in tables."""
    return maker.__name__ if maker.__module__.startswith("jaxbandit.") else f"{maker.__module__}:{maker.__name__}"


def name_of(item: object) -> str:
    """Return the full name of a class, a function or another callable."""
    return f"{getattr(item, '__module__', '?')}.{getattr(item, '__qualname__', repr(item))}"


def _imported(name: str, roles: tuple[type[Role], ...]) -> Maker | None:
    """Return a user's maker for ``roles`` by its name ``module:Name``, if imported."""
    module, _, short_name = name.partition(":")
    maker = _defined(module, short_name)
    if isinstance(maker, type) and issubclass(maker, roles):
        return maker if dataclasses.is_dataclass(maker) and maker.in_files else None
    marked = _FUNCTIONS.get(name)
    return marked if marked is not None and maker is marked and issubclass(_returned(marked), roles) else None


def _defined(module: str, name: str) -> object:
    """Return what an imported module defines under a name, or ``None``."""
    imported = sys.modules.get(module)
    return vars(imported).get(name) if isinstance(imported, ModuleType) else None


# Objects as plain values.


def _fields(item: object) -> Iterator[tuple[str, Any]] | None:
    """Return the names and values in a dataclass or mapping, else ``None``."""
    if isinstance(item, Mapping):
        return ((str(name), value) for name, value in item.items())
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return ((field.name, getattr(item, field.name)) for field in dataclasses.fields(item))
    return None


def readable_plain(item: object) -> Any:
    """Return an item for people to read, large arrays as their shapes."""
    if item is None or isinstance(item, bool | str | int | float):
        return item
    if (held := _fields(item)) is not None:
        return ({} if isinstance(item, Mapping) else {"type": type(item).__name__}) | {name: readable_plain(value) for name, value in held}
    if isinstance(item, tuple | list):
        return [readable_plain(value) for value in item]
    if isinstance(item, np.ndarray | np.generic | jax.Array):
        array = np.asarray(item)
        # Tables belong in the data and not in an attribute.
        return array.tolist() if array.size <= 64 else f"array {list(array.shape)} {array.dtype}"
    return name_of(item) if callable(item) else repr(item)


def to_plain(item: object, where: str = "it", *, given: bool = False) -> Any:
    """Return an item as :func:`from_plain` reads it.

    No field is ``None`` there, and the numbers of a list have one type. With ``given`` an object that a table made becomes that table
    again. Raises ``InvalidArgument``, which names the place by ``where``, on an item that no table can describe, such as a function.
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
    """Return plain values that are equal exactly when the items are.

    Arrays become their hash, classes the string ``name(cls)``. Raises ``InvalidArgument`` for an item that has no such values.
    """
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


def stable(item: object) -> Any:
    """Return exact values, whose classes may move within the package."""

    def name(kind: type) -> str:
        own = LOADED.get(kind.__module__)
        return _name(kind) + (f"@{own.digest}" if own else "")

    return exact(item, name)


def to_fields(item: Any, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass as :func:`from_fields` reads them."""
    return dict(as_given({name: value for name, value in _fields(item) or () if value is not None}, where))


def digest(plain: Plain) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def few_words(item: object) -> str:
    """Return a dataclass in a few words, such as ``Poisson(mean 15)``."""
    described = readable_plain(item) if dataclasses.is_dataclass(item) else {}
    numbers = [f"{name} {value:g}" for name, value in described.items() if isinstance(value, int | float) and not isinstance(value, bool)]
    return type(item).__name__ + (f"({', '.join(numbers)})" if numbers else "")


# Plain values as objects.


def from_plain(role: type[Role] | Sequence[type[Role]], table: object, where: str, word: str = "") -> Any:
    """Return the object of one of the roles that a table describes.

    Other values than tables stay as they are. Raises ``InvalidArgument`` on an unknown name or field, with the nearest known name, and on
    values that the object refuses. Messages name the place by ``where``, and an object of several roles by ``word``.
    """
    if not isinstance(table, Mapping):
        return table
    values, roles = dict(table), (role,) if isinstance(role, type) else tuple(role)
    word = word or word_of(roles[0])
    if "type" not in values:
        raise InvalidArgument(f'{where}: the table has no type; say which {word}, as in type = "{next(iter(makers(*roles)))}"')
    maker = _look_up(word, roles, values.pop("type"), where)
    fields = known_fields(maker, values, where, f"{maker.__name__} takes")
    arguments = {name: _value_of(name, fields[name].roles, fields[name].static, value, f"{where}.{name}") for name, value in values.items()}
    try:
        made = maker(**arguments)
        return remember(made, made_from={**table, "type": _name(maker)}) if isinstance(made, Role) else made
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidArgument(f"{where}: {maker.__name__} refuses {short(dict(table))}: {lacking(maker, arguments) or error}") from error


def from_fields(kind: type[T], table: object, where: str) -> T:
    """Return the ``kind`` whose fields are in a table, or raise ``InvalidArgument``."""
    values = dict(check_table(table, where))
    fields = known_fields(kind, values, where, f"{where} takes")
    for name, value in values.items():
        if issubclass(kind, Declared) and isinstance(value, list):
            values[name] = _value_of(name, (), fields[name].static, value, f"{where}.{name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidArgument(f"{where}: {lacking(kind, values) or error}") from error


def lacking(maker: Maker, given: ObjectTable) -> str:
    """Return in words the required arguments that a table lacks, if any."""
    needed = [name for name, one in inspect.signature(maker).parameters.items() if one.default is one.empty and one.kind != one.VAR_KEYWORD]
    missing = [name for name in needed if name not in given]
    return f"it lacks {', '.join(missing)}" if missing else ""


def from_value(value: object, where: str) -> Any:
    """Return a field's value, with tables as objects and lists as arrays."""
    return _value_of("value", (Role,), False, list(value) if isinstance(value, tuple) else value, where)


def check_table(table: object, where: str) -> ObjectTable:
    """Return a table, and raise ``InvalidArgument`` on any other value."""
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{where}: expected a table, got {short(table)}")
    return table


def known_fields(maker: Maker, table: ObjectTable, where: str, words: str) -> dict[str, Parameter]:
    """Return a maker's fields by name, or refuse others in the table."""
    fields = {parameter.name: parameter for parameter in parameters(maker)}
    for name in table:
        check_known(name, fields, f"{where}.{name}", words)
    return fields


def _look_up(word: str, roles: tuple[type[Role], ...], name: object, where: str) -> Maker:
    """Return the maker of a name, or raise with the nearest name."""
    if not isinstance(name, str):
        raise InvalidArgument(f"{where}.type: expected the name of a {word} as text, got {short(name)}")
    known = makers(*roles)
    maker = _imported(name, roles) if ":" in name else known.get(known.spelled(name))
    # The name may be of a class in a file that the command has named.
    if maker is None and ":" not in name:
        maker = next((found for module in LOADED if (found := _imported(f"{module}:{name}", roles)) is not None), None)
    if maker is not None:
        return maker
    words = f"{where}: there is no {word} {short(name)}"
    if ":" in name:
        way = f"import its module first{option_of('own', ', by {} ' + name.partition(':')[0] + '.py')}"
        raise InvalidArgument(f"{words} in the modules that have been imported; {way}")
    own = option_of("own", "; a class of your own comes by {} FILE.py")
    raise InvalidArgument(f"{words}{did_you_mean(name, known)}; known are {', '.join(known)}{own}")


def _value_of(word: str, roles: Sequence[type[Role]], is_static: bool, value: object, where: str) -> Any:
    """Return the value of one field, with tables of roles as objects.

    Lists of numbers become arrays, or tuples if the field is static. Any other table or list stays as it is, for the field's own check.
    """
    if isinstance(value, Mapping):
        return from_plain(roles, value, where, word) if roles else value
    if not isinstance(value, list):
        return value
    tables = any(isinstance(item, Mapping) for item in value)
    if is_static or tables:
        places = [f"{where}[{number}]" if tables else where for number in range(len(value))]
        return tuple(_value_of(word, roles, is_static, item, place) for item, place in zip(value, places, strict=True))
    try:
        array = np.asarray(value)
    except ValueError:
        return value
    # NumPy takes True for 1.0.
    mixed = array.dtype.kind != "b" and any(isinstance(leaf, bool) for leaf in leaves(value))
    return array if array.dtype.kind in "biuf" and not mixed else value
