"""Whatever the driver refuses to give, one thing after the other: a clear error, and nothing is left behind."""

import itertools

import numpy as np
import pytest

from edge.engine.cuda.binding import cuda_driver
from edge.engine.kind import EngineRequest
from edge.engine.tensorrt.kind import KIND
from edge.errors import EngineError
from edge.model.inspect import inspect_model
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import fake_tensorrt, models
from tests.support.cuda_driver import stand_in

pytestmark = pytest.mark.slow_but(reason="further calls and boards: the first row of each test is quick")

REQUEST = EngineRequest(precision=Precision.FP32, max_batch=3, options=KIND.options_type(), score_threshold=0.5)
COUNTED = ("live", "contexts", "device_bytes")


@pytest.mark.parametrize("is_integrated", [True, False])
@pytest.mark.parametrize("kind", ["mem_alloc", "pagelocked_empty", "Stream", "Event"])
def test_the_nth_that_is_refused_leaves_nothing_behind(tmp_path, monkeypatch, kind, is_integrated):
    spec = inspect_model(models.yolov8(tmp_path / "m.onnx"))
    with stand_in(is_integrated=is_integrated) as device, fake_tensorrt.used() as fake:
        fake.give = device.give
        plan = KIND.build(Forms(spec), REQUEST).data
        cuda = cuda_driver()
        real, before = getattr(cuda, kind), {name: device[name] for name in COUNTED}
        told: list[str] = []
        for refused in itertools.count():
            made = itertools.count()

            def make(*args, made=made, refused=refused, **more):
                if next(made) == refused:
                    raise cuda.MemoryError(kind, 2, "out of memory")
                return real(*args, **more)

            monkeypatch.setattr(cuda, kind, make)
            try:
                engine = KIND.load(plan, spec, REQUEST)
            except EngineError as error:
                told.append(error.problem)
                assert {name: device[name] for name in COUNTED} == before
                continue
            engine.canvases[0][:] = np.uint8(7)
            engine.start(0, 3)
            engine.wait(0)
            engine.close()
            break
        assert len(told) == refused >= (1 if kind == "Stream" else 2)
        assert all(one.startswith("m: ") for one in told)
