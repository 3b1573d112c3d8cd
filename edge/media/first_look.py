"""The first look at an unknown stream: what it is coded in, how large, how fast, and one picture of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.config.schema import StreamConfig
from edge.deadline import Deadline
from edge.errors import SourceError
from edge.media.address import Address, remedy_of
from edge.media.ffmpeg.source import PyavSource
from edge.media.gstreamer.source import GstSource
from edge.media.images import resize
from edge.media.probe import why_unreached
from edge.media.select import choose_decoder, make_connection, require_decoder
from edge.media.threads import close_beside
from edge.types import Frame, FrameHeader, ImageSize, Preprocess

__all__ = ["FirstLook", "look_at"]

LARGEST_PX = 1280  # of a picture's longer side: enough to draw zones on
_PREPROCESS = Preprocess(size=ImageSize(width=LARGEST_PX, height=LARGEST_PX))
_SLICE_S = 0.1
_RATE_NS = 2_000_000_000  # of video, which the rate is counted over
_RATE_S = 4.0  # at most, for a camera that is slow
_TEARDOWN_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """Facts seen of a stream."""

    codec: str | None  # such as `h264`; None where the decoder does not tell
    size: ImageSize
    fps: float | None  # frames per second, counted; None where there was one frame only
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
    decoder = choose_decoder(stream, address)
    require_decoder(stream, address, decoder)
    source = make_connection(stream, address, decoder=decoder, preprocess=_PREPROCESS)
    try:
        source.open()
        first = _first_frame(source, address, within_s, is_stopped)
        picture = _picture(first)
        return FirstLook(
            codec=source.codec,
            size=first.header.source_size,
            fps=_rate(source, first.header, is_stopped),
            turn_deg=source.turn_deg,
            picture=picture,
        )
    except SourceError as error:
        if error.hint is not None or address.is_file_like:
            raise
        why = why_unreached(address)
        problem = error.problem if why is None else f"{address.shown}: {why}"
        raise SourceError(problem, hint=remedy_of(address.scheme), wants_login=error.wants_login) from error
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


def _rate(source: GstSource | PyavSource, first: FrameHeader, is_stopped: Callable[[], bool]) -> float | None:
    """Return the usual rate within the two seconds that follow, as far as the stream goes on."""
    until, before, periods_ns = Deadline.after(_RATE_S), first, list[float]()
    while before.pts_ns - first.pts_ns < _RATE_NS and not until.is_over and not is_stopped():
        try:
            frame = source.read(min(_SLICE_S, until.left_s))
        except SourceError:  # its end, too
            break
        if frame is not None:
            periods_ns.append((frame.header.pts_ns - before.pts_ns) / (frame.header.frame - before.frame))
            before = frame.header
    # Of the latter half: GStreamer needs about a second to learn how fast a camera's clock goes.
    usual_ns = statistics.median(periods_ns[len(periods_ns) // 2 :]) if periods_ns else 0
    return round(1e9 / usual_ns, 1) if usual_ns > 0 else None


def _picture(frame: Frame) -> NDArray[np.uint8]:
    """Return the frame, never larger than the camera made it."""
    source, fitted = frame.header.source_size, frame.letterbox.fitted
    image = resize(frame.image, source) if source.width < fitted.width else frame.image
    return np.array(image, order="C")
