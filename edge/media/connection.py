"""What connections by either decoder share: the way to a camera, what that costs, what is said of a clip."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from edge.config.schema import StreamConfig
from edge.errors import EndOfPicture, EndOfStream, SourceError
from edge.media.address import Address
from edge.media.flood import FloodWatch
from edge.media.threads import Effort
from edge.media.tunnel import Tunnel
from edge.types import StreamId

__all__ = ["Connection"]

_log = logging.getLogger(__name__)


class Connection:
    """One connection to a stream; the classes below it read and decode.

    Args:
        effort: of the thread that reads from the network.
        packets: changes with each packet of media.

    Attributes:
        is_live: frames come at their own pace, so that the newest one wins.
        turn_deg: by how many degrees clockwise players turn the clip, as phones write them: it is taken as coded, and
            said to be (docs/adr/0009). None as long as nothing is said.
    """

    def __init__(self, stream: StreamConfig, address: Address, *, effort: Effort, packets: Callable[[], int]) -> None:
        self._config = stream
        self.stream = StreamId(stream.id)
        self.is_live = stream.realtime or not address.is_file_like
        self.turn_deg: int | None = None
        self._address = address
        self._black = [mask.polygon for mask in stream.black]
        self._effort = effort
        self._floods = FloodWatch(effort, address, packets)
        self._tunnel: Tunnel | None = None
        self._closing = threading.Event()

    @property
    def fruitless_s(self) -> float:
        """CPU seconds that were spent on reading since the last frame was decoded."""
        return self._effort.fruitless_s

    @property
    def _reached(self) -> Address:
        """Where the library is led: to the camera, or into the tunnel to it."""
        return self._address if self._tunnel is None else self._tunnel.address

    def _is_flooded(self) -> bool:
        """Return whether a camera that has given no picture yet sends and sends; to be asked while none comes."""
        return not self._address.is_file_like and self._floods.is_flooded(self._reached)

    def _close_tunnel(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()

    def _end_after(self, decoded: int) -> SourceError:
        """Return what a stream has ended with, after so many frames."""
        shown, is_web = self._address.shown, self._address.scheme in ("http", "https")
        if self._address.is_file_like and decoded:
            return EndOfStream(f"{shown}: end of file")
        if self._address.is_file_like:
            return SourceError(f"{shown}: no frame could be decoded", is_permanent=True)
        if is_web and decoded == 1:
            return EndOfPicture(f"{shown}: the camera gives one picture for each request")
        if is_web and decoded == 0:
            return SourceError(f"{shown}: what the server sends ended without a picture in it")
        return SourceError(f"{shown}: the camera ended the stream")

    def _require_file(self) -> None:
        if self._address.is_missing:
            raise SourceError(f"{self._address.shown}: there is no such file", is_permanent=True)

    def _take_turn(self, turn_deg: int) -> None:
        """Take what the file says; the first word of a turn stands, and is logged once."""
        if self.turn_deg is not None or turn_deg == 0:
            return
        self.turn_deg = turn_deg
        _log.warning(
            "rotation of the clip is ignored stream=%s turn_deg=%d: "
            "turn the pictures themselves (ffmpeg -i CLIP UPRIGHT.mp4)",
            self.stream,
            turn_deg,
        )
