"""A GPU with TensorRT, neither of them real: the stand-in for the driver, and the fake TensorRT."""

import contextlib
from pathlib import Path
from unittest import mock

from edge.engine.tensorrt import facts
from edge.engine.tensorrt.machine import ThisMachine
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
