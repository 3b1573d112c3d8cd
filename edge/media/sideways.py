"""Clips that ask players to turn them, as phones write them: they are taken as coded, and said to be (ADR 3)."""

from __future__ import annotations

import logging
import math
import struct

from edge.types import StreamId

__all__ = ["Sideways", "turn_of_matrix", "turn_of_tag"]

_log = logging.getLogger(__name__)
_MATRIX = struct.Struct("=9i")


def turn_of_matrix(matrix: bytes) -> int:
    """Return by how many degrees clockwise a picture has to be turned, 0 to 359.

    Args:
        matrix: FFmpeg's AV_FRAME_DATA_DISPLAYMATRIX: nine int32 of the machine, as in an MP4's track header
            (ISO/IEC 14496-12, 6.2.2); of a mirrored picture, how its rows are turned.
    """
    a, b, *_ = _MATRIX.unpack(matrix)
    return round(math.degrees(math.atan2(b, a))) % 360


def turn_of_tag(orientation: str) -> int:
    """Return the same for GStreamer's tag `image-orientation`, such as `rotate-90` or `flip-rotate-0`."""
    degrees = orientation.rpartition("-")[2]
    return int(degrees) % 360 if degrees.isdecimal() else 0


class Sideways:
    """What a stream's file says of turning it: told once in the log.

    Attributes:
        turn_deg: by how many degrees clockwise players turn it; None as long as nothing is said.
    """

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self.turn_deg: int | None = None

    def take(self, turn_deg: int) -> None:
        """Take what the file says; the first word of a turn stands."""
        if self.turn_deg is not None or turn_deg == 0:
            return
        self.turn_deg = turn_deg
        _log.warning(
            "clip is inferred as it is coded, players turn it stream=%s turn_deg=%d: "
            "turn the pictures themselves (ffmpeg -i CLIP UPRIGHT.mp4)",
            self._stream,
            turn_deg,
        )
