"""Takes over the streams of the pipeline file while the service runs; everything else in it needs a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.protocols import FrameSource, Publisher
from edge.publish.message import RetainedBytes
from edge.publish.messages import InfoMessage
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.filters import StreamFilter
from edge.runtime.serve.following import Stages, make_followers
from edge.runtime.serve.publishing import announce
from edge.runtime.serve.streams import StreamMaker, stream_filters, terms_of
from edge.track.follow import Follower
from edge.types import StreamId

__all__ = ["Changes", "Reloader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of a reload: the service stops reading `removed`, and reads `sources`, new or changed ones."""

    removed: tuple[StreamId, ...]
    sources: tuple[FrameSource, ...]


@dataclass(slots=True)
class Reloader:
    """Reads the file again. Called by one thread; what it changes is read by others, entry by entry."""

    pipeline: Pipeline
    info: InfoMessage
    publisher: Publisher
    stages: Stages
    filters: dict[StreamId, StreamFilter]
    batcher: Batcher
    maker: StreamMaker

    def __call__(self) -> Changes:
        """Raises `EdgeError`, with nothing changed, if the file is unusable or more than its streams has changed."""
        new = load_pipeline(self.pipeline.path)
        self._require_only_streams(new)
        before = {stream.id: stream for stream in self.pipeline.config.streams}
        changed = [stream for stream in new.config.streams if before.get(stream.id) != stream]
        filters, followers = stream_filters(new, self.maker.spec), make_followers(new, self.info.labels)
        sources = tuple(self.maker.source(new, stream) for stream in changed)
        # From here on nothing fails.
        for stream, source in zip(changed, sources, strict=True):
            self.batcher.set_terms(source.stream, terms_of(stream))
            self._take_over(stream, filters, followers)
        gone = tuple(StreamId(name) for name in before if name not in {stream.id for stream in new.config.streams})
        for name in gone:
            self.stages.following.replace(name, None)
        if gone or sources:
            self.info = announce(new, self.info, self.publisher)
        for stream in changed:
            before_it = before.get(stream.id)
            if before_it is not None and before_it.tracking is not None and stream.tracking is None:
                self.publisher.publish(RetainedBytes(f"streams/{stream.id}/occupancy"))
        self.pipeline = new
        return Changes(removed=gone, sources=sources)

    def _require_only_streams(self, new: Pipeline) -> None:
        running = self.pipeline.config
        for field in msgspec.structs.fields(running):
            if field.name != "streams" and getattr(running, field.name) != getattr(new.config, field.name):
                raise new.error(
                    (field.encode_name,),
                    "has changed; a reload takes over streams only, restart the service for the rest",
                )

    def _take_over(
        self, config: StreamConfig, filters: Mapping[StreamId, StreamFilter], followers: Mapping[StreamId, Follower]
    ) -> None:
        stream = StreamId(config.id)
        if stream in filters:
            self.filters[stream] = filters[stream]
        else:
            self.filters.pop(stream, None)
        self.stages.begin(stream, followers.get(stream), config.classes or ())
        self.maker.states.add(stream)
