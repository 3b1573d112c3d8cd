"""Frozen dataclasses to plain JSON values and back, with nothing left unchecked.

A field is what its annotation says: `str`, `bool`, `int`, `float`, `tuple[X, ...]` (a JSON array), `Mapping[str, X]`,
another dataclass, an `Enum`, one of several, `X | None`, or `object` for plain JSON of any form. `Annotated[str,
Most(200)]` bounds a text, `Annotated[int, Most(10**6)]` a number, which then is not negative either.

Peers of one protocol number may be of different revisions of it. A field that was added later is `since(2, default)`.
The rules:

- A field that this side does not know is ignored if the peer is of a later revision, or the field is in `_GONE`, and an
  error otherwise.
- A field that is missing takes its default if the peer is older than the field, and is an error otherwise. Revision 0,
  the first one, left out whatever had a default.
- A request that needs a field which its peer is too old to know is not sent: what was asked for is never dropped.
"""

from __future__ import annotations

import enum
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

from edge.untrusted import cleaned

__all__ = ["Misfit", "Most", "decode", "decode_known", "encode", "newer_than", "since", "spelled"]

T = TypeVar("T")

_TEXT = 4096  # characters of a text that says nothing else
_WHOLE = 2**63 - 1  # the largest number that a counter of anything here can reach
_SHOWN = 60
_SAME = 2**31
_GONE = frozenset(("status.agent", "status.takes.reset_at"))  # what older peers still say, and no one reads


@dataclass(frozen=True, slots=True)
class Most:
    """The longest text, in characters, or the largest number; the smallest one is 0 then."""

    value: int


class Misfit(ValueError):  # noqa: N818 - the field's word for a value that does not fit
    """A value of another form than agreed on: its place (`status.health.age_s`), what was expected, what came."""

    def __init__(self, where: str, expected: str, got: str) -> None:
        super().__init__(f"{where}: expected {expected}, got {got}")
        self.where, self.expected, self.got = where, expected, got


def since(revision: int, default: Any = None, **options: Any) -> Any:
    """Return a field that peers know from this revision on, and what it is where an older one says nothing."""
    return field(default=default, metadata={"since": revision}, **options)


def spelled(name: str, **options: Any) -> Any:
    """Return a field that is called `name` in JSON, because Python has another use for the word."""
    return field(metadata={"name": name}, **options)


class _Shape(NamedTuple):
    name: str
    one: Field[Any]
    hint: Any
    since: int | None  # None: of the first revision

    @property
    def has_default(self) -> bool:
        return self.one.default is not MISSING or self.one.default_factory is not MISSING


def _shape(kind: Any) -> tuple[_Shape, ...]:
    return _shapes(kind)


@cache
def _shapes(kind: Any) -> tuple[_Shape, ...]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(
        _Shape(one.metadata.get("name", one.name), one, hints[one.name], one.metadata.get("since"))
        for one in fields(kind)
    )


def decode(kind: type[T], values: object, *, where: str, revision: int = _SAME, ours: int = _SAME) -> T:
    """Return the `kind` that `values`, as JSON gave them, stand for; texts are `cleaned`.

    Args:
        where: what the path of a field begins with.
        revision: of the peer; 0: what has a default may be missing. By default it is this software: nothing may.
        ours: the revision that this side is.

    Raises `Misfit` if they are not that.
    """
    decoded: T = _Decoder(revision, ours).value(kind, values, where)
    return decoded


def decode_known(kind: type[T], values: Mapping[str, object], *, where: str) -> T:
    """Return the `kind` in a file of other software: a name that is not known is left out, a default may be missing."""
    known = {shape.name for shape in _shape(kind)}
    told = {name: value for name, value in values.items() if name in known}
    return decode(kind, told, where=where, revision=0)


def encode(value: Any) -> Any:
    """Return the plain JSON values that stand for a dataclass."""
    if is_dataclass(value):
        return {shape.name: encode(getattr(value, shape.one.name)) for shape in _shape(type(value))}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): encode(inner) for key, inner in value.items()}
    return [encode(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def newer_than(value: Any, revision: int) -> list[str]:
    """Return the names of the fields that say something which a peer of this revision does not know."""
    later = [shape for shape in _shape(type(value)) if (shape.since or 0) > revision]
    return [shape.name for shape in later if getattr(value, shape.one.name) != shape.one.default]


class _Decoder:
    def __init__(self, revision: int, ours: int) -> None:
        self._revision, self._ours = revision, ours

    def value(self, hint: Any, value: object, where: str) -> Any:
        if hint is object:
            return _plain(value, where)
        if isinstance(hint, enum.EnumMeta):
            return _member(typing.cast(type[enum.Enum], hint), value, where)
        if is_dataclass(hint):
            return self._record(typing.cast(type, hint), value, where)
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return _bounded(inner[0], inner[1], value, where)
        if origin in (types.UnionType, typing.Union):
            return self._one_of(inner, value, where)
        if origin is tuple:
            return tuple(self.value(inner[0], one, f"{where}[{at}]") for at, one in enumerate(_list(value, where)))
        if origin is not None:  # Mapping[str, X]
            pairs = _object(value, where).items()
            return {cleaned(key): self.value(inner[1], one, f"{where}.{_short(key)}") for key, one in pairs}
        return _scalar(hint, value, where)

    def _record(self, kind: type, value: object, where: str) -> Any:
        values, shapes = _object(value, where), _shape(kind)
        if self._revision <= self._ours:
            for name in values.keys() - {shape.name for shape in shapes}:
                if f"{where}.{name}" not in _GONE:
                    raise Misfit(f"{where}.{_short(name)}", "nothing of this name", _told(values[name]))
        arguments = {}
        for shape in shapes:
            if shape.name in values:
                arguments[shape.one.name] = self.value(shape.hint, values[shape.name], f"{where}.{shape.name}")
            elif not (shape.has_default and self._revision < (shape.since or 1)):
                raise Misfit(f"{where}.{shape.name}", _spoken(shape.hint), "nothing")
        return kind(**arguments)

    def _one_of(self, hints: tuple[Any, ...], value: object, where: str) -> Any:
        # Where there may be none, agents of the first revision say `{}` as well.
        if type(None) in hints and (value is None or value == {}):
            return None
        real = [hint for hint in hints if hint is not type(None)]
        if len(real) > 1:
            names = set(_object(value, where))
            fitting = [hint for hint in real if names >= {one.name for one in _shape(hint) if not one.has_default}]
            real = [max(fitting or real, key=lambda hint: len(names & {one.name for one in _shape(hint)}))]
        return self.value(real[0], value, where)


def _member(kind: type[enum.Enum], value: object, where: str) -> enum.Enum:
    for one in kind:
        if one.value == value:
            return one
    raise Misfit(where, f"one of {', '.join(str(one.value) for one in kind)}", _told(value))


def _bounded(kind: type, most: Most, value: object, where: str) -> Any:
    if kind is str:
        return _text(value, where, most.value)
    number = _scalar(kind, value, where)
    if not 0 <= number <= most.value:
        raise Misfit(where, f"a number from 0 to {most.value}", _told(value))
    return number


def _scalar(kind: Any, value: object, where: str) -> Any:
    if kind is str:
        return _text(value, where, _TEXT)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _WHOLE:
        return value
    if kind is float and _is_number(value):
        return float(typing.cast(float, value))
    raise Misfit(where, _spoken(kind), _told(value))


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= _WHOLE if isinstance(value, int) else math.isfinite(value)


def _text(value: object, where: str, most: int) -> str:
    if not isinstance(value, str):
        raise Misfit(where, f"a text of at most {most} characters", _told(value))
    if len(value) > most:
        raise Misfit(where, f"a text of at most {most} characters", f"one of {len(value)}")
    return cleaned(value)


def _plain(value: object, where: str) -> object:
    if isinstance(value, dict):
        return {cleaned(key): _plain(one, f"{where}.{_short(key)}") for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, f"{where}[{at}]") for at, one in enumerate(value)]
    if isinstance(value, str):
        return cleaned(value)
    if value is None or isinstance(value, bool) or _is_number(value):
        return value
    raise Misfit(where, "a finite number", _told(value))


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise Misfit(where, "a list", _told(value))
    return value


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Misfit(where, "an object", _told(value))
    return value


def _short(name: str) -> str:
    return cleaned(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")


def _told(value: object) -> str:
    """Return what came, short, whatever its size: a number of thousands of digits is never written out."""
    if isinstance(value, str):
        return f"the text {_short(value)!r}"
    if isinstance(value, int) and abs(value) > _WHOLE:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return json.dumps(value)


def _spoken(hint: Any) -> str:
    """Return what an annotation asks for, as a person says it."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _spoken(typing.get_args(hint)[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_spoken(one) for one in typing.get_args(hint))
    words = {str: "a text", bool: "true or false", int: "a whole number", float: "a finite number"}
    return words.get(hint) or ("null" if hint is type(None) else "a list" if origin is tuple else "an object")
