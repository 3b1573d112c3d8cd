"""Figures of the exported model on scenes it was not trained on, after H.264; measured with ONNX Runtime, not torch."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.demo.cameras import Truth
from edge.vision.boxes import kept_by_nms
from tools.street.scene import CLASSES, Scene
from tools.train.data import CANVAS_PX, PAD_TOP_PX, SCENE_SIZE, halved

__all__ = ["Figures", "encoded", "evaluate"]

_FRAMES_PER_SECOND = 15
_PRESET = "veryfast"
_SCORE_FLOOR, _IOU_THRESHOLD = 0.001, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Average precision as COCO defines it, over all classes, and at IoU 0.5 for each label."""

    frames: int
    map50: float
    map50_95: float
    map50_by_label: dict[str, float]


def evaluate(model_path: Path, *, seeds: Sequence[int], clip_frames: int, keep_every: int, crf: int) -> Figures:
    """Run the model over the decoded clip of every scene and compare with the truth.

    `seeds`: scenes, none of them trained on. `clip_frames`: length of each clip; it is encoded as a whole, so that
    frames depend on one another. `keep_every`: of these frames, every how many is judged. `crf`: quality of the encoder
    (x264): 23 is its default, higher is worse.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model_path), providers=["CPUExecutionProvider"])
    truths: list[Truth] = []
    found: list[NDArray[np.float64]] = []
    for seed in seeds:
        for image, truth in _judged(seed, clip_frames=clip_frames, keep_every=keep_every, crf=crf):
            detections = _detect(session, image)
            found.append(np.column_stack((np.full(len(detections), len(truths)), detections)))
            truths.append(truth)
    return _figures(truths, np.concatenate(found))


def _judged(seed: int, *, clip_frames: int, keep_every: int, crf: int) -> Iterator[tuple[NDArray[np.uint8], Truth]]:
    scene = Scene(seed, SCENE_SIZE)
    start = int(np.random.default_rng([seed, 8]).integers(scene.period_frames))
    rendered = [scene.frame(start + step) for step in range(clip_frames)]
    decoded = encoded([image for image, _ in rendered], crf=crf)
    for step in range(keep_every - 1, clip_frames, keep_every):
        yield decoded[step], rendered[step][1]


def encoded(frames: Sequence[NDArray[np.uint8]], *, crf: int) -> list[NDArray[np.uint8]]:
    """Return the frames, uint8 `(H, W, 3)` RGB, as they come out of an H.264 stream."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as sink:
        options = {"crf": str(crf), "preset": _PRESET}
        stream: Any = sink.add_stream("libx264", rate=_FRAMES_PER_SECOND, options=options)
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape[:2], "yuv420p"
        for frame in frames:
            sink.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        sink.mux(stream.encode())
    buffer.seek(0)
    with av.open(buffer, "r") as source:
        return [frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False) for frame in source.decode(video=0)]


def _detect(session: Any, image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return detections `(N, 6)`: xyxy in pixels of the frame, score, class_id."""
    small = halved(image)
    canvas = np.full((CANVAS_PX, CANVAS_PX, 3), 114, np.uint8)
    canvas[PAD_TOP_PX : PAD_TOP_PX + len(small)] = small
    feed = np.ascontiguousarray(canvas.transpose(2, 0, 1)[None]).astype(np.float32) / 255
    output: NDArray[np.float32] = session.run(["output0"], {"images": feed})[0][0]
    anchor, class_id = np.nonzero(output[4:].T > _SCORE_FLOOR)
    centre, half = output[:2, anchor].T, output[2:4, anchor].T * np.float32(0.5)
    xyxy, score = np.column_stack((centre - half, centre + half)), output[4 + class_id, anchor]
    kept = kept_by_nms(xyxy, score, class_id, iou_threshold=_IOU_THRESHOLD)
    frame_xyxy = (xyxy[kept] - np.array([0, PAD_TOP_PX, 0, PAD_TOP_PX])) * 2
    return np.column_stack((frame_xyxy, score[kept], class_id[kept]))


def _figures(truths: Sequence[Truth], detections: NDArray[np.float64]) -> Figures:
    """Return the COCO figures. `detections` is `(N, 7)`: number of the frame, xyxy, score, class_id."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = _dataset(truths)
        coco.createIndex()
        wide = detections[:, 3:5] - detections[:, 1:3]
        rows = np.column_stack((detections[:, :3], wide, detections[:, 5:]))
        judge = COCOeval(coco, coco.loadRes(rows), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    # Axes: IoU threshold (first is 0.5), recall, class, area range (0 is all), number of detections (-1 is 100).
    at_half = judge.eval["precision"][0, :, :, 0, -1].mean(axis=0)
    return Figures(
        frames=len(truths),
        map50=float(judge.stats[1]),
        map50_95=float(judge.stats[0]),
        map50_by_label={label: float(value) for label, value in zip(CLASSES, at_half, strict=True)},
    )


def _dataset(truths: Sequence[Truth]) -> dict[str, Any]:
    annotations: list[dict[str, Any]] = []
    for number, truth in enumerate(truths):
        for (x0, y0, x1, y1), class_id in zip(truth.xyxy.tolist(), truth.class_id.tolist(), strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": class_id,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                }
            )
    return {
        "info": {},
        "images": [{"id": number} for number in range(len(truths))],
        "categories": [{"id": number, "name": label} for number, label in enumerate(CLASSES)],
        "annotations": annotations,
    }
