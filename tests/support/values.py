"""The common values, with what a test does not say of them; no test relies on a value that it has not said."""

from pathlib import Path

import numpy as np

from edge.calibrate.table import CalibrationTable, MadeBy, TensorRange
from edge.device.engines import EngineInputs, EngineRecord
from edge.device.health import Health, StreamHealth
from edge.types import (
    ClockSource,
    Detections,
    FrameHeader,
    FrameResult,
    HeadFamily,
    ImageSize,
    ModelSpec,
    Preprocess,
    StageTimes,
    StreamId,
)

NO_TIMES = StageTimes(decode_ns=0, batch_wait_ns=0, infer_ns=0, post_ns=0)


def canvases(spec, seed=0, rows=3):
    """Return noise of the size of a model's canvas."""
    size = spec.preprocess.size
    return np.random.default_rng(seed).integers(0, 256, (rows, size.height, size.width, 3), np.uint8)


def infer(engine, images, index=0):
    """Return what an engine makes of images on one of its canvases, in its own memory."""
    engine.canvases[index][: len(images)] = images
    engine.start(index, len(images))
    return engine.wait(index)


def header(stream="east", frame=1, *, size=(1280, 720), **changes):
    """Return what is known of a frame; `size` is the source's."""
    source = size if isinstance(size, ImageSize) else ImageSize(width=size[0], height=size[1])
    values = {"pts_ns": 0, "captured_at_ns": 0, "clock": ClockSource.FILE, "read_at_ns": 0}
    return FrameHeader(stream=StreamId(stream), frame=frame, source_size=source, **{**values, **changes})


def detections(xyxy=(), score=0.9, class_id=0):
    """Return detections at these boxes; one score or class is that of all."""
    boxes = np.array(xyxy, np.float32).reshape(-1, 4)
    score, class_id = (np.broadcast_to(one, len(boxes)) for one in (score, class_id))
    return Detections(xyxy=boxes, score=score.astype(np.float32), class_id=class_id.astype(np.int32))


def result(head, found, times=NO_TIMES):
    return FrameResult(header=head, detections=found, times=times)


def calibration_table(ranges=(), *, preprocess=None, **changes):
    """Return a table of these largest values by tensor; it is of no model unless it says so."""
    values = {
        "model": None,
        "preprocess": None if preprocess is None else preprocess.as_json(),
        "preprocess_sha256": None if preprocess is None else preprocess.sha256,
        "dataset": None,
        "method": "mse",
        "made_by": MadeBy(engine="test"),
        "tensors": {name: TensorRange(amax=amax, method="mse") for name, amax in dict(ranges).items()},
    }
    return CalibrationTable(**{**values, **changes})


def model_spec(path=Path("m.onnx"), *, side=640, **changes):
    """Return what insertion and accounts need to know of a graph."""
    values = {"name": path.stem, "sha256": "0" * 64, "family": HeadFamily.YOLOV8, "input_name": "images", "batch": None}
    values |= {"output_name": "output0", "preprocess": Preprocess(size=ImageSize(width=side, height=side))}
    return ModelSpec(path=path, labels=(), strides=(), **{**values, **changes})


def health(streams=(), **changes):
    """Return what a service says of itself; a stream is its state, or how many frames it has decoded and inferred."""
    values = {"release": "a" * 12, "invocation": "1", "at_boottime_ns": 5, "is_ready": True, "batches": 1}
    values |= {"infer_p95_ms": 4.0, "age_p95_ms": 50.0, "mqtt_connected": True, "mqtt_acknowledged": 0}
    return Health(streams={name: stream_health(*told) for name, told in dict(streams).items()}, **{**values, **changes})


def stream_health(state="up", frames=0):
    return StreamHealth(state=state, decoded=frames, inferred=frames)


def engine_inputs(**changes):
    """Return what an engine depends on."""
    values = {"onnx_sha256": "1" * 64, "calibration_sha256": None, "kind": "tensorrt", "precision": "int8"}
    values |= {"max_batch": 1, "input_size": (96, 96), "preprocess_sha256": "0" * 64}
    return EngineInputs(**{**values, **changes})


def engine_record(inputs=None, *, plan_sha256="3" * 64, plan_bytes=1, precision="int8", report=None):
    """Return the record of an engine that was built of them."""
    return EngineRecord(
        inputs=inputs or engine_inputs(), plan_sha256=plan_sha256, plan_bytes=plan_bytes, seconds=1.0,
        precision=precision, report=report or {},
    )  # fmt: skip
