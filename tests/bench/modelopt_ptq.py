"""NVIDIA's post-training quantization of an ONNX with the same pixels, measured as ours is; prints one line of JSON.

python -m tests.bench.modelopt_ptq MODEL IMAGES VAL VAL_LABELS [entropy|max] [OUT.onnx]

`-` as VAL_LABELS: there are none.

Wants nvidia-modelopt (0.47.0), torch, onnx 1.19, onnxruntime, onnx-graphsurgeon, onnxscript and lief beside this
project; it pins versions that others do not share, so give it an environment of its own. It rewrites the model that it
is given, and so gets a copy; the remainder stays in float32, since a CPU is to run it.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from modelopt.onnx.quantization import quantize

from edge.model.inspect import inspect_model
from edge.quantize.subject import find_images
from tests.bench.calibration import _pixels
from tests.bench.others import accuracy, labels_or_none


def main() -> None:
    model, images, val, val_labels = map(Path, sys.argv[1:5])
    method = sys.argv[5] if len(sys.argv) > 5 else "entropy"
    out = sys.argv[6] if len(sys.argv) > 6 else None
    spec = inspect_model(model)
    pixels = np.concatenate(list(_pixels(spec, find_images(images)[0])))
    with tempfile.TemporaryDirectory() as folder:
        copy, made = Path(folder, "copy.onnx"), Path(out or Path(folder, "int8.onnx"))
        shutil.copyfile(model, copy)
        started = time.perf_counter()
        quantize(
            str(copy), quantize_mode="int8", calibration_data={spec.input_name: pixels}, calibration_method=method,
            calibration_eps=["cpu"], high_precision_dtype="fp32", output_path=str(made),
        )  # fmt: skip
        elapsed = time.perf_counter() - started
        found = accuracy(spec, _session(made), _session(model), val, labels_or_none(val_labels, spec, val))
    print(json.dumps({"method": method, "images": len(pixels), "seconds": elapsed, **found}))


def _session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return lambda pixels: session.run(None, {given.name: pixels})[0]


if __name__ == "__main__":
    main()
