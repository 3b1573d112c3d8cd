"""Holds the fake to what a real TensorRT has: names that its surface lacks are not there, and cannot be set."""

import enum
import functools
import json
from pathlib import Path

RECORD = Path(__file__).with_name("surfaces.json")

ENUMS = (
    "BuilderFlag",
    "CalibrationAlgoType",
    "ComputeCapability",
    "CudaGraphStrategy",
    "DataType",
    "DeviceType",
    "DynamicShapesKernelSpecializationStrategy",
    "ExecutionContextAllocationStrategy",
    "LayerInformationFormat",
    "LayerType",
    "MemoryPoolType",
    "NetworkDefinitionCreationFlag",
    "PreviewFeature",
    "ProfilingVerbosity",
    "QuantizationFlag",
    "TensorIOMode",
)
CLASSES = (
    "Builder",
    "EngineInspector",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "IHostMemory",
    "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2",
    "IInt8LegacyCalibrator",
    "IInt8MinMaxCalibrator",
    "ILayer",
    "ILogger",
    "INetworkDefinition",
    "IOptimizationProfile",
    "IProfiler",
    "IProgressMonitor",
    "IRuntimeCache",
    "IRuntimeConfig",
    "ITensor",
    "ITimingCache",
    "OnnxParser",
    "ParserError",
    "Runtime",
)
# Names of the module that are values: shorthands of data types.
VALUES = ("float32", "float16", "int8", "int32", "int64", "uint8", "bool", "bfloat16")


def recorded_part(surface):
    """Return what is kept of a whole surface (`tests.support.tensorrt.surface`)."""
    classes = surface["classes"]
    kept = {name: {"enum": classes[name]["enum"]} for name in ENUMS if name in classes}
    for name in CLASSES:
        if name in classes:
            members = classes[name]["members"]
            kept[name] = {
                "members": sorted(set(members) - {"__init__"}),
                "settable": sorted(member for member, one in members.items() if one["settable"]),
            }
    kept["values"] = sorted(name for name in VALUES if name in surface["values"])
    return kept


@functools.cache
def surface_of(version):
    return json.loads(RECORD.read_text(encoding="utf-8"))[version]


def enum_of(name, recorded):
    return enum.IntEnum(name, recorded["enum"])


def restricted(kind, recorded):
    """Return a class that does what `kind` does, as far as `recorded` has it, and nothing else.

    What is recorded and `kind` lacks raises NotImplementedError: the fake does not do it. State lies in names with an
    underscore, which a user of the real library never has.
    """
    members, settable = set(recorded["members"]), set(recorded["settable"])

    def of_user(name):
        return not name.startswith("_")

    def get(self, name):
        raise AttributeError(f"{kind.__name__} of this TensorRT has no {name}")

    def put(self, name, value):
        made_by_user = type(self) is not made  # a subclass of the test, as of a calibrator, has attributes of its own
        if of_user(name) and not made_by_user and name not in settable:
            raise AttributeError(f"{kind.__name__} of this TensorRT has no {name} that can be set")
        object.__setattr__(self, name, value)

    body = {"__getattr__": get, "__setattr__": put, "__doc__": kind.__doc__}
    for name in dir(kind):
        if name.startswith("__") and name not in ("__init__", "__bytes__", "__len__", "__buffer__"):
            continue
        if name in members or not of_user(name):
            body[name] = vars_of(kind)[name]
    for name in members - set(body):
        body[name] = property(functools.partial(_not_done, kind.__name__, name))
    made = type(kind.__name__, (), body)
    return made


def vars_of(kind):
    return {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}


def _not_done(owner, name, self):
    raise NotImplementedError(f"the fake TensorRT does not do {owner}.{name}")
