"""Small images as files: drawn ones that differ, and the rarer kinds that real folders hold."""

import struct
from pathlib import Path

import cv2
import numpy as np


def draw(folder: Path, count: int, *, seed: int = 0, prefix: str = "") -> list[Path]:
    """Write `count` different PNG files of coloured rectangles, 80 x 60 pixels, and return their paths."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    paths = []
    for index in range(count):
        picture = np.full((60, 80, 3), random.integers(0, 256, 3), np.uint8)
        for left, top in random.integers(0, 50, (4, 2)).tolist():
            picture[top : top + 15, left : left + 20] = random.integers(0, 256, 3)
        paths.append(folder / f"{prefix}{index}.png")
        cv2.imwrite(str(paths[-1]), picture)
    return paths


def cmyk_jpeg(path: Path, cmyk: tuple[int, int, int, int]) -> Path:
    """Write a baseline JPEG of one colour in four components as Adobe's programs do, that is inverted.

    Source: ITU-T T.81, annexes B and F; only DC coefficients, all in codes of four bits.
    """
    side, blocks = 8 * 6, 6 * 6
    parts = b"".join(bytes((number, 0x11, 0)) for number in range(1, 5))
    bits = "".join(_first_block(8 * (255 - value - 128)) for value in cmyk) + "00000" * 4 * (blocks - 1)
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
    path.write_bytes(
        b"\xff\xd8"
        + _segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))
        + _segment(0xDB, b"\0" + bytes([1] * 64))
        + _segment(0xC0, struct.pack(">BHHB", 8, side, side, 4) + parts)
        + _segment(0xC4, b"\x00" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12)))
        + _segment(0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0")
        + _segment(0xDA, b"\x04" + b"".join(bytes((number, 0)) for number in range(1, 5)) + b"\0\x3f\0")
        + data
        + b"\xff\xd9"
    )
    return path


def _first_block(dc: int) -> str:
    """Return the code of a block whose DC differs by `dc` from 0, and of no AC; where it differs by 0, it is 00000."""
    size = abs(dc).bit_length()
    value = dc if dc >= 0 else dc + (1 << size) - 1
    return f"{size:04b}" + (f"{value:0{size}b}" if size else "") + "0"


def _segment(marker: int, content: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(content) + 2) + content
