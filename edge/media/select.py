"""From a stream of the pipeline file to the source that reads it.

A first look at an unknown stream tells what it is coded in, how large, how fast, and has one picture of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.config.schema import StreamConfig
from edge.deadline import Deadline
from edge.errors import ConfigError, MissingDependencyError, SourceError
from edge.media.address import Address, parse_address, remedy_of
from edge.media.camera import Camera, StreamStatus
from edge.media.ffmpeg import binding as pyav
from edge.media.ffmpeg.source import PyavSource
from edge.media.gstreamer import binding as gst
from edge.media.gstreamer.build import NVMM_FACTORIES, SOFTWARE_FACTORIES, check_static_elements
from edge.media.gstreamer.source import GstSource
from edge.media.images import resize
from edge.media.probe import ProbeWatch, is_there, why_unreached
from edge.media.rate import Cap
from edge.media.threads import close_beside
from edge.media.tunnel import require_trust
from edge.protocols import FrameSource
from edge.types import Frame, FrameHeader, ImageSize, Preprocess, StreamId

__all__ = ["FirstLook", "choose_decoder", "look_at", "make_connection", "make_source", "require_decoder"]

_log = logging.getLogger(__name__)

_PYAV_SCHEMES = ("file", "rtsp", "rtsps", "http", "https")
_KEYFRAME_S = 12.0  # NVDEC waits for a key frame, and long groups of pictures are common
_FIRST_FRAME_S = 8.0


def make_source(
    stream: StreamConfig,
    *,
    preprocess: Preprocess,
    base_dir: Path,
    credential: Callable[[], tuple[str, str] | None] = lambda: None,
    on_status: Callable[[StreamStatus], None] | None = None,
    cap: Cap | None = None,
) -> FrameSource:
    """Return the source of a stream, with reconnection and `max_fps`; it is not open yet.

    Args:
        base_dir: folder of the pipeline file, which relative paths are relative to.
        credential: gives user and password of the camera; asked now, and for every connection.
        cap: of the stream, if it is live; may be changed at any time.

    Raises `ConfigError` if the address cannot be used, or not with the decoder that was asked for, or the credential;
    `MissingDependencyError` if nothing is installed that could read it.
    """
    login = CameraLogin(stream.id, credential)
    address = parse_address(stream.uri, base_dir=base_dir, credential=login.current(), tls=stream.tls)
    decoder = choose_decoder(stream, address)
    # Here and now: the threads that open their streams later would all do it at once, and report what is missing late.
    require_decoder(stream, address, decoder)

    def make() -> FrameSource:
        current = parse_address(stream.uri, base_dir=base_dir, credential=login.current(), tls=stream.tls)
        return make_connection(stream, current, decoder=decoder, preprocess=preprocess, cap=cap)

    def watch(is_refused: bool) -> ProbeWatch:
        return ProbeWatch(
            lambda: is_there(address, was_unknown=is_refused),
            name=stream.id,
            is_renewed=login.is_renewed,
            why=lambda: why_unreached(address),
        )

    return Camera(
        StreamId(stream.id),
        make,
        is_live=stream.realtime or not address.is_file_like,
        is_endless=not address.is_file_like,
        stall_s=stream.stall_s,
        first_frame_s=_KEYFRAME_S if decoder == "nvmm" else _FIRST_FRAME_S,
        watch=None if address.is_file_like else watch,
        on_status=on_status,
        max_fps=stream.max_fps,
        address=address.shown,
        remedy=remedy_of(address.scheme),
    )


def make_connection(
    stream: StreamConfig, address: Address, *, decoder: str, preprocess: Preprocess, cap: Cap | None = None
) -> GstSource | PyavSource:
    """Return one connection to a stream, by a `decoder` of `choose_decoder`: what breaks it, ends it."""
    if decoder == "pyav":
        return PyavSource(stream, address, preprocess=preprocess, cap=cap)
    return GstSource(stream, address, preprocess=preprocess, is_nvmm=decoder == "nvmm", cap=cap)


def require_decoder(stream: StreamConfig, address: Address, decoder: str) -> None:
    """Load what reads a stream. Raises `ConfigError` if the address has an option whose value cannot be used;
    `MissingDependencyError` if something is not installed.
    """
    require_trust(address)
    if decoder == "pyav":
        pyav.load()
    else:
        check_static_elements(stream, address, is_nvmm=decoder == "nvmm")


def choose_decoder(stream: StreamConfig, address: Address) -> str:
    """Return `nvmm`, `software` or `pyav`: what the stream asks for, or else the first that is installed.
    Raises `ConfigError` if PyAV was asked for a scheme that it does not read; `MissingDependencyError` if none is
    installed, or not the one that was asked for.
    """
    if stream.decoder == "pyav" and address.scheme not in _PYAV_SCHEMES:
        raise ConfigError(
            f"stream {stream.id}: decoder pyav reads {', '.join(_PYAV_SCHEMES)}, got {address.scheme}",
            hint="use decoder: software",
        )
    if stream.decoder == "nvmm" and not gst.has_factories(NVMM_FACTORIES):
        raise MissingDependencyError(
            f"stream {stream.id}: decoder nvmm needs GStreamer's {' and '.join(NVMM_FACTORIES)}", hint=gst.JETSON_HINT
        )
    if stream.decoder != "auto":
        return stream.decoder
    if gst.is_available():
        # The test pattern is drawn in system memory.
        if address.scheme != "test" and gst.has_factories(NVMM_FACTORIES):
            return "nvmm"
        if gst.has_factories(SOFTWARE_FACTORIES):
            return "software"
    if pyav.is_available() and address.scheme in _PYAV_SCHEMES:
        return "pyav"
    raise MissingDependencyError(
        f"stream {stream.id}: nothing is installed that reads {address.scheme}",
        hint="install GStreamer with its plugins (edge-runtime doctor tells which), or pip install edge-deploy[pyav]",
    )


class CameraLogin:
    """User and password of a camera, read again for every connection: passwords are changed while a service runs.

    Keeps what was read last where it cannot be read any more.

    `read`: gives user and password, or None for a camera without; called at once.

    Raises `ConfigError` if it cannot be read now.
    """

    def __init__(self, stream: str, read: Callable[[], tuple[str, str] | None]) -> None:
        self._stream = stream
        self._read = read
        self._used = read()

    def current(self) -> tuple[str, str] | None:
        try:
            self._used = self._read()
        except ConfigError as error:
            _log.warning("credential cannot be read, the last one is used stream=%s reason=%s", self._stream, error)
        return self._used

    def is_renewed(self) -> bool:
        """Return whether something else is there than was used last."""
        try:
            return self._read() != self._used
        except ConfigError:
            return False


LARGEST_PX = 1280  # of a picture's longer side: enough to draw zones on
_PREPROCESS = Preprocess(size=ImageSize(width=LARGEST_PX, height=LARGEST_PX))
_SLICE_S = 0.1
_RATE_NS = 2_000_000_000  # of a camera, or of a file's video, which the rate is counted over
_RATE_S = 4.0  # at most, for a camera that is slow
_MOST_FPS = 250.0
_UNEVEN = 0.1  # so far a busy machine may decode frames too late
_TEARDOWN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """Facts seen of a stream."""

    codec: str | None  # such as `h264`; None where the decoder does not tell
    size: ImageSize
    fps: float | None  # frames per second, counted; None where that cannot be
    is_slow: bool  # it goes on, with less than a frame a second
    # by how many degrees clockwise players turn it, which is not done here; None where nothing says so
    turn_deg: int | None
    picture: NDArray[np.uint8]  # its first frame, uint8 (H, W, 3) RGB, at most 1280 px long, its own memory


def look_at(
    stream: StreamConfig, address: Address, *, within_s: float, is_stopped: Callable[[], bool] = lambda: False
) -> FirstLook:
    """Connect once, and return what is seen.

    Args:
        address: of the stream, with its login if it has one.
        is_stopped: asked ten times a second; true: the answer is no longer waited for.

    Raises `SourceError` if there is no frame in time, or why there is none; `ConfigError` if the address has an option
    whose value cannot be used; `MissingDependencyError` if nothing is installed that could read it.
    """
    # A camera that sends a picture in five seconds is not asked anew between two of them.
    stream = msgspec.structs.replace(stream, stall_s=max(stream.stall_s, within_s))
    decoder = choose_decoder(stream, address)
    require_decoder(stream, address, decoder)
    source = make_connection(stream, address, decoder=decoder, preprocess=_PREPROCESS)
    try:
        source.open()
        first = _first_frame(source, address, within_s, is_stopped)
        picture = _picture(first)
        fps, is_slow = _rate(source, first.header, is_stopped)
        return FirstLook(
            codec=source.codec,
            size=first.header.source_size,
            fps=fps,
            is_slow=is_slow,
            turn_deg=source.turn_deg,
            picture=picture,
        )
    except SourceError as error:
        if error.hint is not None or address.is_file_like:
            raise
        if (why := why_unreached(address)) is not None:
            raise why from error
        raise SourceError(error.problem, hint=remedy_of(address.scheme), wants_login=error.wants_login) from error
    finally:
        close_beside(source, _TEARDOWN_S)


def _first_frame(
    source: GstSource | PyavSource, address: Address, within_s: float, is_stopped: Callable[[], bool]
) -> Frame:
    until = Deadline.after(within_s)
    while not until.is_over and not is_stopped():
        frame = source.read(min(_SLICE_S, until.left_s))
        if frame is not None:
            return frame
    raise SourceError(f"{address.shown}: no frame within {within_s:g} s")


def _rate(
    source: GstSource | PyavSource, first: FrameHeader, is_stopped: Callable[[], bool]
) -> tuple[float | None, bool]:
    """Return the rate of the latter half of two seconds that follow, as far as the stream goes on (None where frames
    are too few, or faster than any camera's), and whether it goes on with less than a frame a second.
    """
    until, seen, has_ended = Deadline.after(_RATE_S), [first], False

    def at_ns(header: FrameHeader) -> int:
        return header.read_at_ns if source.is_live else header.pts_ns

    while at_ns(seen[-1]) - at_ns(first) < _RATE_NS and not until.is_over and not is_stopped():
        try:
            frame = source.read(min(_SLICE_S, until.left_s))
        except SourceError:  # its end, too
            has_ended = True
            break
        if frame is not None:
            seen.append(frame.header)
    # Many a camera begins with a burst.
    half_ns, last = (at_ns(first) + at_ns(seen[-1])) / 2, seen[-1]
    begin = [header for header in seen if at_ns(header) <= half_ns][-1]
    span_ns, own_ns = at_ns(last) - at_ns(begin), last.pts_ns - begin.pts_ns
    if abs(own_ns - span_ns) < _UNEVEN * span_ns:  # a camera's own times are the even ones, where they are right
        span_ns = own_ns
    fps = 1e9 * (last.frame - begin.frame) / span_ns if span_ns > 0 else 0.0
    return (round(fps, 1) if 0 < fps < _MOST_FPS else None), not has_ended and fps < 1


def _picture(frame: Frame) -> NDArray[np.uint8]:
    """Return the frame, never larger than the camera made it."""
    source, fitted = frame.header.source_size, frame.letterbox.fitted
    image = resize(frame.image, source) if source.width < fitted.width else frame.image
    return np.array(image, order="C")
