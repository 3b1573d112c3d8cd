"""NNCF's post-training quantization with the same pixels, measured as ours is; prints one line of JSON.

python -m tests.bench.nncf_ptq MODEL IMAGES VAL VAL_LABELS

`-` as VAL_LABELS: there are none.
"""

import json
import sys
import time
from pathlib import Path

import nncf
import openvino

from edge.model.inspect import inspect_model
from edge.quantize.subject import find_images
from tests.bench.calibration import _pixels
from tests.bench.others import accuracy, labels_or_none


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
    network_float = core.compile_model(str(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    labels = labels_or_none(val_labels, spec, val)
    found = accuracy(spec, _run_by(core.compile_model(quantized, "CPU")), _run_by(network_float), val, labels)
    print(json.dumps({"seconds": elapsed, **found}))


def _run_by(compiled):
    request = compiled.create_infer_request()
    return lambda pixels: request.infer({0: pixels})[0]


if __name__ == "__main__":
    main()
