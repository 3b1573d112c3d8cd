"""Plain values of a document as a typed struct; every misfit says file, line, key, what came, what is expected."""

from __future__ import annotations

import difflib
import re
from typing import TypeVar

import msgspec

from edge.document import Document, Location
from edge.errors import ConfigError

__all__ = ["convert", "split_location"]

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def convert(document: Document[ConfigError], struct: type[_Struct], *, see: str, at: Location = ()) -> _Struct:
    """Return the document, or what it has `at` a place, as `struct`; `see` is where all its keys are explained.

    Raises:
        ConfigError: if a key or a value does not fit.
    """
    try:
        return msgspec.convert(document.at(at), struct, strict=True)
    except msgspec.ValidationError as error:
        text, place = split_location(str(error))
        location = (*at, *place)
        unknown = re.search(r"unknown field `(.*)`", text)
        if unknown is None:
            raise document.error(location, _in_our_words(text, document.at(location), location, struct, see)) from None
        key = unknown.group(1)
        raise document.error((*location, key), _unknown_key(key, struct, see)) from None


def split_location(message: str) -> tuple[str, Location]:
    """Return what msgspec says, and where: it ends a message with " - at `$.streams[1].id`", or "`key` in `$...`"."""
    text, _, place = message.replace(" - at `key` in `$", " - at `$", 1).partition(" - at `$")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place)
    return text, tuple(int(index) if index else name for name, index in steps)


def _in_our_words(text: str, value: object, location: Location, struct: type[msgspec.Struct], see: str) -> str:
    missing = re.search(r"missing required field `(.*)`", text)
    if missing is not None:
        return f"{missing.group(1)!r} is missing; it has no default, add it"
    got = f"got {value!r}"
    if "matching regex" in text:
        keys = [step for step in location if isinstance(step, str)]
        return f"{got}, expected {_PATTERNS.get(keys[-1], _NAME)}"
    if "invalid enum value" in text.lower():
        return f"{got}, expected one of {', '.join(map(str, _choices(str(location[-1]), struct)))}"
    expected = re.match(r"Expected (.*?)(, got .*)?$", text)
    if expected is not None:
        return f"{got}, expected {expected.group(1).replace('`', '')}; see {see}"
    return f"{got}: {text}; see {see}"


_NAME = "1 to 32 of a-z, 0-9 and '-' (a topic level and a file name); rename it"
_PATTERNS = {
    "host": "a host name or an address alone; a port goes to the key 'port' beside it, a scheme nowhere",
    "user": "the name of a user on the device",
    "home_assistant": "true, false, or a discovery prefix such as 'homeassistant'",
    "compatible": "a device class such as 'jetson-orin'",
    "steps": "a share such as '10%', or a count",
    "max_failed": "a share such as '5%', or a count",
    "labels": "keys of 1 to 32 of a-z, 0-9 and '-'",
}


def _choices(key: str, struct: type[msgspec.Struct]) -> list[object]:
    parts = [part.get("properties", {}).get(key, {}) for part in msgspec.json.schema(struct)["$defs"].values()]
    listed = [choice.get("enum", ()) for part in parts for choice in (part, *part.get("anyOf", ()))]
    return [value for values in listed for value in values]


def _unknown_key(key: str, struct: type[msgspec.Struct], see: str) -> str:
    near = difflib.get_close_matches(key, _all_keys(struct), n=1)
    return f"unknown key; {'did you mean ' + repr(near[0]) if near else f'see {see} for all keys'}"


def _all_keys(struct: type[msgspec.Struct]) -> list[str]:
    schema = msgspec.json.schema(struct)
    return sorted({key for part in schema["$defs"].values() for key in part.get("properties", {})})
