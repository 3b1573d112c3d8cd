"""Tells the coded pictures that no other picture refers to: without them, all others decode as they would with them.

Source: ITU-T H.264, 7.3.1, 7.4.1 and table 7-1 (`nal_ref_idc` is 0 in all slices of a picture, or in none); H.265,
7.3.1.2, 7.3.2.2 and table 7-1 (sub-layer non-reference pictures: only those of higher sub-layers may refer to them);
ISO/IEC 14496-15 for units behind their length, and for what `avcC` and `hvcC` hold.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Disposable"]

_START = b"\x00\x00\x01"
_H264_SLICES, _H264_NON_IDR = range(1, 6), (1, 2)
_H265_VIDEO, _H265_NON_REFERENCE, _H265_SPS = range(32), range(0, 15, 2), 33
_AVCC_LENGTH, _HVCC_LENGTH = 4, 21


class Disposable:
    """One H.264 or H.265 stream of progressive pictures, in order.

    Args:
        codec: `h264` or `h265`.
        codec_data: `avcC` or `hvcC` where each unit stands behind its length; None: behind a start code.
    """

    def __init__(self, codec: str, codec_data: bytes | None) -> None:
        self._is_h264 = codec == "h264"
        self._length_bytes: int | None = None
        self._highest_layer: int | None = None  # of H.265; not known before a parameter set has told
        at = _AVCC_LENGTH if self._is_h264 else _HVCC_LENGTH
        if codec_data is not None and len(codec_data) > at:
            self._length_bytes = (codec_data[at] & 3) + 1
            layers = 0 if self._is_h264 else codec_data[at] >> 3 & 7
            self._highest_layer = layers - 1 if layers else None

    def takes(self, picture: bytes) -> bool | None:
        """Return whether a picture may be left out; None if what is given of it does not reach to its first slice.

        Args:
            picture: its units, from the first one on; need not be whole.
        """
        for unit in self._units(picture):
            found = self._h264(unit) if self._is_h264 else self._h265(unit)
            if found is not None:
                return found
        return None

    def _h264(self, unit: bytes) -> bool | None:
        kind, reference = unit[0] & 0x1F, unit[0] >> 5 & 3
        return kind in _H264_NON_IDR and not reference if kind in _H264_SLICES else None

    def _h265(self, unit: bytes) -> bool | None:
        kind = unit[0] >> 1 & 0x3F
        if kind == _H265_SPS:
            self._highest_layer = unit[2] >> 1 & 7
        if kind not in _H265_VIDEO:
            return None
        layer, other_layers = (unit[1] & 7) - 1, (unit[0] & 1) << 5 | unit[1] >> 3
        return kind in _H265_NON_REFERENCE and not other_layers and layer == self._highest_layer

    def _units(self, picture: bytes) -> Iterator[bytes]:
        """Yield the first three bytes of each unit."""
        at = 0
        while True:
            if self._length_bytes is None:
                at = picture.find(_START, at) + len(_START)
                if at < len(_START):
                    return
                yield from _head(picture, at)
            else:
                begin = at + self._length_bytes
                yield from _head(picture, begin)
                if begin >= len(picture):
                    return
                at = begin + int.from_bytes(picture[at:begin], "big")


def _head(picture: bytes, at: int) -> Iterator[bytes]:
    head = picture[at : at + 3]
    if len(head) == 3:
        yield head
