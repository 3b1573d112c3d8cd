"""The calibration table: largest absolute activations by tensor name, and where they come from.

scale = amax / 127, symmetric, int8, zero point 0. Whether ranges make sense is not checked here but in
`edge.calibrate.lint`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from edge.calibrate.cache import Scale
from edge.calibrate.files import read_text, write_bytes
from edge.document import Document, Location, spell
from edge.errors import CalibrationError
from edge.reading import json_value
from edge.version import __version__

__all__ = [
    "DARK",
    "FORMAT",
    "CalibrationTable",
    "DatasetId",
    "Evidence",
    "Imported",
    "MadeBy",
    "ModelId",
    "Objects",
    "TensorRange",
    "Variety",
    "block",
    "one_line",
    "read_table",
    "table_text",
    "write_table",
]


def one_line(value: object) -> str:
    """Return `value` as JSON; names stay readable, and there is no word for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def block(brackets: str, rows: Iterable[str]) -> str:
    """Return rows of JSON between `brackets`, {} or [], one per line."""
    body = ",\n  ".join(rows)
    return f"{brackets[0]}\n  {body}\n {brackets[1]}" if body else brackets


class ModelId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ONNX file that the tensors are of."""

    name: str
    sha256: str


DARK = 90  # of 255; a fifth of COCO's photos are darker, of a camera's frames by day none


class Objects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objects by class of the model, also of those with none.

    `by` the `labels` of all images of the folder, or by the `model`: sure detections on those that were held out.
    """

    by: Literal["labels", "model"]
    images: int
    counts: dict[str, int]


class Variety(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much the images that ranges come from differ."""

    images: int
    alike: int  # images that look like another one, the first of each aside
    dark: int  # images whose mean brightness is below `DARK`
    # mean brightness of images, 0 to 255: a tenth are below the first, half below the second, a tenth above the third
    brightness: tuple[int, int, int]
    # images by camera, where the names of all files tell; else empty
    cameras: dict[str, int] = msgspec.field(default_factory=dict)
    objects: Objects | None = None  # None where they were not counted


class DatasetId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The images that ranges come from; `variety` is None in older tables."""

    images: int
    sha256: str
    variety: Variety | None = None


class MadeBy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Software that found the ranges; `engine` is what exposed the activations."""

    edge: str = __version__
    engine: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How good INT8 with this table was, against float, 0 to 1; `uncertainty` is the standard error of the difference.

    It is None where no labels were given, or too few to tell, and in older tables. `unlabelled` are the images that had
    no labels, and counted as empty; `left_out` are files that could not be decoded; `notes` say what else was doubtful.
    """

    metric: str
    images: int
    float_: float = msgspec.field(name="float")
    int8: float
    int8_mac_share: float
    uncertainty: float | None = None
    unlabelled: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _leave_out_empty(self)

    @property
    def drop(self) -> float:
        """How much INT8 loses, in mAP points (hundredths)."""
        return 100 * (self.float_ - self.int8)


class Imported(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The calibration cache that the table was read from, so that the same one can be written again."""

    tensorrt: str
    calibrator: str


class TensorRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Largest absolute activation of one tensor, and how it was chosen.

    `scale_hex` is only there where amax / 127 does not give the scale of an imported cache to the bit (NaN).
    `means` are of its channels, where they were looked at: by them a Q/DQ model corrects the biases of what reads it.
    """

    amax: float
    method: str
    scale_hex: str | None = None
    means: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _leave_out_empty(self)

    @property
    def scale(self) -> Scale:
        """The float32 nearest to amax / 127."""
        return Scale(self.scale_hex) if self.scale_hex is not None else Scale.from_amax(self.amax)

    @property
    def is_usable(self) -> bool:
        return self.scale.is_usable


class CalibrationTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranges by tensor name, and where they come from; what is None was not known, as in an imported cache.

    `centred`: a Q/DQ model quantizes what has a lowest value, as SiLU has, around a centre (`edge.model.qdq.scales`);
    `padded`: so it does where a padded convolution reads it, too.
    `float_reasons` says of nodes in `keep_float` why they are there, where that is known.
    """

    model: ModelId | None
    preprocess: dict[str, Any] | None
    preprocess_sha256: str | None
    dataset: DatasetId | None
    method: str
    made_by: MadeBy
    tensors: Mapping[str, TensorRange]
    centred: bool = False
    padded: bool = False
    keep_float: tuple[str, ...] = ()
    float_reasons: Mapping[str, str] = msgspec.field(default_factory=dict)
    evidence: Evidence | None = None
    imported: Imported | None = None


T = TypeVar("T")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def read_json_document(path: Path, *, expected: str) -> Document[CalibrationError]:
    """`expected` says in errors what it should have been.
    Raises `CalibrationError` if it is unreadable, no JSON, or has a key twice.
    """
    text = read_text(path, expected=expected)
    try:
        content = json_value(text, is_finite=False, is_unique=False)
    except json.JSONDecodeError as error:
        raise CalibrationError(
            f"{path}:{error.lineno}: expected {expected}, this is no JSON: {error.msg}", hint="copy or make it again"
        ) from None
    except ValueError as error:
        raise CalibrationError(f"{path}: expected {expected}, {error}") from None
    lines = _lines(text, path)
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CalibrationError(
            f"{path}: expected {expected}, it has half a character (a lone \\ud800 to \\udfff)"
        ) from None
    return Document(path=path, content=content, lines=lines, misfit=CalibrationError)


def mapping(document: Document[CalibrationError], location: Location) -> dict[str, Any]:
    """Return the object at `location`, which has to be in the file. Raises CalibrationError if it is something else."""
    value = document.at(location)
    if not isinstance(value, dict):
        raise document.error(location, f"expected an object, got {_shown(value)}")
    return value


def convert_value(document: Document[CalibrationError], value: object, kind: type[T], location: Location) -> T:
    """Return `value`, which stands at `location`, as a `kind`. Raises `CalibrationError` if it is none."""
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


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


FORMAT = "edge.calib/1"
_NOT_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def read_table(path: Path) -> CalibrationTable:
    """Raise `CalibrationError` naming file, line and key, if it is unreadable, no JSON, or no table."""
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
    """Write the table, whole or not at all. Raises `CalibrationError` if it cannot be written."""
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


def _leave_out_empty(record: Evidence | TensorRange) -> None:
    # Only a default itself is left out of the file, and under Python 3.10 an empty tuple need not be the default's.
    for name in record.__struct_fields__:
        if getattr(record, name) == ():
            msgspec.structs.force_setattr(record, name, ())


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
    actual = hashlib.sha256(json.dumps(table.preprocess, sort_keys=True).encode()).hexdigest()  # Preprocess.sha256
    if actual != table.preprocess_sha256:
        raise document.error(
            ("preprocess_sha256",),
            f"got {table.preprocess_sha256!r}, but preprocess has {actual}; one was edited without the other",
        )
