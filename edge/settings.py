"""Settings of a device, as root writes them: one `key = value` a line, of TOML, which Python 3.10 does not read."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from edge.codec import decode
from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["decode_settings_text", "read_settings_file"]

T = TypeVar("T")

_WHOLE = "settings"  # a word of the codec's, which stands nowhere in the file
_LINE = re.compile(r"([A-Za-z0-9_-]+)\s*=\s*(.+)")


def read_settings_file(kind: type[T], path: Path, *, hint: str) -> T:
    """DeployError as `decode_settings_text`; OSError, unless there is no such file."""
    try:
        # Root's folder: what is linked there, root has linked.
        text = read_file(path, follows_links=True).decode("utf-8-sig")
    except FileNotFoundError:
        raise _wrong(str(path), "there is no such file", hint) from None
    except UnicodeDecodeError as error:
        raise _wrong(str(path), f"expected UTF-8: {error}", hint) from None
    return decode_settings_text(kind, text, origin=str(path), hint=hint)


def decode_settings_text(kind: type[T], text: str, *, origin: str, hint: str) -> T:
    """Return a dataclass of texts, numbers and lists of texts, whose `__post_init__` raises ValueError where unfit.

    DeployError `device.settings` with `origin`, the line, what was expected and came; `hint` is what to do.
    """
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    lines: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where, match = f"{origin}:{number}", _LINE.fullmatch(line.strip())
        if match is None:
            raise _wrong(where, f"expected key = value, got {line.strip()[:80]!r}", hint)
        if match[1] not in known:
            raise _wrong(where, f"unknown key {match[1]!r}; known: {', '.join(known)}", hint)
        if match[1] in values:
            raise _wrong(where, f"{match[1]} is stated twice", hint)
        lines[match[1]] = where
        values[match[1]] = _value(match[2], where, hint)
    try:
        return decode(kind, values, where=_WHOLE, revision=0)
    except ValueError as error:
        told = str(error).removeprefix(f"{_WHOLE}.")
        raise _wrong(lines.get(re.split(r"\W", told)[0], origin), told, hint) from None


def _value(text: str, where: str, hint: str) -> Any:
    # Numbers, texts in double quotes and lists of them are written alike in TOML and in JSON.
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        raise _wrong(where, f'expected a number, a text in " or a list of texts, got {text[:80]}', hint) from None
    rest = text[end:].strip()
    if rest and not rest.startswith("#"):
        raise _wrong(where, f"expected nothing after the value, got {rest[:80]!r}", hint)
    return value


def _wrong(where: str, what: str, hint: str) -> DeployError:
    return DeployError("device.settings", f"{where}: {what}", hint=hint)
