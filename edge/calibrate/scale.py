"""The scale of one tensor as TensorRT keeps it: a float32, written as its eight hexadecimal digits."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

__all__ = ["LEVELS", "Scale"]

LEVELS = 127
_HEX = re.compile(r"[0-9a-f]{8}")
_MAX_DIGITS = 9  # of a decimal that names each float32


@dataclass(frozen=True, slots=True)
class Scale:
    """`hex` is the 32-bit pattern, most significant byte first, lower case."""

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
