"""A GPU with TensorRT for contract tests, neither of them real: the stand-in for the driver, and the fake TensorRT."""

import contextlib

from tests.support import fake_tensorrt
from tests.support.cuda_driver import stand_in

__all__ = ["fake_gpu"]


@contextlib.contextmanager
def fake_gpu():
    """Let the kind `tensorrt` run in a block of code, by the real pycuda; what failed out of sight shows at its end."""
    with stand_in(is_lazy=True) as device, fake_tensorrt.used() as fake:
        fake.give = device.give
        yield device
        assert device.failures == []
