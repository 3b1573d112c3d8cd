"""How large a still image says that it is, read from its first bytes: before a decoder spends memory on it.

Source: the PNG specification (IHDR), ITU-T T.81 (SOF markers), the WebP container and VP8/VP8L bitstreams (RFC 9649),
BITMAPINFOHEADER, TIFF 6.0.
"""

from __future__ import annotations

import struct

__all__ = ["stated_size"]

_NO_FRAME = frozenset((0xC4, 0xC8, 0xCC))  # DHT, JPG, DAC among the SOF markers
_MAX_MARKERS = 10_000
_TIFF_SIZES = {3: "H", 4: "I"}


def stated_size(content: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels; None where the format is none of ours, or its header is cut short."""
    try:
        return _stated(content)
    except (struct.error, IndexError):
        return None


def _stated(content: bytes) -> tuple[int, int] | None:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack_from(">II", content, 16)
        return width, height
    if content.startswith(b"\xff\xd8"):
        return _jpeg(content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _webp(content)
    if content.startswith(b"BM"):
        return _bmp(content)
    if content[:4] in (b"II*\0", b"MM\0*"):
        return _tiff(content)
    return None


def _jpeg(content: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MAX_MARKERS):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:  # a byte to fill up
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return width, height
        else:
            at += 2 + struct.unpack_from(">H", content, at + 2)[0]
    return None


def _webp(content: bytes) -> tuple[int, int] | None:
    kind = content[12:16]
    if kind == b"VP8X":
        return (
            1 + int.from_bytes(content[24:27], "little"),
            1 + int.from_bytes(content[27:30], "little"),
        )
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", content, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", content, 26)
    return width & 0x3FFF, height & 0x3FFF


def _bmp(content: bytes) -> tuple[int, int]:
    if struct.unpack_from("<I", content, 14)[0] == 12:  # BITMAPCOREHEADER
        width, height = struct.unpack_from("<HH", content, 18)
        return width, height
    width, height = struct.unpack_from("<ii", content, 18)
    return abs(width), abs(height)


def _tiff(content: bytes) -> tuple[int, int] | None:
    order = "<" if content[:1] == b"I" else ">"
    at = struct.unpack_from(order + "I", content, 4)[0]
    sizes: dict[int, int] = {}
    for entry in range(struct.unpack_from(order + "H", content, at)[0]):
        tag, kind = struct.unpack_from(order + "HH", content, at + 2 + 12 * entry)
        if tag in (256, 257) and kind in _TIFF_SIZES:
            sizes[tag] = struct.unpack_from(order + _TIFF_SIZES[kind], content, at + 10 + 12 * entry)[0]
    return (sizes[256], sizes[257]) if len(sizes) == 2 else None
