"""The calibration table on disk (`edge.calib/1`): read strictly, written so that a diff can be read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from edge.calibrate.files import write_bytes
from edge.calibrate.json_file import convert_value, digest, mapping, not_finite, read_json_document
from edge.calibrate.layout import block, one_line
from edge.calibrate.scale import Scale
from edge.calibrate.table import CalibrationTable, TensorRange
from edge.document import Document
from edge.errors import CalibrationError

__all__ = ["FORMAT", "read_table", "table_text", "write_table"]

FORMAT = "edge.calib/1"
_NOT_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def read_table(path: Path) -> CalibrationTable:
    """Return the table in `path`.

    Raises:
        CalibrationError: naming file, line and key, if it is unreadable, no JSON, or has another content than a table.
    """
    document = read_json_document(path, expected=f"a calibration table ({FORMAT})")
    content = dict(mapping(document, ()))
    found = content.pop("format", None)
    if found != FORMAT:
        where = ("format",) if "format" in document.content else ()
        raise document.error(where, f"expected {FORMAT!r}, got {found!r}; this is no table, or one of another version")
    for location in not_finite(content):
        if location[-1] != "amax":  # lint is to see those
            raise document.error(location, "expected a number that a double holds")
    if "tensors" not in content:
        raise document.error((), "'tensors' is missing; it has no default")
    ranges = {name: _range(document, name) for name in mapping(document, ("tensors",))}
    content["tensors"] = {}
    table = convert_value(document, content, CalibrationTable, ())
    _check_digest(table, document)
    return msgspec.structs.replace(table, tensors=ranges)


def write_table(path: Path, table: CalibrationTable) -> None:
    """Write the table, whole or not at all.

    Raises:
        CalibrationError: if it cannot be written.
    """
    write_bytes(path, table_text(table).encode())


def table_text(table: CalibrationTable) -> str:
    """Return the file's content: equal tables give equal bytes; one tensor per line, sorted by name."""
    content = {key: value for key, value in msgspec.to_builtins(table).items() if not _is_left_out(key, value)}
    lines = [f'"format": {json.dumps(FORMAT)}', *(f'"{key}": {text}' for key, text in _texts(table, content))]
    return "{" + ",\n ".join(lines) + "}\n"


def _texts(table: CalibrationTable, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        match key:
            case "tensors":
                rows = (f"{one_line(name)}: {one_line(_row(table.tensors[name]))}" for name in sorted(table.tensors))
                yield key, block("{}", rows)
            case "keep_float":
                yield key, block("[]", map(one_line, sorted(value)))
            case "float_reasons":
                yield key, block("{}", (f"{one_line(name)}: {one_line(value[name])}" for name in sorted(value)))
            case _:
                yield key, one_line(value)


def _is_left_out(key: str, value: object) -> bool:
    return (key == "imported" and value is None) or (
        key in ("centred", "padded", "keep_float", "float_reasons") and not value
    )


def _row(tensor: TensorRange) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(tensor)
    row["amax"] = tensor.amax if math.isfinite(tensor.amax) else str(tensor.amax)
    return row


def _range(document: Document[CalibrationError], name: str) -> TensorRange:
    location = ("tensors", name)
    row = dict(mapping(document, location))
    if row.get("amax") in _NOT_NUMBERS:  # JSON has no word for them; lint is to see them
        row["amax"] = _NOT_NUMBERS[row["amax"]]
    tensor = convert_value(document, row, TensorRange, location)
    if tensor.scale_hex is not None and not Scale.is_hex(tensor.scale_hex):
        raise document.error((*location, "scale_hex"), f"got {tensor.scale_hex!r}, expected 8 hexadecimal digits")
    return tensor


def _check_digest(table: CalibrationTable, document: Document[CalibrationError]) -> None:
    # Tables are edited by hand; a preprocess that was changed without its digest would be trusted as the old one.
    if table.preprocess is None and table.preprocess_sha256 is None:
        return
    actual = digest(table.preprocess)
    if actual != table.preprocess_sha256:
        raise document.error(
            ("preprocess_sha256",),
            f"got {table.preprocess_sha256!r}, but preprocess has {actual}; one was edited without the other",
        )
