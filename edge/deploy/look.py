"""Video of a pipeline's cameras: measured where they can be reached, stated or assumed where not.

Several are tried at once, each of which may hang: who waits has an answer for each in time, or is interrupted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from edge.capacity.work import Origin, StreamDemand, Video, video_of
from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.deadline import Deadline
from edge.errors import ConfigError, EdgeError, SourceError
from edge.media.address import parse_address
from edge.media.select import FirstLook, look_at
from edge.media.threads import join_or_remember

__all__ = [
    "Attempt",
    "cameras_of",
    "side_by_side",
]

T = TypeVar("T")
Attempt = Callable[[Callable[[], bool]], T]
"""Gets a function that tells whether anybody still waits; raises `EdgeError` where it fails."""

_AT_ONCE = 32
_GRACE_S = 0.5  # for what notices that it is no longer waited for


def side_by_side(attempts: Mapping[str, Attempt[T]], *, each_s: float) -> dict[str, T | EdgeError]:
    """Return each attempt's result by name, in their order; at most 32 run at once, each is given up after `each_s`."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in attempts:
        waiting.put(name)
    found: dict[str, T | EdgeError] = {}
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            found[name] = _outcome(attempts[name], stop.is_set)

    threads = [
        threading.Thread(target=work, name=f"attempt {number}", daemon=True)
        for number in range(min(_AT_ONCE, len(attempts)))
    ]
    until = Deadline.after(each_s * -(-len(attempts) // _AT_ONCE))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(until.left_s)
    finally:
        stop.set()
        grace = Deadline.after(_GRACE_S)
        for thread in threads:
            if thread.ident is not None:
                join_or_remember(thread, grace.left_s)
    return {name: found.get(name, SourceError(f"no answer within {each_s:g} s")) for name in attempts}


def _outcome(attempt: Attempt[T], is_stopped: Callable[[], bool]) -> T | EdgeError:
    try:
        return attempt(is_stopped)
    except EdgeError as error:
        return error
    except Exception as error:  # the border of a thread
        return SourceError(f"{type(error).__name__} while it was tried: {error}")


_RATE_S = 6.0  # for its rate, once it gives frames
_NOT_ASKED = "not looked at"


def cameras_of(
    pipeline: Pipeline, *, stated: Mapping[str, Video], assumed: Video, within_s: float | None
) -> tuple[StreamDemand, ...]:
    """Return the cameras in the pipeline's order; `stated` (by stream) are not looked at, those out of reach `assumed`.

    `within_s` is for the first frame of each; None: none is looked at. ConfigError for an unknown stream in `stated`.
    """
    streams = {stream.id: stream for stream in pipeline.config.streams}
    for name in stated:
        if name not in streams:
            raise ConfigError(f"stream {name!r}: the pipeline has none of that name, it has {', '.join(streams)}")
    unknown = {} if within_s is None else {name: one for name, one in streams.items() if name not in stated}
    attempts = {name: _attempt(pipeline, stream, within_s or 0.0) for name, stream in unknown.items()}
    seen = side_by_side(attempts, each_s=(within_s or 0.0) + _RATE_S)
    return tuple(_camera(stream, stated.get(name), seen.get(name), assumed) for name, stream in streams.items())


def _attempt(pipeline: Pipeline, stream: StreamConfig, within_s: float) -> Attempt[FirstLook]:
    index = pipeline.config.streams.index(stream)

    def attempt(is_stopped: Callable[[], bool]) -> FirstLook:
        login = pipeline.login_of_stream(index)
        pair = None if login is None else (login.user, login.password)
        address = parse_address(stream.uri, base_dir=pipeline.path.parent, credential=pair, tls=stream.tls)
        return look_at(stream, address, within_s=within_s, is_stopped=is_stopped)

    return attempt


def _camera(
    stream: StreamConfig, stated: Video | None, seen: FirstLook | EdgeError | None, assumed: Video
) -> StreamDemand:
    if stated is not None:
        return _of(stream, stated, Origin.STATED)
    if isinstance(seen, FirstLook):
        video = video_of(seen.size, seen.fps or assumed.fps, seen.codec)
        why = None if seen.fps is not None else f"it was seen, its rate was not: {assumed.fps:g} fps assumed"
        return _of(stream, video, Origin.SEEN, why)
    return _of(stream, assumed, Origin.ASSUMED, _NOT_ASKED if seen is None else str(seen))


def _of(stream: StreamConfig, video: Video, origin: Origin, why: str | None = None) -> StreamDemand:
    wanted_fps = video.fps if stream.max_fps is None else min(stream.max_fps, video.fps)
    return StreamDemand(id=stream.id, video=video, wanted_fps=wanted_fps, origin=origin, why=why)
