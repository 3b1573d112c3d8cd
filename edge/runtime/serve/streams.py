"""Makes what belongs to single streams: their sources, what they may ask for, which classes they report."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge.config.credentials import read_credential
from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.config.uris import local_path
from edge.media.select import make_source
from edge.media.shedding import Orders
from edge.protocols import FrameSource
from edge.runtime.pipeline.shares import Terms
from edge.runtime.serve.stream_states import StreamStates
from edge.types import ModelSpec, StreamId

__all__ = ["StreamMaker", "class_filters", "stated_rates", "terms_of"]


def class_filters(pipeline: Pipeline, spec: ModelSpec) -> dict[StreamId, NDArray[np.int32]]:
    """Return the class ids of the streams that want few.

    Raises:
        ConfigError: if the model has no such label.
    """
    filters = {}
    for index, stream in enumerate(pipeline.config.streams):
        unknown = [label for label in stream.classes or () if label not in spec.labels]
        if unknown:
            known = ", ".join(spec.labels[:10]) + (", ..." if len(spec.labels) > 10 else "")
            problem = f"got {unknown[0]!r}, the labels of {spec.name} are {known}"
            raise pipeline.error(("streams", index, "classes"), problem)
        if stream.classes is not None:
            filters[StreamId(stream.id)] = np.array([spec.labels.index(label) for label in stream.classes], np.int32)
    return filters


def terms_of(stream: StreamConfig) -> Terms:
    """Return what the stream may ask of the batcher."""
    max_age_ms = stream.max_age_ms
    return Terms(priority=stream.priority, max_age_ns=None if max_age_ms is None else round(max_age_ms * 1e6))


def stated_rates(pipeline: Pipeline) -> dict[StreamId, float | None]:
    """Return the `max_fps` of each live stream; None where it states none."""
    folder = pipeline.path.parent
    streams = pipeline.config.streams
    live = [stream for stream in streams if stream.realtime or local_path(stream.uri, folder) is None]
    return {StreamId(stream.id): stream.max_fps for stream in live}


@dataclass(frozen=True, slots=True)
class StreamMaker:
    """Makes sources for one model, that report to one place and take their orders from one."""

    spec: ModelSpec
    states: StreamStates
    orders: Orders = field(default_factory=Orders)

    def source(self, pipeline: Pipeline, stream: StreamConfig) -> FrameSource:
        """Return the source of a stream, not open yet; errors as `make_source`."""
        return make_source(
            stream,
            preprocess=self.spec.preprocess,
            base_dir=pipeline.path.parent,
            credential=functools.partial(_user_and_password, stream.credential),
            on_status=self.states.change,
            order=self.orders.of(stream.id),
        )


def _user_and_password(name: str | None) -> tuple[str, str] | None:
    if name is None:
        return None
    credential = read_credential(name)
    return credential.user, credential.password
