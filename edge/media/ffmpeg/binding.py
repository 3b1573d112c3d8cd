"""The only importer of `av`: opens files and network streams with FFmpeg, decodes them, turns frames into RGB."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import numpy as np
from numpy.typing import NDArray

from edge.errors import MissingDependencyError, SourceError
from edge.media.address import Address, redact
from edge.media.remedy import IS_REFUSED, IS_UNKNOWN
from edge.media.sideways import turn_of_matrix
from edge.types import ImageSize

__all__ = ["Decoder", "is_available", "load", "rgb_from_frame"]

_HINT = "pip install edge-deploy[pyav]"
_OPEN_S, _READ_S = 5.0, 4.0
_SLICE_S = 1.0  # FFmpeg is not to be interrupted but by its own timeout: reads are cut, so that a stop is noticed
_REFUSALS = {
    "HTTPUnauthorizedError": IS_REFUSED,
    "HTTPForbiddenError": IS_REFUSED,
    "HTTPNotFoundError": IS_UNKNOWN,
}

# ISO/IEC 23091-2 codes of the matrix -> swscale's; 0 and 2 say nothing, which means BT.601 (docs/adr/0003-colour.md).
_BT601 = 5
_MATRICES = {1: 1, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9, 10: 9}
_LIMITED, _FULL = 1, 2
_CODECS = {"hevc": "h265", "mjpeg": "jpeg", "rawvideo": "raw"}
_MOST_REORDERED = 32  # pictures that a decoder may hold back
_loading = threading.Lock()


def is_available() -> bool:
    """Return whether PyAV can be used here at all."""
    try:
        load()
    except MissingDependencyError:
        return False
    return True


def load() -> Any:
    """Return the module `av`.

    Raises:
        MissingDependencyError: if it is not installed.
    """
    try:
        with _loading:
            import av
    except ImportError as error:
        raise MissingDependencyError(f"PyAV is not importable: {error}", hint=_HINT) from error
    return av


class Decoder:
    """One pass over a stream, from its start or from now, by the thread that iterates.

    Attributes:
        errors: packets that could not be decoded; reading goes on after them.
        codec: by the name that GStreamer has for it, such as `h264`.
        period_ns: the time from one frame to the next, as the stream declares it.
    """

    def __init__(self, address: Address, *, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._av = load()
        self._address = address
        self._is_stopped = is_stopped
        self.errors = 0
        try:
            self._container = self._av.open(_url(address), options=_options(address), timeout=_timeout(address))
        except self._av.error.FFmpegError as error:
            raise self._explained(error, is_opening=True) from error
        if not self._container.streams.video:
            raise SourceError(f"{address.shown}: there is no video in it", is_permanent=address.is_file_like)
        self._stream = self._container.streams.video[0]
        # Many streams on few cores: threads inside one decoder cost more than they give.
        context = self._stream.codec_context
        context.thread_count = 1
        self.codec: str = _CODECS.get(context.name, context.name)
        # Frames without a clean start are given out and marked, so that they can be counted.
        context.flags = context.flags | self._av.codec.context.Flags.output_corrupt
        self._needs_key, self._is_starting = True, True
        is_rtp = address.scheme in ("rtsp", "rtsps")
        self._is_parsed = is_rtp and context.name in ("h264", "hevc")
        self._last_ns: int | None = None
        self._arrivals: OrderedDict[int | None, int] = OrderedDict()  # PTS -> monotonic
        self.period_ns = round(1e9 / self._stream.average_rate) if self._stream.average_rate else 40_000_000

    def frames(self) -> Iterator[Any]:
        """Yield `av.VideoFrame`s in the order of their times.

        Raises:
            SourceError: when the stream breaks.
        """
        try:
            for packet in self._packets():
                yield from self._decoded(packet)
        except self._av.error.EOFError:
            return
        except self._av.error.FFmpegError as error:
            raise self._explained(error, is_opening=False) from error

    def arrived_ns(self, frame: Any) -> int:
        """Return when the data of a frame began to arrive, nanoseconds of the monotonic clock."""
        return self._arrivals.get(frame.pts, time.monotonic_ns())

    def is_clean(self, frame: Any) -> bool:
        """Return whether a frame, the next one in order, rests on nothing but clean frames since a key frame."""
        if frame.is_corrupt:
            self._needs_key = True
        elif frame.key_frame or self._is_starting:  # FFmpeg also recognises starts that no key frame announces
            self._needs_key = self._is_starting = False
        return not self._needs_key

    def _packets(self) -> Iterator[Any]:
        """Yield packets; go on after a cut read until the stream has been silent for too long, or is stopped."""
        heard = time.monotonic()
        while True:
            begun = time.monotonic()
            try:
                for packet in self._container.demux(self._stream):
                    heard = begun = time.monotonic()
                    self._note_arrival(packet)
                    yield packet
                return
            except self._av.error.ExitError:
                now = time.monotonic()
                # A read that fails at once is no cut one: the connection is spent.
                if self._is_stopped() or now - heard >= _READ_S or now - begun < _SLICE_S / 2:
                    raise

    def _note_arrival(self, packet: Any) -> None:
        now_ns = time.monotonic_ns()
        # FFmpeg's parser knows that a picture is complete when the next one begins: one picture late.
        self._arrivals[packet.pts] = self._last_ns if self._is_parsed and self._last_ns is not None else now_ns
        self._last_ns = now_ns
        if len(self._arrivals) > _MOST_REORDERED:
            self._arrivals.popitem(last=False)

    def _decoded(self, packet: Any) -> list[Any]:
        try:
            frames: list[Any] = packet.decode()
        except self._av.error.InvalidDataError:
            self.errors += 1
            self._needs_key = True
            return []
        self.errors += sum(frame.is_corrupt for frame in frames)
        return frames

    def close(self) -> None:
        """Free the decoder; not while another thread iterates."""
        self._container.close()

    def _explained(self, error: Exception, *, is_opening: bool) -> SourceError:
        # FFmpeg names the URL, with its password, in the text of the error: only its own words are taken.
        words = getattr(error, "strerror", None) or type(error).__name__
        if isinstance(error, self._av.error.ExitError):
            words = f"no answer for {_OPEN_S if is_opening else _READ_S:g} s"
        is_refusal = type(error).__name__ in _REFUSALS
        is_bad_file = is_opening and self._address.scheme == "file"
        return SourceError(
            f"{self._address.shown}: {redact(str(words))}",
            hint=_REFUSALS.get(type(error).__name__),
            is_permanent=is_refusal or is_bad_file,
            wants_login=type(error).__name__ == "HTTPUnauthorizedError",
        )


def turn_of(frame: Any) -> int:
    """Return by how many degrees clockwise a player would turn a frame, 0 to 359."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    return 0 if matrix is None else turn_of_matrix(bytes(matrix))


def rgb_from_frame(frame: Any, size: ImageSize) -> NDArray[np.uint8]:
    """Return a decoded frame, scaled to `size`.

    Returns:
        uint8 (height, width, 3) RGB, rows padded; it owns its memory.
    """
    full_range_formats = ("yuvj420p", "yuvj422p", "yuvj444p", "yuvj440p")
    is_full = frame.color_range == _FULL or frame.format.name in full_range_formats
    scaled = frame.reformat(
        width=size.width,
        height=size.height,
        format="rgb24",
        src_colorspace=_MATRICES.get(int(frame.colorspace), _BT601),
        src_color_range=_FULL if is_full else _LIMITED,
        interpolation="BILINEAR",
    )
    plane = scaled.planes[0]
    rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    return rows[: size.height, : size.width * 3].reshape(size.height, size.width, 3)


def _url(address: Address) -> str:
    """FFmpeg takes user and password in the URL only."""
    if address.credential is None:
        return address.location
    parts = urlsplit(address.location)
    user, password = (quote(text, safe="") for text in address.credential)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc}"))


def _options(address: Address) -> dict[str, str]:
    if address.scheme in ("rtsp", "rtsps"):
        # Without a limit FFmpeg looks at five seconds of a stream before it gives the first frame.
        return {"rtsp_transport": "tcp", "analyzeduration": "1000000"}
    return {}


def _timeout(address: Address) -> tuple[float, float] | None:
    if address.scheme == "file":
        return None
    # Only RTSP can be read on after a cut: FFmpeg remembers an HTTP connection's error.
    return _OPEN_S, _SLICE_S if address.scheme in ("rtsp", "rtsps") else _READ_S
