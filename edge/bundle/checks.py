"""Checks of signed documents: JSON of one spelling, and single fields, which raise `DeployError`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from edge.errors import DeployError
from edge.reading import UnfitJson, check_plain, json_object

__all__ = [
    "canonical",
    "check_between",
    "check_evidence",
    "check_names",
    "check_path",
    "check_text",
    "check_versions",
    "read_object",
    "read_time",
    "version_parts",
]

# Plain letters only: no separators, no control characters, no "..", nothing hidden, no two spellings of one name.
_PATH_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_MAX_PATH_PARTS = 4
_MOST_NAMES = 1024
_OWN_NAMES = ("manifest.json", "manifest.json.sig", "engine")  # the device's own entries in a release's folder
_CODES = {
    "json": "verify.manifest.json",
    "size": "verify.manifest.size",
    "depth": "verify.manifest.depth",
    "duplicate": "verify.manifest.duplicate",
}
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_TIME_SHAPE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")  # strptime alone is generous


def read_object(content: bytes, *, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in `content`, which is not trusted yet.

    DeployError `verify.manifest.` + size (over `max_bytes`), depth, duplicate (a key given twice), json for the rest.
    """
    with _typed():
        values = json_object(content, most_bytes=max_bytes)
        check_plain(values)
        return values


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return the one spelling of `values`: sorted keys, two spaces, a line feed at the end."""
    text = json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def check_evidence(where: str, values: object) -> None:
    """Pass if `values` are an object that JSON can carry."""
    if not isinstance(values, Mapping):
        raise DeployError("verify.manifest.field", f"the manifest's {where} is no object")
    with _typed():
        check_plain(values)


@contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        code = _CODES[error.kind if isinstance(error, UnfitJson) else "json"]
        raise DeployError(code, f"the manifest is unfit: {error}", hint="bundle it again") from None


def check_path(path: object) -> None:
    """Pass if `path` is relative, plain, and stays inside a release."""
    if not isinstance(path, str):
        raise DeployError("verify.manifest.path", f"a file's path is {path!r}, expected text")
    parts = path.split("/")
    if len(parts) > _MAX_PATH_PARTS or not all(_PATH_PART.fullmatch(part) for part in parts):
        raise DeployError(
            "verify.manifest.path",
            f"the path {path[:200]!r} is not usable; expected up to {_MAX_PATH_PARTS} names of letters, digits, '.', "
            "'_' and '-' with '/' between them, none of which starts with '.' or '-'",
        )
    if parts[0] in _OWN_NAMES:
        raise DeployError("verify.manifest.path", f"the path {path!r} is one that a release keeps for itself")


def check_text(where: str, value: object, pattern: str) -> None:
    """Pass if `value` is text that `pattern` matches as a whole."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise _field(where, value, f"text like {pattern}")


def check_names(where: str, values: object, pattern: str, *, least: int = 0) -> None:
    """Pass if `values` are at least `least` different texts that `pattern` matches."""
    if not isinstance(values, tuple) or not least <= len(values) <= _MOST_NAMES:
        raise _field(where, values, f"{least} to {_MOST_NAMES} names")
    for value in values:
        check_text(where, value, pattern)
    if len(set(values)) != len(values):
        raise DeployError("verify.manifest.duplicate", f"the manifest's {where} names one thing twice")


def check_between(where: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Pass if `value` is a finite number from `low` to `high`, both included."""
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
        raise _field(where, value, f"{'a whole number' if whole else 'a number'} from {low:g} to {high:g}")


def check_versions(where: str, bounds: object) -> None:
    """Pass if `bounds` are a lower and an upper version, each or both None, the lower one lower."""
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise _field(where, bounds, "a lower and an upper version")
    for bound in bounds:
        if bound is not None:
            check_text(where, bound, r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
    low, high = bounds
    if low is not None and high is not None and version_parts(low) >= version_parts(high):
        raise _field(where, bounds, "the upper version to be above the lower one")


def version_parts(text: str) -> tuple[int, ...]:
    """Return `36.4` as (36, 4, 0, 0), which compares as versions do; `text` is digits and dots."""
    parts = [int(part) for part in text.split(".")]
    return tuple(parts + [0] * (4 - len(parts)))


def read_time(where: str, text: object) -> datetime:
    """Return the time that `text` names in RFC 3339, UTC, whole seconds."""
    try:
        if not isinstance(text, str) or not _TIME_SHAPE.fullmatch(text):
            raise ValueError
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        raise _field(where, text, "a time like 2026-01-31T12:00:00Z") from None


def _field(where: str, value: object, expected: str) -> DeployError:
    got = repr(value)
    return DeployError(
        "verify.manifest.field", f"the manifest's {where} is {got[:200]}, expected {expected}", hint="bundle it again"
    )
