"""Makes the parts of a pipeline from its file: model, engine, sources, publishers.

Takes over the streams of the file while the service runs; everything else in it needs a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edge.config.pipeline import Pipeline, load_pipeline
from edge.config.schema import StreamConfig
from edge.engine.kind import RacingKind, load_kind
from edge.engine.section import detector_of, read_model
from edge.protocols import Engine, Publisher
from edge.publish.events import EventPublisher
from edge.publish.frames import FramePublisher, Selection
from edge.publish.message import RetainedBytes
from edge.publish.messages import InfoMessage
from edge.runtime.look.pictures import Annotator, PicturePublisher, Pictures
from edge.runtime.look.server import Shown, StatusServer, places_of
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.pipeline.loop import Inference, StreamFilter
from edge.runtime.serve.engine import Deployed, Running, start_engine
from edge.runtime.serve.following import Following, Stages, make_counting, make_followers
from edge.runtime.serve.publishing import LastLook, LastSwitchPublisher, announce, birth_message, make_publisher
from edge.runtime.serve.service import Changes, PipelineParts
from edge.runtime.serve.streams import StreamMaker, StreamStates, stated_rates, stream_filters, terms_of
from edge.track.follow import Follower
from edge.types import ModelSpec, StreamId

__all__ = ["build_parts"]


def build_parts(
    pipeline: Pipeline,
    *,
    deployed: Deployed | None = None,
    annotate_dir: Path | None = None,
    annotate_every_s: float = 1.0,
    frames_dir: Path | None = None,
    socket_path: Path | None = None,
) -> PipelineParts:
    """Return the parts of `pipeline`, ready to run. Raises `EdgeError` if something that it names cannot be used.

    Args:
        deployed: of a release, what is run of it; None: what the pipeline says is prepared here and now.
        annotate_dir, frames_dir: folders for a frame per stream and `annotate_every_s`, with boxes and as it is.
        socket_path: where the status page is served; None: nowhere.
    """
    config, spec = pipeline.config, read_model(pipeline)
    filters, followers = stream_filters(pipeline, spec), make_followers(pipeline, spec.labels)
    running = start_engine(pipeline, spec, deployed)
    info = birth_message(pipeline, spec, running, deployed)
    publisher = make_publisher(pipeline, info)
    selection = Selection(config.publish.mode, heartbeat_s=config.publish.heartbeat_s)
    frames = FramePublisher(publisher, info.run_info, selection)
    following = Following(followers, EventPublisher(publisher, info.run_info))
    stages = Stages(following, make_counting(pipeline, publisher, info))
    states = StreamStates(_ids(pipeline), publisher, device=info.device, on_change=stages.change)
    batcher = _batcher(pipeline, running.engine, counters := FrameCounters())
    maker = StreamMaker(spec, states)
    reload = None if deployed else Reloader(pipeline, info, publisher, stages, filters, batcher, maker)
    what_runs: Callable[[], Pipeline] = (lambda: pipeline) if reload is None else (lambda: reload.pipeline)
    shown = _shown(deployed, publisher, info, what_runs, counters=counters, states=states, stages=stages)
    return PipelineParts(
        name=pipeline.path.stem,
        precision=running.precision,
        sources=[maker.source(pipeline, stream) for stream in config.streams],
        inference=Inference(
            engine=running.engine,
            detector=detector_of(pipeline, spec),
            filters=filters,
            on_results=lambda results: stages.take(results, frames.publish),
            onlookers=[shown.pictures, *_annotators(spec, annotate_dir, frames_dir, every_s=annotate_every_s)],
        ),
        batcher=batcher,
        counters=counters,
        publisher=publisher,
        states=states,
        orders=maker.orders,
        overload=config.overload,
        stated_fps=stated_rates(pipeline),
        build_runs=_build_runs(running, deployed),
        stages=stages,
        tellers=[
            teller.tick
            for teller in (shown.last_switch, shown.last_look, _picture_publisher(shown.pictures, publisher, what_runs))
            if teller is not None
        ],
        reload=reload,
        status=StatusServer(shown, config.http, socket_path=socket_path),
    )


def _shown(
    deployed: Deployed | None,
    publisher: Publisher,
    info: InfoMessage,
    what_runs: Callable[[], Pipeline],
    *,
    counters: FrameCounters,
    states: StreamStates,
    stages: Stages,
) -> Shown:
    last_switch = last_look = None
    if deployed is not None:
        last_switch = LastSwitchPublisher(publisher, deployed.layout, device=info.device)
        last_look = LastLook(publisher, deployed.layout, device=info.device)
    return Shown(
        info=info,
        counters=counters,
        states=states,
        pictures=Pictures(labels=info.labels),
        places=lambda: places_of(what_runs()),
        recent_events=lambda: stages.following.recent_events,
        last_switch=last_switch,
        last_look=last_look,
    )


def _picture_publisher(
    pictures: Pictures, publisher: Publisher, what_runs: Callable[[], Pipeline]
) -> PicturePublisher | None:
    config = what_runs().config
    if config.publish.pictures_s is None or config.mqtt is None:
        return None
    return PicturePublisher(pictures, publisher, streams=lambda: _ids(what_runs()), every_s=config.publish.pictures_s)


def _build_runs(running: Running, deployed: Deployed | None) -> Callable[[], bool]:
    """Return whether a build runs whose timings the engine that serves would spoil."""
    if deployed is None or not isinstance(load_kind(running.kind), RacingKind):
        return lambda: False
    return deployed.layout.build_progress.parent.exists  # the unit's own folder, which goes with it


def _ids(pipeline: Pipeline) -> list[StreamId]:
    return [StreamId(stream.id) for stream in pipeline.config.streams]


def _annotators(spec: ModelSpec, boxed: Path | None, plain: Path | None, *, every_s: float) -> list[Annotator]:
    wanted = ((boxed, spec.labels), (plain, None))
    return [Annotator(folder, labels=labels, every_s=every_s) for folder, labels in wanted if folder is not None]


def _batcher(pipeline: Pipeline, engine: Engine, counters: FrameCounters) -> Batcher:
    return Batcher(
        engine.canvases,
        max_wait_s=pipeline.config.batch.max_wait_ms / 1e3,
        pad_value=engine.preprocess.pad_value,
        on_drop=counters.dropped,
        terms={StreamId(stream.id): terms_of(stream) for stream in pipeline.config.streams},
    )


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
            self.stages.end(name)
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
