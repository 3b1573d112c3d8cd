"""A service's parts around an engine and recorded sources, and frames to record."""

import itertools

import numpy as np

from edge.publish.jsonl import JsonlPublisher
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.pipeline.loop import Inference
from edge.runtime.serve.service import PipelineParts
from edge.runtime.serve.streams import StreamStates
from edge.types import Precision, StreamId
from edge.vision.heads import Detector, head_of
from tests.support.recorded import RecordedSource

PICTURE = np.zeros((40, 64, 3), np.uint8)


def recorded(spec, name, images, **settings):
    return RecordedSource(StreamId(name), images, preprocess=spec.preprocess, **settings)


def live(spec, name, *, fps):
    """A camera that goes on for ever."""
    return recorded(spec, name, itertools.repeat(PICTURE), fps=fps, is_live=True)


def parts_of(spec, engine, sources, out, *, on_results=lambda found: None, score_threshold=0.5, max_wait_s=0.01):
    """The parts; `out` is the file of messages, and a source may be made of what is told of statuses."""
    counters, publisher = FrameCounters(), JsonlPublisher(str(out))
    states = StreamStates([], publisher, device="test")
    sources = [one(states.change) if callable(one) else one for one in sources]
    for source in sources:
        states.add(source.stream)
    detector = Detector(head=head_of(spec), score_threshold=score_threshold, iou_threshold=0.5, max_detections=10)
    return PipelineParts(
        name="test",
        precision=Precision.FP32,
        sources=sources,
        inference=Inference(engine=engine, detector=detector, filters={}, on_results=on_results),
        batcher=Batcher(engine.canvases, max_wait_s=max_wait_s, pad_value=114, on_drop=counters.dropped),
        counters=counters,
        publisher=publisher,
        states=states,
    )
