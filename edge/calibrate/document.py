"""A JSON file whose every value remembers its line, and which takes no key twice."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge.calibrate.files import read_text
from edge.errors import CalibrationError

__all__ = ["Document", "Location", "read_json"]

Location = tuple[str | int, ...]
T = TypeVar("T")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Plain values of a JSON file, and the line of each."""

    path: Path
    content: Any
    lines: Mapping[Location, int]

    @staticmethod
    def digest(value: object) -> str:
        """Return the SHA-256 of a value, as `Preprocess.sha256` does."""
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    def mapping(self, location: Location) -> dict[str, Any]:
        """Return the object at `location`, which has to be in the file.

        Raises:
            CalibrationError: if it is something else.
        """
        value = self._at(location)
        if not isinstance(value, dict):
            raise self.error(location, f"expected an object, got {_shown(value)}")
        return value

    def convert(self, value: object, kind: type[T], location: Location) -> T:
        """Return `value`, which stands at `location`, as a `kind`.

        Raises:
            CalibrationError: if it is none.
        """
        try:
            return msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `$")
            steps = (int(index) if index else name for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place))
            raise self._complaint(text, (*location, *steps)) from None

    def error(self, location: Location, problem: str) -> CalibrationError:
        """Return an error that points at `location`, or at its nearest parent that stands in the file."""
        known = location
        while known not in self.lines:
            known = known[:-1]
        return CalibrationError(f"{self.path}:{self.lines[known]}: {_spell(location)}{problem}")

    def _complaint(self, text: str, location: Location) -> CalibrationError:
        missing = re.search(r"missing required field `(.*)`", text)
        unknown = re.search(r"unknown field `(.*)`", text)
        if missing is not None:
            return self.error(location, f"{missing.group(1)!r} is missing; it has no default")
        if unknown is not None:
            return self.error((*location, unknown.group(1)), "unknown key; remove it")
        expected = re.sub(r", got .*$", "", text).replace("`", "").removeprefix("Expected ")
        return self.error(location, f"got {_shown(self._at(location))}, expected {expected}")

    def _at(self, location: Location) -> Any:
        value = self.content
        for step in location:
            value = value[step]
        return value


def read_json(path: Path, *, expected: str) -> Document:
    """Return the JSON in `path`; `expected` says in errors what it should have been.

    Raises:
        CalibrationError: if it is unreadable, no JSON, or has a key twice.
    """
    text = read_text(path, expected=expected)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise CalibrationError(
            f"{path}:{error.lineno}: expected {expected}, this is no JSON: {error.msg}", hint="copy or make it again"
        ) from None
    except RecursionError:
        raise CalibrationError(f"{path}: expected {expected}, this is nested too deep") from None
    lines = _lines(text, path)
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CalibrationError(
            f"{path}: expected {expected}, it has half a character (a lone \\ud800 to \\udfff)"
        ) from None
    return Document(path=path, content=content, lines=lines)


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
                        f"{path}:{line}: {_spell(here)}given twice, first in line {lines[here]}; keep one"
                    )
                lines[here] = line
            case _:
                lines.setdefault(here, line)
    return lines


def _spell(location: Location) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) or not step.isidentifier() else f".{step}" for step in location)
    return f"{text.lstrip('.')}: " if text else ""


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
