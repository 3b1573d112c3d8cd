"""The fake's runtime: reads plans of its own version and GPU only, and computes by ONNX Runtime."""

import json
import time
from types import SimpleNamespace

import numpy as np
import onnx

from tests.support.fake_tensorrt.calibrators import array_at, session_of

ACTIVATION_BYTES = 1 << 20
NUMPY_OF = {"FLOAT": "float32", "HALF": "float16", "INT32": "int32", "INT64": "int64", "INT8": "int8", "BOOL": "bool"}


class Runtime:
    DLA_core = 0

    def __init__(self, logger):
        self._logger = self._fake_of(logger)

    def deserialize_cuda_engine(self, serialized_engine):
        content, fake = bytes(serialized_engine), self._fake
        fake.builders_beside_an_engine += len(fake.builders)
        if fake.faults.deserialize is not None:
            fake.log(self._logger, 1, fake.faults.deserialize)
            return None
        if content[:8] != b"FAKEPLAN":
            fake.log(self._logger, 1, "Serialization Error in verifyHeader: 0 (Magic tag does not match)")
            return None
        length = int.from_bytes(content[8:12], "little")
        header = json.loads(content[12 : 12 + length])
        if header["version"] != fake.version:
            fake.log(self._logger, 1, "Serialization Error in verifyHeader: 0 (Version tag does not match)")
            return None
        if tuple(header["capability"]) != tuple(fake.faults.capability):
            fake.log(self._logger, 1, "The engine plan file is generated on an incompatible device, please rebuild.")
            return None
        return fake.new("ICudaEngine", fake, header, content[12 + length :], self._logger)


class ICudaEngine:
    def __init__(self, fake, header, content, logger):
        self._fake, self._header, self._logger = fake, header, logger
        self._names = [name for name, *_ in (*header["inputs"], *header["outputs"])]
        model = onnx.load_from_string(content)
        known = {one.name for one in model.graph.output}
        marked = [name for name, *_ in header["outputs"] if name not in known]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in marked)
        self._session = session_of(model.SerializeToString())
        self._contexts = 0

    def get_tensor_shape(self, name):
        return tuple(self._of(name)[2])

    @property
    def num_layers(self):
        return len(self._header["names"])

    @property
    def device_memory_size(self):
        return ACTIVATION_BYTES

    @property
    def device_memory_size_v2(self):
        return ACTIVATION_BYTES

    def create_execution_context(self, how=None):
        self._contexts += 1
        context = self._fake.new("IExecutionContext", self)
        context._profile = 0 if self._contexts == 1 else -1  # a later one has to ask for it
        config = how if hasattr(how, "_strategy") else None
        strategy = config._strategy if config is not None else how
        context._config, context._needs_memory = config, getattr(strategy, "name", "STATIC") == "USER_MANAGED"
        if not context._needs_memory:
            self._fake.own_activations += 1
        return context

    def create_execution_context_without_device_memory(self):
        return self.create_execution_context(SimpleNamespace(name="USER_MANAGED"))

    def create_runtime_config(self):
        return self._fake.new("IRuntimeConfig", self._fake)

    def create_engine_inspector(self):
        return self._fake.new("EngineInspector", self)

    def _of(self, name):
        return next(one for one in (*self._header["inputs"], *self._header["outputs"]) if one[0] == name)


class IRuntimeConfig:
    def __init__(self, fake):
        self._fake, self._strategy, self._cache = fake, None, None
        self.cuda_graph_strategy = fake.module.CudaGraphStrategy.DISABLED
        self.dynamic_shapes_kernel_specialization_strategy = fake.module.DynamicShapesKernelSpecializationStrategy.LAZY

    cuda_graph_strategy = dynamic_shapes_kernel_specialization_strategy = None

    def create_runtime_cache(self):
        return self._fake.new("IRuntimeCache", self._fake)

    def set_runtime_cache(self, cache):
        self._cache = cache
        return True


class IRuntimeCache:
    """Remembers for which shapes kernels were compiled."""

    def __init__(self, fake):
        self._fake, self._shapes = fake, []

    def deserialize(self, blob):
        content = bytes(blob)
        fits = content.startswith(self._fake.timing_tag)
        if fits:
            self._shapes = json.loads(content[len(self._fake.timing_tag) :])
        return fits

    def serialize(self):
        return self._fake.new("IHostMemory", self._fake.timing_tag + json.dumps(self._shapes).encode())


class EngineInspector:
    def __init__(self, engine):
        self._engine = engine

    def get_engine_information(self, format):
        header, layers = self._engine._header, self._engine._fake.faults.layers
        if layers is None:
            told = [_layer(name, header) for name in header["names"]]
        else:
            told = [_fused(*layer[:3]) for layer in layers if layer[1] is not None]
        return json.dumps({"Layers": told, "Bindings": [one[0] for one in header["inputs"]]})


def _layer(name, header):
    is_int8 = name in header["int8"]
    return {
        "Name": name,
        "LayerType": "CaskConvolution" if is_int8 else "PointWise",
        "Inputs": [{"Name": "x", "Format/Datatype": "Row major Int8 format" if is_int8 else header["float"]}],
        "Outputs": [],
        "TacticName": "sm80_xmma_fprop_implicit_gemm_interleaved_i8i8" if is_int8 else "",
        "Metadata": f"[ONNX Layer: {name}]",
    }


def _fused(name, kind, metadata):
    return name if metadata is None else {"Name": name, "LayerType": kind, "Metadata": metadata}


class IExecutionContext:
    enqueue_emits_profile = True

    def __init__(self, engine):
        self._engine, self._fake, self._addresses, self._shapes = engine, engine._fake, {}, {}
        self._sized_for, self._sizes = None, {}
        self._profile, self._profiler, self._has_run = 0, None, False
        self._config, self._needs_memory, self._memory = None, False, 0

    @property
    def engine(self):
        return self._engine

    @property
    def active_optimization_profile(self):
        return self._profile

    @property
    def profiler(self):
        return self._profiler

    @profiler.setter
    def profiler(self, profiler):
        if not isinstance(profiler, self._fake.module.IProfiler) or not getattr(profiler, "_is_made", False):
            raise TypeError("a profiler is an IProfiler whose own __init__ was called")
        self._profiler = profiler

    def report_to_profiler(self):
        refusal = self._fake.faults.profile
        if refusal is not None or self._profiler is None or not self._has_run:
            self._fake.log(self._engine._logger, 1, refusal or "there is no profiler, or nothing that it could be told")
            return False
        self._report()
        return True

    def _report(self):
        layers = self._fake.faults.layers
        told = (
            [(name, 0.01) for name in self._engine._header["names"]]
            if layers is None
            else [(name, ms) for name, _, _, ms in layers]
        )
        for name, ms in told:
            self._profiler.report_layer_time(name, ms)

    def set_device_memory(self, memory, size):
        assert size >= ACTIVATION_BYTES
        self._memory = int(memory)

    @property
    def device_memory(self):
        return self._memory

    @device_memory.setter
    def device_memory(self, memory):
        self._memory = int(memory)

    def set_optimization_profile_async(self, profile_index, stream_handle):
        if self._engine._header["shares_profiles"]:
            self._profile = profile_index
            return True
        self._fake.log(self._engine._logger, 1, "Profile 0 has been chosen by another IExecutionContext.")
        return False

    def set_input_shape(self, name, shape):
        stated = self._engine.get_tensor_shape(name)
        profiles = self._engine._header["profiles"]
        if profiles:
            low, _, high = profiles[0][name]
            fits = all(a <= side <= b for a, side, b in zip(low, shape, high, strict=True))
        else:
            fits = tuple(shape) == stated
        if not fits:
            self._fake.log(
                self._engine._logger, 1, f"Runtime dimension does not satisfy any optimization profile: {shape}"
            )
            return False
        self._shapes[name] = tuple(shape)
        return True

    def get_tensor_shape(self, name):
        shape = tuple(self._engine.get_tensor_shape(name))
        if name in self._shapes or -1 not in shape or self.infer_shapes():
            return self._shapes.get(name, shape)
        if self._sized_for != self._shapes:
            header, self._sized_for = self._engine._header, dict(self._shapes)
            feed = {one: np.zeros(self._shapes[one], NUMPY_OF[dtype]) for one, dtype, _ in header["inputs"]}
            names = [one for one, *_ in header["outputs"]]
            self._sizes = dict(zip(names, (one.shape for one in self._engine._session.run(names, feed)), strict=True))
        return self._sizes[name]

    def set_tensor_address(self, name, memory):
        if name not in self._engine._names:
            return False
        self._addresses[name] = int(memory)
        return True

    def infer_shapes(self):
        return [name for name, _, shape in self._engine._header["inputs"] if -1 in shape and name not in self._shapes]

    def execute_async_v3(self, stream_handle):
        missing = [name for name in self._engine._names if name not in self._addresses]
        if missing or self.infer_shapes():
            self._fake.log(self._engine._logger, 1, f"Address is not set for tensors {missing}, or a shape is not")
            return False
        if self._needs_memory and not self._memory:
            self._fake.log(self._engine._logger, 1, "enqueueV3: the context has no device memory")
            return False
        self._fake.of_rtx(self._config, self._shapes)
        if self._fake.faults.execute is not None:
            self._fake.log(self._engine._logger, 1, self._fake.faults.execute)
            return False
        return self._give(dict(self._addresses), stream_handle)

    def _give(self, addresses, stream):
        if self._profile < 0:
            self._fake.log(self._engine._logger, 1, "enqueue: no optimization profile has been chosen")
            return False
        shapes = dict(self._shapes)  # those of now, as a graph keeps them, too
        if self._fake.give is None:
            self._run(addresses, shapes)
            return True
        return self._fake.give(stream, lambda places: self._run(places, shapes), addresses, self._bytes_of)

    def _bytes_of(self, name):
        """Return how large a tensor is for the shapes of now, and whether it is read."""
        header = self._engine._header
        size = int(np.prod(self.get_tensor_shape(name))) * np.dtype(NUMPY_OF[self._engine._of(name)[1]]).itemsize
        return size, name in [one for one, *_ in header["inputs"]]

    def _run(self, addresses, shapes):
        self._has_run = True
        if self._profiler is not None and self.enqueue_emits_profile:
            self._report()
        header, faults = self._engine._header, self._fake.faults
        time.sleep((faults.int8_ms if header["int8"] else faults.float_ms) / 1e3)
        feed = {}
        for name, dtype, shape in header["inputs"]:
            feed[name] = array_at(addresses[name], shapes.get(name, tuple(shape)), NUMPY_OF[dtype])
        outputs = [name for name, *_ in header["outputs"]]
        for name, array in zip(outputs, self._engine._session.run(outputs, feed), strict=True):
            dtype = NUMPY_OF[self._engine._of(name)[1]]
            array_at(addresses[name], array.shape, dtype)[...] = array
