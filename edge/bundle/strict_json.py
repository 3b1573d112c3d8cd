"""JSON from someone whom we do not trust yet: small, flat, without duplicates, and nothing that Python adds to JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from edge.errors import DeployError

__all__ = ["canonical", "check_plain", "read_object"]

_MAX_DEPTH = 16
_MAX_DIGITS = 20  # of a number; Python's own int() takes seconds for a number of 100,000


def read_object(content: bytes, *, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in `content`.

    Raises:
        DeployError: `verify.manifest.size` if it is longer than `max_bytes`, `verify.manifest.depth` if it is nested
            more than 16 deep, `verify.manifest.duplicate` for a key given twice, `verify.manifest.json` for the rest.
    """
    if len(content) > max_bytes:
        raise DeployError(
            "verify.manifest.size",
            f"the manifest has {len(content)} bytes, at most {max_bytes} are read",
            hint="bundle it again with edge-deploy",
        )
    try:
        values = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise DeployError("verify.manifest.json", f"the manifest is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise DeployError("verify.manifest.json", f"the manifest is a JSON {type(values).__name__}, expected an object")
    check_plain(values)
    return values


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return the one spelling of `values`: sorted keys, two spaces, a line feed at the end."""
    text = json.dumps(values, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def check_plain(value: object) -> None:
    """Pass if `value` is made of what JSON can carry, at most 16 deep.

    Raises:
        DeployError: `verify.manifest.depth` or `verify.manifest.json`.
    """
    # Level by level, so that a deep value costs no recursion.
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise _too_deep()
        level = [inner for one in level for inner in _inside(one)]


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        return list(value)
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
        raise DeployError("verify.manifest.json", f"the manifest holds {value!r}, which JSON cannot carry")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise DeployError("verify.manifest.json", f"the manifest holds {value!r}, half a surrogate pair")
    return []


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DeployError("verify.manifest.duplicate", f"the manifest has the key {twice[:100]!r} twice")
    return values


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:_MAX_DIGITS]} is out of range")
    return value


def _too_deep() -> DeployError:
    return DeployError("verify.manifest.depth", f"the manifest is nested more than {_MAX_DEPTH} deep")
