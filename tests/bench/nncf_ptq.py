"""NNCF's post-training quantization with the same pixels, measured as ours is; prints one line of JSON.

python -m tests.bench.nncf_ptq MODEL IMAGES VAL VAL_LABELS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import nncf
import numpy as np
import openvino

from edge.evaluate.coco_map import Accumulator
from edge.evaluate.labels import open_labels
from edge.media.stills import list_images
from edge.model.inspect import inspect_model
from edge.quantize.calibration.images import find_images, still_source
from edge.quantize.detections import coco_detector
from edge.vision import letterbox
from tests.bench.calibration import _pixels


def main() -> None:
    model, images, val, val_labels = map(Path, sys.argv[1:])
    spec = inspect_model(model)
    size = spec.preprocess.size
    core = openvino.Core()
    network = core.read_model(str(model))
    network.reshape({spec.input_name: [1, 3, size.height, size.width]})
    found = find_images(images)[0]
    started = time.perf_counter()
    quantized = nncf.quantize(network, nncf.Dataset(list(_pixels(spec, found))), subset_size=len(found))
    elapsed = time.perf_counter() - started
    request = core.compile_model(quantized, "CPU").create_infer_request()
    print(json.dumps({"seconds": elapsed, "map50_95": _map(spec, request, val, open_labels(val_labels, spec.labels))}))


def _map(spec, request, folder, labels):
    found, detector = Accumulator(), coco_detector(spec)
    paths = {image.path.stem: image for image in find_images(folder)[0]}
    for stem in sorted(path.stem for path in list_images(folder)):
        source = still_source([paths[stem]], spec.preprocess)
        where = source.read(1.0).letterbox
        (pixels,) = _pixels(spec, [paths[stem]])
        output = np.asarray(request.infer({0: pixels})[0], np.float32)
        placed = letterbox.fit(where.source, spec.preprocess)
        (detections,) = detector.detect(output, [placed])
        found.add(stem, detections, labels.truth(stem, where.source))
    return found.result().map50_95


if __name__ == "__main__":
    main()
