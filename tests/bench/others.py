"""What another quantizer made of a model, measured as ours is: the same pixels, decode and protocol."""

from __future__ import annotations

import numpy as np

from edge.evaluate.coco_map import Accumulator
from edge.evaluate.truth import GroundTruth
from edge.media.stills import list_images
from edge.quantize.calibration.images import find_images, still_source
from edge.quantize.detections import coco_detector
from edge.vision import letterbox
from tests.bench.calibration import _pixels

SURE = 0.25  # score from which the float model's detections are the truth


def accuracy(spec, infer, infer_float, folder, labels):
    """Return mAP50-95 against labels and against the float model's own sure detections.

    `infer` and `infer_float` make the raw output of pixels, float32 (1, 3, H, W).
    """
    with_labels, against_float, detector = Accumulator(), Accumulator(), coco_detector(spec)
    by_stem = {image.path.stem: image for image in find_images(folder)[0]}
    for stem in sorted(path.stem for path in list_images(folder)):
        source = still_source([by_stem[stem]], spec.preprocess)
        size = source.read(1.0).letterbox.source
        placed = letterbox.fit(size, spec.preprocess)
        (pixels,) = _pixels(spec, [by_stem[stem]])
        (found,), (exact,) = (
            detector.detect(np.asarray(run(pixels), np.float32), [placed]) for run in (infer, infer_float)
        )
        with_labels.add(stem, found, labels.truth(stem, size))
        against_float.add(stem, found, _sure(exact))
    return {"map50_95": with_labels.result().map50_95, "against_float": against_float.result().map50_95}


def _sure(found):
    kept = found.score >= SURE
    return GroundTruth(
        xyxy=found.xyxy[kept].astype(np.float64),
        class_id=found.class_id[kept],
        is_crowd=np.zeros(int(kept.sum()), np.bool_),
    )
