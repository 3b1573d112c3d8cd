"""Makes the parts of a pipeline from its file: model, engine, sources, publishers."""

from __future__ import annotations

from pathlib import Path

from edge.config.pipeline import Pipeline
from edge.engine.pipeline_model import detector_of, read_model
from edge.protocols import Engine, Publisher
from edge.publish.messages import InfoMessage
from edge.runtime.look.server import StatusServer, make_shown
from edge.runtime.pipeline.annotate import Annotator
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.pipeline.loop import Inference
from edge.runtime.serve.engine import start_engine
from edge.runtime.serve.following import Stages, make_counting, make_followers, make_following
from edge.runtime.serve.last_look import LastLook
from edge.runtime.serve.last_switch import LastSwitchPublisher
from edge.runtime.serve.publishing import birth_message, make_frame_publisher, make_publisher
from edge.runtime.serve.release import Deployed
from edge.runtime.serve.reload import Reloader
from edge.runtime.serve.service import PipelineParts, ReliefParts
from edge.runtime.serve.stream_states import StreamStates
from edge.runtime.serve.streams import StreamMaker, class_filters, stated_rates, terms_of
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
    """Return the parts of `pipeline`, ready to run.

    Args:
        pipeline: the file.
        deployed: of a release, what is run of it; None: what the pipeline says is prepared here and now.
        annotate_dir, frames_dir: folders for a frame per stream and `annotate_every_s`, with boxes and as it is.
        socket_path: where the status page is served; None: nowhere.

    Raises:
        EdgeError: if the file, the model, the calibration table, the engine or a secret cannot be used.
    """
    config = pipeline.config
    spec = read_model(pipeline)
    filters = class_filters(pipeline, spec)
    followers = make_followers(pipeline, spec.labels)
    running = start_engine(pipeline, spec, deployed)
    info = birth_message(pipeline, spec, running, deployed)
    publisher = make_publisher(pipeline, info)
    frames = make_frame_publisher(pipeline, publisher, info)
    streams = [StreamId(stream.id) for stream in config.streams]
    stages = Stages(make_following(followers, publisher, info), make_counting(pipeline, publisher, info))
    states = StreamStates(streams, publisher, device=info.device, on_change=stages.change)
    batcher = _batcher(pipeline, running.engine, counters := FrameCounters())
    last_switch, last_look = _told_of_release(deployed, publisher, info)
    maker = StreamMaker(spec, states)
    reload = None if deployed else Reloader(pipeline, info, publisher, stages, filters, batcher, maker)
    what_runs = (lambda: pipeline) if reload is None else (lambda: reload.pipeline)
    shown = make_shown(what_runs, info, counters=counters, states=states, last_switch=last_switch)
    return PipelineParts(
        name=pipeline.path.stem,
        device=info.device,
        precision=running.precision,
        sources=[maker.source(pipeline, stream) for stream in config.streams],
        inference=Inference(
            engine=running.engine,
            detector=detector_of(pipeline, spec),
            class_filter=filters,
            on_results=lambda results: stages.take(results, frames.publish),
            onlookers=[shown.pictures, *_annotators(spec, annotate_dir, frames_dir, every_s=annotate_every_s)],
        ),
        batcher=batcher,
        counters=counters,
        publisher=publisher,
        states=states,
        relief=ReliefParts(orders=maker.orders, config=config.overload, stated_fps=stated_rates(pipeline)),
        stages=stages,
        last_switch=last_switch,
        last_look=last_look,
        reload=reload,
        status=StatusServer(shown, config.http, socket_path=socket_path),
    )


def _told_of_release(
    deployed: Deployed | None, publisher: Publisher, info: InfoMessage
) -> tuple[LastSwitchPublisher | None, LastLook | None]:
    if deployed is None:
        return None, None
    layout, device = deployed.layout, info.device
    return LastSwitchPublisher(publisher, layout, device=device), LastLook(publisher, layout, device=device)


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
