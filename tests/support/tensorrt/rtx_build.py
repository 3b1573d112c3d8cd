"""A program: builds by TensorRT for RTX, without a GPU, through our own build code; reads jobs and prints what came.

A job is {"model": path, "table": path or null, "precision": ..., "max_batch": n, "qdq": path of a float32 Q/DQ
model that is taken in place of ours, or null, "capability": [8, 6]}.
"""

import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

from edge.calibrate.table import read_table
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.binding import MessageLog, library_of
from edge.engine.tensorrt.build.build import build_plan
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import TensorrtDevice, split_plan
from edge.errors import EdgeError
from edge.model.inspect import inspect_model
from edge.model.qdq.insert import QdqModel
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support.tensorrt import RTX_MODULE

# Where a kernel is launched its name stands without the digest that its code has.
LAUNCH = re.compile(rb"__myl_([A-Za-z]+)(?![A-Za-z_0-9])")
# What the builder writes of a layer's origin, an entry for each kernel.
ENTRIES = re.compile(rb"(?:\[ONNX Layer: [^\x1e\x1f\0]{1,4000}?\][\x1e\x1f]?)+")
# What follows a convolution in INT8: its sums are scaled, become float16 in ours, and get the bias. In a name that is
# too long it may be cut off (Etc).
INT8_CONVOLUTION, INT8_CONVOLUTION_OF_FLOAT32 = "MulCastAdd", "MulAdd"


class Given(Forms):
    """A model whose Q/DQ form a test has made."""

    def __init__(self, spec, content):
        super().__init__(spec)
        self._given = content

    def qdq_model(self, form):
        return QdqModel(model=self._given, quantized_nodes=(), float_nodes=(), mac_share_int8=1.0, ranges={})


def forms_of(job):
    spec = inspect_model(Path(job["model"]))
    if job.get("qdq"):
        return Given(spec, Path(job["qdq"]).read_bytes())
    return Forms(spec, None if job["table"] is None else read_table(Path(job["table"])))


def build(library, job):
    log, phases = MessageLog(), []
    device = TensorrtDevice(
        name="GPU of a test",
        compute_capability=tuple(job.get("capability", (8, 6))),
        memory_bytes=8 << 30,
        is_integrated=False,
    )
    request = EngineRequest(precision=Precision(job["precision"]), max_batch=job["max_batch"], options=Options())
    try:
        forms = forms_of(job)
        plan = build_plan(library, device, forms, request, log=log, on_progress=lambda *told: phases.append(told))
    except EdgeError as error:
        return {"error": str(error), "hint": error.hint, "warnings": log.warnings()}
    header, content = split_plan(plan.data)
    tail = INT8_CONVOLUTION_OF_FLOAT32 if job.get("qdq") else INT8_CONVOLUTION
    launches = Counter(name.decode() for name in LAUNCH.findall(content))
    return {
        "error": None,
        "warnings": log.warnings(),
        "report": plan.report,
        "batch": header.batch,
        "inputs": [[one.name, one.shape, one.dtype] for one in header.inputs],
        "outputs": [[one.name, one.shape, one.dtype] for one in header.outputs],
        "launches": launches,
        "entries": sorted({one.decode() for one in ENTRIES.findall(content)}),
        "int8_convolutions": sum(name.count(tail) * count for name, count in launches.items()),
        "phases": phases,
        "bytes": len(content),
    }


def main():
    library = library_of(importlib.import_module(RTX_MODULE))
    print(json.dumps([build(library, job) for job in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
