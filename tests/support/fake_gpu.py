"""A GPU with TensorRT, neither of them real: the stand-in for the driver, the fake TensorRT, and builds over it."""

import contextlib
from pathlib import Path
from unittest import mock

from edge.engine.kind import EngineRequest
from edge.engine.tensorrt import facts
from edge.engine.tensorrt.binding import import_tensorrt
from edge.engine.tensorrt.build.build import build_plan
from edge.engine.tensorrt.machine import ThisMachine
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import TensorrtDevice
from edge.quantize.forms import Forms
from edge.types import Precision
from tests.support import fake_tensorrt
from tests.support.cuda_driver import stand_in

BOARD = ThisMachine(
    architecture="aarch64",
    python="3.10",
    board="NVIDIA Jetson Orin Nano",
    l4t="36.4.3",
    nodes=("/dev/nvhost-gpu",),
    libraries={"tensorrt": "10.3.0"},
)

# The process that builds, which has to find the board too.
WORKER = (
    "import sys\n"
    f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    "from edge.runtime.build.worker import main\n"
    "from tests.support.fake_gpu import fake_board\n"
    "with fake_board(**{faults}):\n"
    "    code = main(sys.argv[1])\n"
    "sys.exit(code)"
)


@contextlib.contextmanager
def fake_gpu(**faults):
    """Let the kind `tensorrt` run in a block of code, by the real pycuda; what failed out of sight shows at its end."""
    with stand_in(is_lazy=True) as device, fake_tensorrt.used(**faults) as fake:
        fake.give = device.give
        yield device


@contextlib.contextmanager
def fake_board(**faults):
    """Let everything that asks for the machine find a Jetson, whose GPU is `fake_gpu`."""
    with (
        mock.patch.object(facts, "read_machine", return_value=BOARD),
        mock.patch.object(facts, "probe", return_value=None),
        fake_gpu(**faults) as device,
    ):
        yield device


ORIN = TensorrtDevice(name="Orin", compute_capability=(8, 7), memory_bytes=8 << 30, is_integrated=True)
DESKTOP = TensorrtDevice(name="RTX 3060", compute_capability=(8, 6), memory_bytes=12 << 30, is_integrated=False)


class Tabled(Forms):
    """Forms whose table a test may change, and that remember which Q/DQ models were asked for."""

    def __init__(self, spec, table):
        super().__init__(spec, table)
        self.asked, self.more, self.without, self.kept = [], {}, (), None

    @property
    def ranges(self):
        return {name: amax for name, amax in super().ranges.items() if name not in self.without} | self.more

    @property
    def keep_float(self):
        return super().keep_float if self.kept is None else self.kept

    def qdq_model(self, form):
        self.asked.append(form)
        return super().qdq_model(form)


class Handed:
    """What the builder was handed last, where it is the `build` of the fake's faults: `network` and `config`."""

    def __call__(self, network, config):
        self.network, self.config = network, config

    @property
    def flags(self):
        return {flag.name for flag in self.config._flags}


def build(
    forms,
    precision="int8",
    *,
    device=ORIN,
    max_batch=3,
    on_progress=lambda *told: None,
    cache=None,
    is_beside=False,
    **options,
):
    request = EngineRequest(
        precision=Precision(precision),
        max_batch=max_batch,
        options=Options(**options),
        cache_folder=cache,
        is_beside=is_beside,
    )
    return build_plan(import_tensorrt(), device, forms, request, on_progress=on_progress)
