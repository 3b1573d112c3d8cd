"""A JSON file whose every value remembers its line, and which takes no key twice."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge.calibrate.files import read_text
from edge.document import Document, Location, spell
from edge.errors import CalibrationError

__all__ = ["convert_value", "digest", "mapping", "not_finite", "read_json_document"]

T = TypeVar("T")

_MAX_DIGITS = 20  # 64 bits have no more
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def read_json_document(path: Path, *, expected: str) -> Document[CalibrationError]:
    """Return the JSON in `path`; `expected` says in errors what it should have been.

    Raises:
        CalibrationError: if it is unreadable, no JSON, or has a key twice.
    """
    text = read_text(path, expected=expected)
    try:
        content = json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise CalibrationError(
            f"{path}:{error.lineno}: expected {expected}, this is no JSON: {error.msg}", hint="copy or make it again"
        ) from None
    except ValueError as error:
        raise CalibrationError(f"{path}: expected {expected}, {error}") from None
    except RecursionError:
        raise CalibrationError(f"{path}: expected {expected}, this is nested too deep") from None
    lines = _lines(text, path)
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CalibrationError(
            f"{path}: expected {expected}, it has half a character (a lone \\ud800 to \\udfff)"
        ) from None
    return Document(path=path, content=content, lines=lines, misfit=CalibrationError)


def digest(value: object) -> str:
    """Return the SHA-256 of a value, as `Preprocess.sha256` does."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def mapping(document: Document[CalibrationError], location: Location) -> dict[str, Any]:
    """Return the object at `location`, which has to be in the file.

    Raises:
        CalibrationError: if it is something else.
    """
    value = document.at(location)
    if not isinstance(value, dict):
        raise document.error(location, f"expected an object, got {_shown(value)}")
    return value


def convert_value(document: Document[CalibrationError], value: object, kind: type[T], location: Location) -> T:
    """Return `value`, which stands at `location`, as a `kind`.

    Raises:
        CalibrationError: if it is none.
    """
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        steps = (int(index) if index else name for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place))
        raise _complaint(document, text, (*location, *steps)) from None


def not_finite(value: object, here: Location = ()) -> Iterator[Location]:
    """Yield where a value has a number that no double holds, or what Python adds to JSON: NaN, Infinity."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from not_finite(one, (*here, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from not_finite(one, (*here, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield here


def _complaint(document: Document[CalibrationError], text: str, location: Location) -> CalibrationError:
    missing = re.search(r"missing required field `(.*)`", text)
    unknown = re.search(r"unknown field `(.*)`", text)
    if missing is not None:
        return document.error(location, f"{missing.group(1)!r} is missing; it has no default")
    if unknown is not None:
        return document.error((*location, unknown.group(1)), "unknown key; remove it")
    expected = re.sub(r", got .*$", "", text).replace("`", "").removeprefix("Expected ")
    return document.error(location, f"got {_shown(document.at(location))}, expected {expected}")


def _lines(text: str, path: Path) -> dict[Location, int]:
    """Return the line of each value of a valid JSON text: that of its key, where it has one."""
    lines: dict[Location, int] = {(): 1}
    open_: list[Location] = []  # of the containers that we are in
    here: Location = ()
    line, seen, is_key = 1, 0, False
    for token in _TOKEN.finditer(text):
        line, seen = line + text.count("\n", seen, token.start()), token.start()
        match token.group():
            case "{" | "[" as bracket:
                lines.setdefault(here, line)
                open_.append(here)
                is_key = bracket == "{"
                here = here if is_key else (*here, 0)
            case "}" | "]":
                here, is_key = open_.pop(), False
            case ",":
                last = here[-1]
                is_key = isinstance(last, str)
                here = open_[-1] if is_key else (*open_[-1], int(last) + 1)
            case ":":
                is_key = False
            case string if is_key:
                here = (*open_[-1], json.loads(string))
                if here in lines:
                    raise CalibrationError(
                        f"{path}:{line}: {spell(here)}given twice, first in line {lines[here]}; keep one"
                    )
                lines[here] = line
            case _:
                lines.setdefault(here, line)
    return lines


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:  # Python refuses thousands of them, and takes seconds for some less
        raise ValueError(f"a whole number has {len(digits)} digits, {digits[:10]}...")
    return int(digits)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
