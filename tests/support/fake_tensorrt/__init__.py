"""A strict TensorRT without a GPU: it has what the real one of a version has, and nothing else.

    with fake_tensorrt.used("10.3.0") as fake:                # or "8.6.1", "10.16.1.11", "11.4.0.106", "rtx-1.7.1.116"
        library = import_tensorrt()                           # is the fake
        fake.faults.build = "out of memory"                   # how it fails next: see `Faults`

Networks are read by NVIDIA's rules for Q/DQ, plans are refused by another version or GPU, reasons go to the logger
only. Engines compute by ONNX Runtime on addresses of host memory: device memory has to be such, as that of the driver
in `tests/support/cuda_driver` is. They do so at once, or in the order of that driver's streams:
`fake.give = device.give`. A process of its own gets the fake by `environment(version, **faults)`.

What a version has is recorded from the real bindings (`surfaces.json`, by `python -m tests.support.fake_tensorrt`);
whatever our code uses beside that raises AttributeError, what the fake does not do NotImplementedError.
"""

import contextlib
import dataclasses
import json
import os
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge.engine.tensorrt import binding
from tests.support.fake_tensorrt import builder, calibrators, network, runtime
from tests.support.fake_tensorrt.surface import ENUMS, enum_of, restricted, surface_of

PACKAGES = Path(__file__).parent / "packages"
DTYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "bool": "BOOL",
    "bfloat16": "BF16",
}


@dataclass
class Faults:
    """How the fake fails, and what it finds on the machine.

    `build`, `deserialize` and `execute`: the message that it logs before it gives up; `build="killed"`: SIGKILL; a
    function: asked for it, given network and config.
    `parser_errors`: given the ONNX model, returns (index, node, text) of nodes that the parser refuses.
    `layers`: (name, kind, metadata, milliseconds) of what engines are made of; metadata None: the inspector knows the
    name only; kind None: not even that. None: each layer of the network is one.
    `profile`: the message with which a context refuses to report to its profiler.
    `tactics_mib`: what the tactics of a layer want; those that the memory of the config has no place for, beside the
    builder's own `init_mib`, are skipped.
    `int8_ms`, `float_ms`: what a run of a plan with INT8 in it, or without, takes at least; a test in which plans race
    states them, since else both take as long.
    """

    build: str | Callable | None = None
    deserialize: str | None = None
    execute: str | None = None
    refuses_cache: bool = False
    dla_cores: int = 0
    capability: tuple[int, int] = (8, 7)
    parser_errors: Callable = lambda model: ()
    layers: list | None = None
    profile: str | None = None
    tactics_mib: tuple[int, ...] = ()
    init_mib: int = 1153
    int8_ms: float = 0.0
    float_ms: float = 0.0


class Fake:
    def __init__(self, version, faults):
        self.record = version
        self.version = version.removeprefix("rtx-")
        self.name = "tensorrt_rtx" if version.startswith("rtx-") else "tensorrt"
        self.faults = faults
        self.give = None
        self.own_activations, self.compilations = 0, 0
        self.builders, self.builders_beside_an_engine = weakref.WeakSet(), 0
        self.module = _module(self)

    @property
    def number(self):
        major, minor, patch = (int(part) for part in self.version.split(".")[:3])
        return major * (10_000 if major >= 10 else 1000) + minor * 100 + patch

    @property
    def timing_tag(self):
        return f"FAKETIMING {self.version} ".encode()

    def new(self, name, *args):
        return self.module._made[name](*args)

    def of_rtx(self, config, shapes):
        """Compile for shapes that are new to the runtime cache of a context that has one."""
        if config is None:
            return
        assert config._cache is not None
        assert config.cuda_graph_strategy.name == "WHOLE_GRAPH_CAPTURE"
        assert config.dynamic_shapes_kernel_specialization_strategy.name == "EAGER"
        shape = [list(one) for one in shapes.values()]
        if shape not in config._cache._shapes:
            config._cache._shapes.append(shape)
            self.compilations += 1

    def lack_of_memory(self, logger, config):
        """Log the tactics that are skipped, as TensorRT 10 does; return what fails when none is left."""
        pool = config._pools.get(self.module.MemoryPoolType.TACTIC_DRAM, 1 << 40)
        left_mib = (pool >> 20) - self.faults.init_mib
        wanted = [mib for mib in self.faults.tactics_mib if mib > left_mib]
        for number, mib in enumerate(wanted):
            short = (
                f"Tactic Device request: {mib}MB Available: {left_mib}MB. Device memory is insufficient to use tactic."
            )
            self.log(logger, 2, short)
            told = f"Skipping tactic {number} due to insufficient memory on requested size of {mib << 20} detected"
            self.log(logger, 2, f"UNSUPPORTED_STATE: {told} for tactic 0x{number:016x}.")
        is_none_left = bool(wanted) and len(wanted) == len(self.faults.tactics_mib)
        return "Could not find any implementation for node Conv_3" if is_none_left else None

    def log(self, logger, severity, text):
        logger.log(self.module.ILogger.Severity(severity), text)


def _module(fake):
    record = surface_of(fake.record)
    module = types.ModuleType(fake.name)
    module.__version__ = fake.version
    fake.module = module
    module._made = {}
    for name in ENUMS:
        if name in record:
            setattr(module, name, enum_of(name, record[name]))
    for name, kind in _classes(fake).items():
        if name in record:
            module._made[name] = made = restricted(kind, record[name])
            setattr(module, name, made)
    for name in record["values"]:
        setattr(module, name, module.DataType[DTYPES[name]])
    module.ILogger.Severity = enum_of(
        "Severity", {"enum": {"INTERNAL_ERROR": 0, "ERROR": 1, "WARNING": 2, "INFO": 3, "VERBOSE": 4}}
    )
    return module


def _classes(fake):  # noqa: C901 - classes, each of a line or two
    def fake_of(self, logger):
        if not isinstance(logger, fake.module.ILogger) or not getattr(logger, "_is_made", False):
            raise TypeError("a logger is an ILogger whose own __init__ was called")
        return logger

    class ILogger:
        def __init__(self):
            object.__setattr__(self, "_is_made", True)

        def log(self, severity, msg):
            raise NotImplementedError

    class IProfiler:
        def __init__(self):
            object.__setattr__(self, "_is_made", True)

        def report_layer_time(self, layer_name, ms):
            raise NotImplementedError

    class IProgressMonitor:
        def __init__(self):
            object.__setattr__(self, "_is_made", True)

    class ITimingCache:
        def __init__(self, owner, content):
            self._content = content

        def serialize(self):
            return fake.new("IHostMemory", self._content)

    found = {"ILogger": ILogger, "IProfiler": IProfiler}
    found |= {"IProgressMonitor": IProgressMonitor, "ITimingCache": ITimingCache}
    for name in ("Builder", "IBuilderConfig", "IHostMemory", "IOptimizationProfile"):
        found[name] = getattr(builder, name)
    for name in ("INetworkDefinition", "ILayer", "ITensor", "OnnxParser", "ParserError"):
        found[name] = getattr(network, name)
    for name in ("Runtime", "ICudaEngine", "IExecutionContext", "EngineInspector", "IRuntimeConfig", "IRuntimeCache"):
        found[name] = getattr(runtime, name)
    for name in calibrators.NAMES:
        found[name] = getattr(calibrators, name)
    for name in ("Builder", "Runtime"):
        found[name] = type(name, (found[name],), {"_fake": fake, "_fake_of": fake_of})
    return found


@contextlib.contextmanager
def used(version="10.3.0", **faults):
    """Let `import_tensorrt` find the fake of `version`, in this process."""
    fake = Fake(version, Faults(**faults))
    before = {name: sys.modules.get(name) for name in binding.LIBRARIES}
    for name in binding.LIBRARIES:
        sys.modules[name] = fake.module if name == fake.name else None
    binding.import_tensorrt.cache_clear()
    try:
        yield fake
    finally:
        binding.import_tensorrt.cache_clear()
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def environment(version="10.3.0", **faults):
    """Return variables by which a process of its own imports the fake of `version` as `tensorrt`."""
    kept = dataclasses.asdict(Faults(**faults))
    del kept["parser_errors"]
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(PACKAGES), str(root), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "FAKE_TENSORRT": json.dumps({"version": version, **kept})}


def of_environment():
    """Return the module that `environment` asked for; the package that stands for TensorRT calls it."""
    asked = json.loads(os.environ["FAKE_TENSORRT"])
    asked["capability"] = tuple(asked["capability"])
    return Fake(asked.pop("version"), Faults(**asked)).module
