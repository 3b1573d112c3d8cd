"""Plain values of a document as a typed struct; every misfit says file, line, key, what came, what is expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import date
from typing import Any, TypeVar

import msgspec

from edge.config.credentials import NOT_A_NAME
from edge.document import Document, Location
from edge.errors import ConfigError

__all__ = ["convert", "given_as"]

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def convert(document: Document[ConfigError], struct: type[_Struct], *, see: str, at: Location = ()) -> _Struct:
    """Return the document, or what it has `at` a place, as `struct`; `see` is where all its keys are explained.
    Raises `ConfigError` if a key or a value does not fit.
    """
    try:
        return msgspec.convert(document.at(at), struct, strict=True)
    except msgspec.ValidationError as error:
        text, place = _split_location(str(error))
        location = (*at, *place)
        unknown = re.search(r"unknown field `(.*)`", text)
        if unknown is None:
            raise document.error(location, _in_our_words(text, document.at(location), location, struct, see)) from None
        key = unknown.group(1)
        raise document.error((*location, key), _unknown_key(key, struct, see)) from None


def given_as(given: Mapping[str, object], struct: type[_Struct], *, spelled: str) -> _Struct:
    """Return what a caller or a command line has given as `struct`; None: default; `spelled` goes before a name.
    Raises `ConfigError` if a value does not fit.
    """
    values = {key: value for key, value in given.items() if value is not None}
    try:
        return msgspec.convert(values, struct)
    except msgspec.ValidationError as error:
        text, location = _split_location(str(error))
        value: object = values
        for step in location:
            value = value[step] if isinstance(value, dict) else value
        words = _in_our_words(text, value, location, struct, "the documentation")
        raise ConfigError(f"{spelled}{'.'.join(map(str, location))}: {words}") from None


def _split_location(message: str) -> tuple[str, Location]:
    """Return what msgspec says, and where: it ends a message with " - at `$.streams[1].id`", or "`key` in `$...`"."""
    text, _, place = message.replace(" - at `key` in `$", " - at `$", 1).partition(" - at `$")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place)
    return text, tuple(int(index) if index else name for name, index in steps)


def _in_our_words(text: str, value: object, location: Location, struct: type[msgspec.Struct], see: str) -> str:
    missing = re.search(r"missing required field `(.*)`", text)
    if missing is not None:
        return f"{missing.group(1)!r} is missing; it has no default, add it"
    if location[-1:] == ("credential",):
        return NOT_A_NAME
    got = f"got {value}" if isinstance(value, date) else f"got {value!r}"
    if "matching regex" in text:
        keys = [step for step in location if isinstance(step, str)]
        may_be_login = "@" in str(value) or (keys[-1:] == ["user"] and ":" in str(value))
        got = "got what may hold a password" if may_be_login else got
        is_web = str(value).startswith(("ws://", "wss://"))
        no_web = "; MQTT over WebSocket is not spoken, so name the broker's port for MQTT" if is_web else ""
        return f"{got}, expected {_PATTERNS.get(keys[-1], _NAME)}{no_web}"
    if "invalid enum value" in text.lower():
        return f"{got}, expected one of {', '.join(map(str, _choices(str(location[-1]), struct)))}"
    expected = re.match(r"Expected `(.*?)`(?: of length ([<>=]* ?\d+))?.*$", text)
    if expected is not None:
        is_unquoted = "str" in expected.group(1) and not isinstance(value, str | list | dict | None)
        todo = "put it in quotes" if is_unquoted else f"see {see}"
        return f"{got}, expected {_in_words(expected, location, struct)}; {todo}"
    return f"{got}: {text}; see {see}"


_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "a text",
    "bool": "true or false",
    "object": "keys with values",
    "array": "a list",
}
_LIMITS = {
    "exclusiveMinimum": "above {}",
    "minimum": "of at least {}",
    "exclusiveMaximum": "below {}",
    "maximum": "at most {}",
}
_COORDINATES = ("polygon", "start", "end")


def _in_words(expected: re.Match[str], location: Location, struct: type[msgspec.Struct]) -> str:
    kinds = expected.group(1).split(" | ")
    words = " or ".join(_KINDS.get(kind, kind) for kind in kinds if kind != "null")
    if expected.group(2) is not None:
        return f"{words} of {expected.group(2).replace('>= ', 'at least ').replace('<= ', 'at most ')}"
    if not {"float", "int"}.intersection(kinds):
        return words
    limits = _limits(location, struct)
    if (limits.get("minimum"), limits.get("maximum")) == (0, 1):
        where = next((step for step in reversed(location) if isinstance(step, str)), "")
        axis = f" of the {('width', 'height')[int(location[-1])]}" if where in _COORDINATES else ""
        return f"a share{axis}, 0 to 1"
    if {"minimum", "maximum"} <= limits.keys():
        return f"{words} from {limits['minimum']} to {limits['maximum']}"
    told = " and ".join(form.format(limits[key]) for key, form in _LIMITS.items() if key in limits)
    return f"{words} {told}".rstrip()


def _limits(location: Location, struct: type[msgspec.Struct]) -> dict[str, float]:
    """Return the limits of the number at a place, as JSON Schema names them."""
    names = [index for index, step in enumerate(location) if isinstance(step, str)]
    if not names:
        return {}
    parts = [dict(part) for part in _properties(str(location[names[-1]]), struct)]
    for _ in location[names[-1] + 1 :]:
        parts = [part["items"] for part in parts if "items" in part]
    found = [one for part in parts for one in (part, *part.get("anyOf", ()))]
    limits = [{key: one[key] for key in _LIMITS if key in one} for one in found]
    known = [one for one in limits if one]
    return known[0] if known and all(one == known[0] for one in known) else {}


_NAME = "1 to 32 of a-z, 0-9 and '-' (a topic level and a file name); rename it"
_PATTERNS = {
    "host": "a host name or an address alone; a port has a key or option of its own, a scheme has none",
    "fingerprint": "sha256: and 64 hexadecimal digits, of the certificate as it is sent (DER)",
    "user": "the name of a user on the device",
    "prefix": "topic levels without '+', '#', a leading '$' or an empty level, such as 'edge/v1'",
    "home_assistant": "true, false, or a discovery prefix such as 'homeassistant'",
    "compatible": "a device class such as 'jetson-orin'",
    "steps": "a share such as '10%', or a count",
    "max_failed": "a share such as '5%', or a count",
    "labels": "keys of 1 to 32 of a-z, 0-9 and '-'",
}


def _choices(key: str, struct: type[msgspec.Struct]) -> list[object]:
    parts = _properties(key, struct)
    listed = [choice.get("enum", ()) for part in parts for choice in (part, *part.get("anyOf", ()))]
    return [value for values in listed for value in values]


def _properties(key: str, struct: type[msgspec.Struct]) -> list[dict[str, Any]]:
    return [part.get("properties", {}).get(key, {}) for part in msgspec.json.schema(struct)["$defs"].values()]


def _unknown_key(key: str, struct: type[msgspec.Struct], see: str) -> str:
    parts = msgspec.json.schema(struct)["$defs"].values()
    keys = sorted({key for part in parts for key in part.get("properties", {})})
    if key in keys:
        return f"not a key of this place; {see} has where it belongs"
    near = difflib.get_close_matches(key, keys, n=1)
    return f"unknown key; {'did you mean ' + repr(near[0]) if near else f'see {see} for all keys'}"
