"""Clips that ask players to turn them, as phones write them: they are taken as coded, and said to be (ADR 9)."""

from __future__ import annotations

import logging

from edge.types import StreamId

__all__ = ["Sideways"]

_log = logging.getLogger(__name__)


class Sideways:
    """Rotation that a stream's file states: told once in the log.
    `turn_deg`: by how many degrees clockwise players turn it; None as long as nothing is said.
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
            "rotation of the clip is ignored stream=%s turn_deg=%d: "
            "turn the pictures themselves (ffmpeg -i CLIP UPRIGHT.mp4)",
            self._stream,
            turn_deg,
        )
