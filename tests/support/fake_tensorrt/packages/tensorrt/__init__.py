"""Stands for TensorRT in a process that was started with `fake_tensorrt.environment`."""

import sys

from tests.support.fake_tensorrt import of_environment

__version__ = "10.3.0"  # what is read of it before it is loaded

sys.modules[__name__] = of_environment()
