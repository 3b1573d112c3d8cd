"""A release that can really be built and served: a tiny model, a clip, golden frames found by ONNX Runtime."""

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import cv2
import msgspec
import numpy as np

from edge.bundle.folder import Bundle
from edge.bundle.manifest import GoldenFrames, HealthLimits, Role
from edge.calibrate.table import TensorRange, write_table
from edge.device.device import Device
from edge.evaluate.golden import GoldenImage, GoldenSet, detect_golden, encode_golden, floor_of
from edge.model.inspect import inspect_model
from edge.vision.heads import Detector, head_of
from tests.support import models
from tests.support.clips import write_clip
from tests.support.device_releases import stage
from tests.support.device_root import DeviceRoot
from tests.support.onnxruntime_engine import OnnxRuntimeEngine
from tests.support.tables import table_of

SURE = 0.5


def soft_pictures(size, count: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    coarse = [random.integers(0, 256, (8, 8, 3), np.uint8) for _ in range(count)]
    return [cv2.resize(one, (size.width, size.height), interpolation=cv2.INTER_CUBIC) for one in coarse]


def _golden_files(spec) -> dict[str, tuple[Role, bytes]]:
    """What the float model finds, computed without our engines."""
    head = head_of(spec)
    detector = Detector(head=head, score_threshold=floor_of(SURE), iou_threshold=0.45, max_detections=300)
    pictures = soft_pictures(spec.preprocess.size, 4)
    found = detect_golden(pictures, OnnxRuntimeEngine(spec, max_batch=2), detector)
    assert sum(int((one.score >= SURE).sum()) for one in found) >= 10, (
        "the tiny model finds too little to prove anything"
    )
    golden = GoldenSet(
        model_sha256=spec.sha256,
        preprocess_sha256=spec.preprocess.sha256,
        engine="onnxruntime",
        labels=spec.labels,
        sure_score=SURE,
        iou_threshold=0.45,
        max_detections=300,
        images=tuple(GoldenImage(path=f"golden/{i:02}.png", detections=one) for i, one in enumerate(found)),
    )
    files = {"golden/golden.json": (Role.GOLDEN, encode_golden(golden))}
    for index, picture in enumerate(pictures):
        done, content = cv2.imencode(".png", picture[..., ::-1])
        assert done
        files[f"golden/{index:02}.png"] = (Role.GOLDEN_IMAGE, content.tobytes())
    return files


def deployable(
    device: Device,
    folder: Path,
    *,
    precision: str = "fp32",
    harm: float | None = None,
    streams: list | None = None,
    pipeline: dict | None = None,
    sequence: int = 1,
    seed: int = 0,
    **more: object,
) -> str:
    """Stage a release; `harm` multiplies one range of its table, which ruins what the model finds."""
    folder.mkdir(parents=True, exist_ok=True)
    files = dict(_parts(seed))
    model = folder / "model.onnx"
    model.write_bytes(files["model.onnx"][1])
    described: dict = {"onnx": "model.onnx", "precision": precision}
    if precision == "int8":
        described["calibration"] = "model.calib.json"
        files["model.calib.json"] = (Role.CALIBRATION, _table(model, folder, harm))
    content = {
        **_pipeline(described, folder / "out.jsonl", streams or [{"id": "a", "uri": "clips/clip.mp4"}]),
        **(pipeline or {}),
    }
    files["pipeline.yaml"] = (Role.PIPELINE, json.dumps(content).encode())
    return stage(device, files, sequence=sequence, **more)  # type: ignore[arg-type]


def real_bundle(
    root: DeviceRoot,
    *,
    sequence: int,
    seed: int = 0,
    streams: list | None = None,
    software: Mapping[str, tuple[Role, bytes]] | None = None,
    **limits: float,
) -> Bundle:
    """Return a signed bundle that a device's real units build, serve and judge."""
    streams = streams or [{"id": "a", "uri": "clips/clip.mp4", "loop": True, "realtime": True}]
    model = {"onnx": "model.onnx", "precision": "fp32"}
    content = json.dumps(_pipeline(model, root.directory / f"{sequence}.jsonl", streams)).encode()
    files = {**_parts(seed), "pipeline.yaml": (Role.PIPELINE, content), **(software or {})}
    health = HealthLimits(min_rate_share=0.1, max_slowdown=100.0, min_available_bytes=0, **limits)
    return root.bundle_of(files, "gates", sequence=sequence, health=health, golden_frames=GoldenFrames.OUTSIDE)


def _pipeline(model: dict, jsonl: Path, streams: list) -> dict:
    return {
        "version": 1,
        "device": "gate-01",
        "model": model,
        "publish": {"mode": "all", "jsonl": str(jsonl)},
        "streams": streams,
        "batch": {"max_frames": 2},
    }


@functools.cache
def _parts(seed: int) -> dict[str, tuple[Role, bytes]]:
    """What each release of a process has the same: made once."""
    with tempfile.TemporaryDirectory(prefix="edge-release-") as folder:
        model = models.yolov8(Path(folder, "model.onnx"), seed=seed)
        clip = write_clip(Path(folder, "clip.mp4"), count=30)
        return {
            "model.onnx": (Role.MODEL, model.read_bytes()),
            "clips/clip.mp4": (Role.CLIP, clip.read_bytes()),
            **_golden_files(inspect_model(model)),
        }


def _table(model: Path, folder: Path, harm: float | None) -> bytes:
    table = table_of(model)
    if harm is not None:
        name = next(one for one in table.tensors if one.startswith("Mul"))
        broken = TensorRange(amax=table.tensors[name].amax * harm, method="x")
        table = msgspec.structs.replace(table, tensors={**table.tensors, name: broken})
    path = folder / "model.calib.json"
    write_table(path, table)
    return path.read_bytes()
