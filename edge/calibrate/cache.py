"""TensorRT's calibration cache, the text that its calibrators write and read.

    TRT-100300-EntropyCalibration2
    images: 3c010204
    /model.0/conv/Conv_output_0: 3eff0ee5

The digits are the bits of a float32, the scale; TensorRT writes 0 for zero, and eight for all others that it finds. A
name may hold colons, spaces and brackets; the last ": " ends it, and a line end every line, so that a file that was cut
is told from a whole one.
TensorRT throws a cache away, and then calibrates without data or fails, when its header names another major version or
another calibrator than the one in use; so both are stated when one is written.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.calibrate.files import read_text
from edge.errors import CalibrationError

__all__ = [
    "LEVELS",
    "CalibrationCache",
    "Scale",
    "cache_text",
    "parse_cache",
    "read_cache",
    "version_from_number",
    "version_to_number",
]

_HEADER = re.compile(r"TRT-(\d+)-([A-Za-z]\w*)")
_DIGITS = re.compile(r"0|[0-9a-fA-F]{8}")
_FIRST_WITHOUT_CALIBRATORS = 11
_FIRST_OF_FIVE_DIGITS = 100_000  # TensorRT 10.0.0; since then a major version is worth 10000, before 1000
LEVELS = 127
_HEX = re.compile(r"[0-9a-f]{8}")
_MAX_DIGITS = 9  # of a decimal that names each float32


@dataclass(frozen=True, slots=True)
class Scale:
    """A float32; `hex` is its 32-bit pattern, most significant byte first, lower case."""

    hex: str

    @staticmethod
    def is_hex(text: str) -> bool:
        """Return whether `text` can be a `hex`."""
        return _HEX.fullmatch(text) is not None

    @classmethod
    def from_amax(cls, amax: float) -> Scale:
        """Return amax / 127, rounded to float32; too large ones are infinite."""
        try:
            return cls(struct.pack(">f", amax / LEVELS).hex())
        except OverflowError:
            return cls("7f800000" if amax > 0 else "ff800000")

    @property
    def value(self) -> float:
        value: float = struct.unpack(">f", bytes.fromhex(self.hex))[0]
        return value

    @property
    def is_usable(self) -> bool:
        """Whether it is a finite number above zero."""
        return math.isfinite(self.value) and self.value > 0

    @property
    def amax(self) -> float:
        """127 times the scale: of the numbers that give the scale back, the one with the fewest digits."""
        exact = self.value * LEVELS  # exact in float64
        if not math.isfinite(exact):
            return exact
        decimals = (float(f"{exact:.{digits}g}") for digits in range(1, _MAX_DIGITS + 1))
        return next((short for short in decimals if Scale.from_amax(short) == self), exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationCache:
    """`tensorrt` is the version, as 10.3.0, and `calibrator` as the header has it; `scales` by tensor name."""

    tensorrt: str
    calibrator: str
    scales: Mapping[str, Scale]


def read_cache(path: Path) -> CalibrationCache:
    """Raise `CalibrationError` naming file and line, if it is no calibration cache or is damaged."""
    return parse_cache(read_text(path, expected="a TensorRT calibration cache"), str(path))


def parse_cache(text: str, where: str) -> CalibrationCache:
    """`where` names it in errors. Raises `CalibrationError` as `read_cache`."""
    header, *lines = text.split("\n")
    tensorrt, calibrator = _parsed_header(header.rstrip("\r"), where)
    _require_line_end(text, where)
    scales: dict[str, Scale] = {}
    first_in: dict[str, int] = {}
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        name, scale = _parsed_line(line.rstrip("\r"), f"{where}:{number}")
        if name in scales:
            raise CalibrationError(
                f'{where}:{number}: tensor "{name}" is given twice, first in line {first_in[name]}',
                hint="calibrate again; two files were joined, or names were cut",
            )
        scales[name], first_in[name] = scale, number
    if not scales:
        raise CalibrationError(f"{where}: a header and no tensor", hint="the calibration broke off; make it again")
    return CalibrationCache(tensorrt=tensorrt, calibrator=calibrator, scales=scales)


def cache_text(cache: CalibrationCache) -> str:
    """Return the file's content, one tensor per line, in the order of `scales`.
    Raises `CalibrationError` if a name cannot stand in a line, or the version is none, or one that reads no cache.
    """
    _require_reader(cache.tensorrt)
    header = f"TRT-{version_to_number(cache.tensorrt)}-{cache.calibrator}"
    if _HEADER.fullmatch(header) is None:
        raise CalibrationError(f'"{cache.calibrator}" is no name of a calibrator; use EntropyCalibration2')
    for name in cache.scales:
        if not name or name != name.strip("\r") or "\n" in name:
            raise CalibrationError(f"tensor {name!r} cannot be named in a calibration cache", hint="rename it")
    return "\n".join([header, *(f"{name}: {scale.hex}" for name, scale in cache.scales.items())]) + "\n"


def version_to_number(version: str) -> int:
    """Return the number that stands for a TensorRT version in the header: 8.6.1 is 8601, 10.3.0 is 100300.
    Raises `CalibrationError` if `version` is not of two or three numbers, or cannot be told from another one.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?", version)
    major, minor, patch = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    is_new = major >= 10
    if not 1 <= major <= 99 or max(minor, patch) > 99 or (not is_new and minor > 9):
        raise CalibrationError(f"{version!r} is no TensorRT version", hint="write it as 10.3.0")
    return major * (10_000 if is_new else 1000) + minor * 100 + patch


def version_from_number(number: int) -> str | None:
    """None where `version_to_number` makes no version into `number`."""
    if 1000 <= number < 10_000:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    if _FIRST_OF_FIVE_DIGITS <= number < 1_000_000:
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return None


def _require_reader(tensorrt: str) -> None:
    # "11" alone is no version as we write them, and is still asked for.
    if re.match(r"\d+", tensorrt) and int(tensorrt.partition(".")[0]) >= _FIRST_WITHOUT_CALIBRATORS:
        raise CalibrationError(
            f"TensorRT {tensorrt} reads no calibration cache: from 11 on it has no calibrators",
            hint="write a Q/DQ model for it: edge-deploy table qdq TABLE --model MODEL -o FILE",
        )


def _parsed_header(line: str, where: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(line)
    version = version_from_number(int(found.group(1))) if found else None
    if found is None or version is None:
        raise CalibrationError(
            f"{where}:1: expected a header such as TRT-100300-EntropyCalibration2, got {line[:60]!r}",
            hint="give the cache that a TensorRT calibrator has written",
        )
    return version, found.group(2)


def _require_line_end(text: str, where: str) -> None:
    *lines, rest = text.split("\n")
    if rest:
        raise CalibrationError(
            f"{where}:{len(lines) + 1}: expected a line end behind {rest[-60:]!r}, the file ends there",
            hint="it was cut short: copy or make it again; if it is as long as the original, end its last line",
        )


def _parsed_line(line: str, where: str) -> tuple[str, Scale]:
    name, separator, digits = line.rpartition(": ")
    if not name or not separator or _DIGITS.fullmatch(digits) is None:
        raise CalibrationError(
            f"{where}: expected NAME: and 8 hexadecimal digits or 0, got {line[-60:]!r}",
            hint="the file is damaged or was cut; copy or make it again",
        )
    return name, Scale(digits.lower().zfill(8))
