"""Video of a pipeline's cameras: measured where they can be reached, stated or assumed where not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge.capacity.work import Origin, StreamDemand, Video, video_of
from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.deploy.new.side_by_side import Attempt, side_by_side
from edge.errors import ConfigError, EdgeError
from edge.media.address import parse_address
from edge.media.first_look import FirstLook, look_at

__all__ = ["cameras_of"]

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
