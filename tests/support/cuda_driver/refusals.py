"""A program: lets one call of the driver after the other be refused while an engine is loaded, runs and is closed.

    python -m tests.support.cuda_driver.refusals MODEL engine|observing|averaging|profiler RESULT IS_INTEGRATED

One JSON line for each call: its name, what was raised in loading and running (null: nothing) and in closing, what is
left. It is a process of its own, since what is looked for are hangs and aborts.
"""

import faulthandler
import functools
import gc
import itertools
import json
import sys
from pathlib import Path

import numpy as np

from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.kind import KIND
from edge.engine.tensorrt.profiling import TimedLayers
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import fake_tensorrt
from tests.support.cuda_driver import stand_in

HANGS_S = 60
COUNTED = ("live", "contexts", "device_bytes")
REQUEST = EngineRequest(precision=Precision.FP32, max_batch=2, options=KIND.options_type(), score_threshold=0.5)


def _opener(spec, of):
    if of == "engine":
        plan = KIND.build(Forms(spec), REQUEST).data
        return lambda: KIND.load(plan, spec, REQUEST)
    if of == "profiler":
        names = [node.name for node in load_graph(spec.path).nodes if node.op_type == "Conv"]
        return lambda: KIND.profiler(spec, names)
    names = quantizable_tensors(load_graph(spec.path))
    if of == "averaging":
        return lambda: KIND.averaging(spec, names[:3], max_batch=2)
    return lambda: KIND.observing(spec, names[:3], largest_of=names[3:4], max_batch=2)


def _run(engine):
    if isinstance(engine, TimedLayers):
        engine.run(np.uint8(7))  # as any canvas of one value
        engine.times()
        return
    for index, rows in ((0, 2), (1, 1)):
        engine.canvases[index][:rows] = np.uint8(7)
        engine.start(index, rows)
    for index in (0, 1):
        engine.wait(index)


def _told(work):
    try:
        return work(), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def _one(device, opened, refused, result):
    before = {name: device[name] for name in COUNTED}
    device.set(refused_call=device["calls"] + refused, refused_result=result)
    last = device["calls"] + refused
    engine, loading = _told(opened)
    running, closing = None, []
    if engine is not None:
        running, closing = _told(functools.partial(_run, engine))[1], [_told(engine.close)[1]]
    is_over = device["calls"] < last
    device.set(refused_call=-1)
    if closing not in ([], [None]):
        assert _told(engine.close)[1] is None, "a second time it can be closed"
    del engine
    gc.collect()
    left = {name: device[name] - before[name] for name in COUNTED if device[name] != before[name]}
    return is_over, {
        "call": device.refused,
        "load": loading,
        "run": running,
        "close": [one for one in closing if one],
        "left": left,
    }


def main(model, of, result, is_integrated):
    spec = inspect_model(Path(model))
    with stand_in(is_integrated=int(is_integrated)) as device, fake_tensorrt.used() as fake:
        fake.give = device.give
        opened = _opener(spec, of)
        for refused in itertools.count(1):
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            is_over, found = _one(device, opened, refused, int(result))
            faulthandler.cancel_dump_traceback_later()
            if is_over:
                break
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
