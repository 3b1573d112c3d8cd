"""The only importer of `av`: opens files and network streams with FFmpeg, decodes them, turns frames into RGB."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import MissingDependencyError, SourceError
from edge.media.address import IS_UNKNOWN, OVER_TCP, Address, redact
from edge.media.probe import remedy_of_answer, remedy_of_refusal
from edge.types import ImageSize

__all__ = ["Decoder", "is_available", "load", "rgb_from_frame"]

_HINT = "pip install edge-deploy[pyav]"
_OPEN_S, _READ_S = 5.0, 4.0
_BARE_JPEGS = {"use_wallclock_as_timestamps": "1", "probesize": "65536", "analyzeduration": "200000"}
# Some cameras refuse to set up what is not to be read (ONVIF's backchannel).
_VIDEO_ONLY = {"allowed_media_types": "video"}
_REFUSALS = ("HTTPUnauthorizedError", "HTTPForbiddenError")

# ISO/IEC 23091-2 codes of the matrix -> swscale's; 0 and 2 say nothing, which means BT.601 (docs/adr/0009).
_BT601 = 5
_MATRICES = {1: 1, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9, 10: 9}
_LIMITED, _FULL = 1, 2
_CODECS = {"hevc": "h265", "mjpeg": "jpeg", "rawvideo": "raw"}
_RTP_CODECS = ("h264", "hevc", "mjpeg")
_MOST_REORDERED = 32  # pictures that a decoder may hold back
_loading = threading.Lock()


def is_available() -> bool:
    try:
        load()
    except MissingDependencyError:
        return False
    return True


def load() -> Any:
    """Return the module `av`. Raises `MissingDependencyError` if it is not installed."""
    try:
        with _loading:
            import av
    except ImportError as error:
        raise MissingDependencyError(f"PyAV is not importable: {error}", hint=_HINT) from error
    return av


class Decoder:
    """One pass over a stream, from its start or from now, by the thread that iterates.

    `stall_s`: a silence of the network that long is none yet.

    Attributes:
        errors: packets that could not be decoded; reading goes on after them.
        codec: by the name that GStreamer has for it, such as `h264`.
        is_bursty: it comes faster than it is to be shown: a playlist's segments, a recording behind a web address.
        period_ns: the time from one frame to the next, as the stream declares it.
    """

    def __init__(self, address: Address, *, stall_s: float = _READ_S) -> None:
        self._av = load()
        self._is_web_camera = address.scheme in ("http", "https") and not address.is_file_like
        self._read_s = max(_READ_S, stall_s + 1.0)
        self._address = address
        self.packets = self.errors = 0
        self._began_s = time.monotonic()
        try:
            self._container = self._opened()
        except self._av.error.FFmpegError as error:
            raise self._explained(error, is_opening=True) from error
        is_rtp = address.scheme in ("rtsp", "rtsps")
        self._stream = self._video(_RTP_CODECS if is_rtp else ())
        # Many streams on few cores: threads inside one decoder cost more than they give.
        context = self._stream.codec_context
        context.thread_count = 1
        self.codec: str = _CODECS.get(context.name, context.name)
        has_length = self._container.format.name.startswith("hls") or (self._container.size or 0) > 0
        self.is_bursty = self._is_web_camera and self.codec != "jpeg" and has_length
        # Frames without a clean start are given out and marked, so that they can be counted.
        context.flags = context.flags | self._av.codec.context.Flags.output_corrupt
        self._needs_key, self._is_starting = True, True
        self._is_split = False  # key frames come in parts
        self._is_parsed = is_rtp and context.name in ("h264", "hevc")
        self._last_ns: int | None = None
        self._arrivals: OrderedDict[int | None, int] = OrderedDict()  # PTS -> monotonic
        self.period_ns = round(1e9 / self._stream.average_rate) if self._stream.average_rate else 40_000_000

    def _opened(self) -> Any:
        """A web camera that announces its pictures wrongly is read all the same: they are found by themselves."""
        place, options = self._address.with_login, _options(self._address)
        timeout = None if self._address.scheme == "file" else (_OPEN_S, self._read_s)
        if self._address.scheme in ("rtsp", "rtsps"):
            with contextlib.suppress(self._av.error.HTTPOtherClientError):  # no video: what there is, is to be named
                return self._av.open(place, options=options | _VIDEO_ONLY, timeout=timeout)
        try:
            container = self._av.open(place, options=options, timeout=timeout)
            if not self._is_web_camera or container.format.name != "mpjpeg" or container.streams.video[0].width:
                return container
            container.close()
        except self._av.error.InvalidDataError:
            if not self._is_web_camera:
                raise
        return self._av.open(place, format="mjpeg", options=_BARE_JPEGS, timeout=timeout)

    def _video(self, codecs: tuple[str, ...]) -> Any:
        """Return the first video, where codecs are named the first of these."""
        found = []
        for stream in self._container.streams:
            name = stream.codec_context.name if stream.codec_context else "of an unknown codec"
            if stream.type == "video" and (not codecs or name in codecs):
                return stream
            found.append(f"{stream.type} {name}")
        self._container.close()
        only = f" that we read, only {', '.join(found)}" if found else ""
        problem = f"{self._address.shown}: there is no video in it{only}"
        raise SourceError(problem, is_permanent=self._address.is_file_like)

    def frames(self) -> Iterator[Any]:
        """Yield `av.VideoFrame`s in the order of their times. Raises `SourceError` when the stream breaks."""
        try:
            for packet in self._whole_pictures() if self._is_parsed else self._packets():
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
        for packet in self._container.demux(self._stream):
            self._note_arrival(packet)
            yield packet

    def _whole_pictures(self) -> Iterator[Any]:
        """Join what FFmpeg's parser cuts up: a key frame whose parts each begin with the parameter sets.

        GStreamer's payloader writes them so, with config-interval=-1 and an encoder of several slices. The first such
        picture is decoded anew; from then on a key frame waits for what comes next.
        """
        last = None
        for packet in self._packets():
            is_part = last is not None and last.is_keyframe and packet.pts == (last.pts or 0)
            if is_part:
                if not self._is_split:
                    self._is_split = True
                    self._stream.codec_context.flush_buffers()
                last = self._joined(last, packet)
                continue
            if last is not None and self._is_split and last.is_keyframe:
                yield last
            if not (self._is_split and packet.is_keyframe):
                yield packet
            last = packet

    def _joined(self, first: Any, second: Any) -> Any:
        joined = self._av.Packet(bytes(first) + bytes(second))
        joined.pts, joined.dts = second.pts, second.dts
        joined.time_base, joined.stream = second.time_base, second.stream
        joined.is_keyframe = True
        return joined

    def _note_arrival(self, packet: Any) -> None:
        self.packets += 1
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

    def end_read(self) -> None:
        """Let a read that waits for the network fail within 0.1 s; from any thread."""
        # PyAV has no call for it. Its container holds how long a read may take; FFmpeg asks for that all the time.
        words = type(self._container).__basicsize__ // ctypes.sizeof(ctypes.c_double)
        within = (ctypes.c_double * words).from_address(id(self._container))
        for index in range(words):
            if within[index] == self._read_s:
                within[index] = 0.0

    def close(self) -> None:
        """Not while another thread iterates."""
        self._container.close()

    def _explained(self, error: Exception, *, is_opening: bool) -> SourceError:
        # FFmpeg names the URL, with its password, in the text of the error: only its own words are taken.
        words = getattr(error, "strerror", None) or type(error).__name__
        if isinstance(error, self._av.error.ExitError) or (is_opening and self._is_out_of_time(error)):
            words = f"no answer for {_OPEN_S if is_opening else self._read_s:g} s"
        elif self._is_web_camera and getattr(error, "errno", None) == errno.EIO:
            words = "what the server sends ended without a picture in it"
        elif is_opening and self._address.scheme == "rtsp" and getattr(error, "errno", None) == errno.EPERM:
            words = "the camera ended the connection when it was asked to play; it may have too many viewers"
        kind = type(error).__name__
        hint = remedy_of_refusal(self._address) if kind in _REFUSALS else None
        if kind == "HTTPNotFoundError":
            hint = IS_UNKNOWN
        elif is_opening and getattr(error, "errno", None) == errno.EPROTONOSUPPORT:
            words, hint = "the camera does not send over TCP", OVER_TCP
        is_permanent = hint is not None or (is_opening and self._address.scheme == "file")
        if hint is None and kind.startswith("HTTP"):
            hint = remedy_of_answer(self._address)
        return SourceError(
            f"{self._address.shown}: {redact(str(words))}",
            hint=hint,
            is_permanent=is_permanent,
            wants_login=kind == "HTTPUnauthorizedError",
        )

    def _is_out_of_time(self, error: Exception) -> bool:
        """FFmpeg calls an RTSP answer that did not come in time invalid data."""
        is_rtsp, took_s = self._address.scheme == "rtsp", time.monotonic() - self._began_s
        return is_rtsp and isinstance(error, self._av.error.InvalidDataError) and took_s >= _OPEN_S


def turn_of(frame: Any) -> int:
    # Nine int32 of the machine, as in an MP4's track header (ISO/IEC 14496-12, 6.2.2); of a mirrored picture, how its
    # rows are turned.
    matrix = frame.side_data.get("DISPLAYMATRIX")
    a, b, *_ = (1, 0) if matrix is None else struct.unpack("=9i", bytes(matrix))
    return round(math.degrees(math.atan2(b, a))) % 360


def rgb_from_frame(frame: Any, size: ImageSize) -> NDArray[np.uint8]:
    """Return a decoded frame, scaled to `size`: uint8 (height, width, 3) RGB, rows padded; it owns its memory."""
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


def _options(address: Address) -> dict[str, str]:
    if address.scheme == "file":
        return {}
    # Without a limit FFmpeg looks at five seconds of a stream before it gives the first frame.
    limit = {} if address.is_file_like else {"analyzeduration": "1000000"}
    # No TLS of its own, whose certificates it does not check: where a camera sends us on to that, it ends.
    if address.scheme == "rtsp":
        return {**limit, "rtsp_transport": "tcp", "protocol_whitelist": "rtsp,rtp,tcp"}
    return {**limit, "protocol_whitelist": "http,tcp,crypto"}
