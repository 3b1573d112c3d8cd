"""What another quantizer made of a model, measured as ours is: the same pixels, decode and protocol."""

import numpy as np

from edge.evaluate.coco_map import Accumulator, error_of_difference
from edge.evaluate.labels import open_labels
from edge.evaluate.truth import GroundTruth
from edge.media.images import list_images, read_image
from edge.quantize.feed import coco_detector
from edge.quantize.subject import find_images
from edge.types import ImageSize
from edge.vision.boxes import fit
from tests.bench.calibration import _pixels

SURE = 0.25  # score from which the float model's detections are the truth


def accuracy(spec, infer, infer_float, folder, labels):
    """Return mAP50-95 against labels (None: null) and against the float model's own sure detections, with their errors.

    `infer` and `infer_float` make the raw output of pixels, float32 (1, 3, H, W). Errors are the standard ones of the
    difference from the float model.
    """
    runs, detector = (infer_float, infer), coco_detector(spec)
    with_labels, against_float = ([Accumulator() for _ in runs] for _ in range(2))
    by_stem = {image.path.stem: image for image in find_images(folder)[0]}
    for stem in sorted(path.stem for path in list_images(folder)):
        height, width, _ = read_image(by_stem[stem].path).shape
        size = ImageSize(width=width, height=height)
        placed = fit(size, spec.preprocess)
        (pixels,) = _pixels(spec, [by_stem[stem]])
        found = [detector.detect(np.asarray(run(pixels), np.float32), [placed])[0] for run in runs]
        truth = _sure(found[0])
        for one, labelled, own in zip(found, with_labels, against_float, strict=True):
            own.add(stem, one, truth)
            if labels is not None:
                labelled.add(stem, one, labels.truth(stem, size))
    return {
        "map50_95": None if labels is None else _with_error(with_labels),
        "against_float": _with_error(against_float),
    }


def labels_or_none(folder, spec, images):
    """Return the labels in `folder`, None of `-`."""
    return None if folder.name == "-" else open_labels(folder, spec.labels, images=images)


def _with_error(pair):
    return [pair[1].result().map50_95, error_of_difference(*pair)]


def _sure(found):
    kept = found.score >= SURE
    return GroundTruth(
        xyxy=found.xyxy[kept].astype(np.float64),
        class_id=found.class_id[kept],
        is_crowd=np.zeros(int(kept.sum()), np.bool_),
    )
