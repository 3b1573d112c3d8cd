"""The half of TensorRT that runs plans, as a test double: ONNX Runtime computes, in the order of a stream.

It refuses what TensorRT refuses: a tensor that it does not have, a shape that the plan was not built for, an inference
of which an address is missing, a second context of a profile until 8.6. What it is given to run reads and writes the
addresses that were set when it was given, when its turn in the stream comes; a graph replays the same.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace

import numpy as np
import onnxruntime

from edge.engine.tensorrt.abilities import Abilities
from edge.engine.tensorrt.binding import Library

__all__ = ["FakeTensorRt"]

_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class FakeTensorRt:
    """Stands for the module `tensorrt`; `library` is what the product knows of it.

    Args:
        device: the stand-in for the driver.
        max_batch: that plans with an open batch were built for.
        shares_profiles: whether several contexts may use one optimization profile (since 8.6, and 10).
        has_v3: whether tensors are placed by name (since 8.5).
    """

    def __init__(self, device, *, max_batch=8, shares_profiles=True, has_v3=True):
        self.device, self.max_batch, self.shares_profiles, self.has_v3 = device, max_batch, shares_profiles, has_v3
        self.failures = []
        self.contexts = []
        self.fails_to_enqueue = False
        self._running = {}
        self._numbers = itertools.count(1)
        self._callback = _HOST_FUNCTION(self._run)
        version = "10.3.0" if shares_profiles else "8.5.2"
        module = SimpleNamespace(
            __name__="tensorrt", __version__=version, ILogger=_Logger, Runtime=lambda logger: _Runtime(self, logger)
        )
        abilities = Abilities(**{name: name == "has_execute_v3" and has_v3 for name in Abilities.__dataclass_fields__})
        self.library = Library(trt=module, name="tensorrt", version=version, abilities=abilities)

    def give(self, stream, work):
        """Put `work` into a stream, which may be capturing."""
        number = next(self._numbers)
        self._running[number] = work
        code = self.device.library.cuLaunchHostFunc(ctypes.c_void_p(stream), self._callback, ctypes.c_void_p(number))
        return code == 0

    def _run(self, number):
        try:
            self._running[number]()
        except Exception as error:  # on a thread of the stand-in, where nobody would see it
            self.failures.append(error)


class _Logger:
    def __init__(self):
        pass

    def tell(self, severity, text):
        self.log(severity, text)


class _Runtime:
    def __init__(self, module, logger):
        self._module, self._logger, self.DLA_core = module, logger, -1

    def deserialize_cuda_engine(self, content):
        try:
            return _Engine(self._module, self._logger, content)
        except Exception as error:
            self._logger.tell(1, f"Serialization Error in verifyHeader: {str(error)[:40]}")
            return None


class _Engine:
    def __init__(self, module, logger, content):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self.module, self.logger = module, logger
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.inputs = {one.name: one for one in self.session.get_inputs()}
        self.outputs = {one.name: one for one in self.session.get_outputs()}
        self.names = [*self.inputs, *self.outputs]
        self.num_bindings = len(self.names)
        self.contexts = 0

    def create_execution_context(self):
        self.contexts += 1
        context = _Context(self, has_profile=self.contexts == 1 or self.module.shares_profiles)
        self.module.contexts.append(context)
        return context

    def get_binding_index(self, name):
        return self.names.index(name) if name in self.names else -1

    def get_binding_name(self, index):
        return self.names[index]


class _Context:
    def __init__(self, engine, *, has_profile):
        self._engine, self._module = engine, engine.module
        self.active_optimization_profile = 0 if has_profile else -1
        self._addresses = {}
        fixed = {name: one.shape for name, one in engine.inputs.items()}
        self._shapes = {name: tuple(shape) if isinstance(shape[0], int) else None for name, shape in fixed.items()}
        self.shape_changes = 0

    def set_optimization_profile_async(self, index, stream):
        self._engine.logger.tell(1, "Profile 0 has been chosen by another IExecutionContext.")
        return False

    def set_tensor_address(self, name, address):
        assert isinstance(address, int)
        assert address
        if not self._module.has_v3 or name not in self._engine.names:
            return False
        self._addresses[name] = address
        return True

    def set_input_shape(self, name, shape):
        given = self._engine.inputs.get(name)
        if given is None or not 1 <= shape[0] <= self._module.max_batch or tuple(given.shape[1:]) != tuple(shape[1:]):
            self._engine.logger.tell(1, f"setInputShape: {shape} does not satisfy any optimization profiles")
            return False
        self._shapes[name] = tuple(shape)
        self.shape_changes += 1
        return True

    def set_binding_shape(self, index, shape):
        return self.set_input_shape(self._engine.names[index], shape)

    def execute_async_v3(self, stream):
        assert self._module.has_v3
        return self._enqueue(dict(self._addresses), stream)

    def execute_async_v2(self, bindings, stream):
        return self._enqueue(dict(zip(self._engine.names, bindings, strict=True)), stream)

    def _enqueue(self, addresses, stream):
        ready = set(addresses) == set(self._engine.names) and None not in self._shapes.values()
        if not ready or self.active_optimization_profile < 0 or self._module.fails_to_enqueue:
            self._engine.logger.tell(1, "enqueueV3: Error Code 3: the context is not ready")
            return False
        shapes = dict(self._shapes)
        return self._module.give(stream, lambda: self._compute(addresses, shapes))

    def _compute(self, addresses, shapes):
        feeds = {
            name: _at(addresses[name], shapes[name], _DTYPES[one.type]) for name, one in self._engine.inputs.items()
        }
        names = list(self._engine.outputs)
        for name, values in zip(names, self._engine.session.run(names, feeds), strict=True):
            _at(addresses[name], values.shape, values.dtype)[...] = values


def _at(address, shape, dtype):
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(address), dtype).reshape(shape)
