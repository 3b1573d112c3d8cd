"""Calibrators of the fake: base classes for a user's own, and what a builder does with one."""

import ctypes
import re

import numpy as np
import onnx
import onnxruntime

NAMES = {
    "IInt8EntropyCalibrator": "EntropyCalibration",
    "IInt8EntropyCalibrator2": "EntropyCalibration2",
    "IInt8LegacyCalibrator": "LegacyCalibration",
    "IInt8MinMaxCalibrator": "MinMaxCalibration",
}


class IInt8Calibrator:
    def __init__(self):
        object.__setattr__(self, "_is_made", True)


class IInt8EntropyCalibrator(IInt8Calibrator):
    """Legacy entropy."""


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """The preferred one."""


class IInt8LegacyCalibrator(IInt8Calibrator):
    """Wants quantile and regression cutoff."""


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """Uses the whole range."""


def name_of(fake, calibrator):
    for name, word in NAMES.items():
        base = getattr(fake.module, name, None)
        if base is not None and isinstance(calibrator, base):
            return word
    raise TypeError(f"{type(calibrator).__name__} is no calibrator of this TensorRT")


def scales_of(fake, logger, network, calibrator):
    """Return whether a builder has scales: read from the calibrator's cache, or found on its batches."""
    name = name_of(fake, calibrator)
    cache = calibrator.read_calibration_cache()
    if cache is not None and len(bytes(cache)):
        fake.log(logger, 3, f"Reading Calibration Cache for calibrator: {name}")
        if fits(fake, bytes(cache), name):
            fake.log(logger, 3, "Generated calibration scales using calibration cache.")
            return True
        fake.log(logger, 1, "Calibration table does not match calibrator algorithm type")
    found = calibrated(fake, network, calibrator)
    if not found:
        fake.log(logger, 1, "Calibration failure occurred with no scaling factors detected.")
        return False
    fake.log(logger, 3, f"Writing Calibration Cache for calibrator: TRT-{fake.number}-{name}")
    lines = [f"TRT-{fake.number}-{name}", *(f"{tensor}: {hexed(amax / 127)}" for tensor, amax in found.items())]
    calibrator.write_calibration_cache(memoryview(("\n".join(lines) + "\n").encode()))
    return True


def fits(fake, cache, name):
    """One major version, and the same algorithm: what was seen of the real builder."""
    found = re.match(rb"TRT-(\d+)-(\w+)\n", cache)
    if found is None or found[2].decode() != name or fake.faults.refuses_cache:
        return False
    number = int(found[1])
    major = number // 10_000 if number >= 100_000 else number // 1000
    return major == int(fake.version.partition(".")[0])


def hexed(value):
    return "0" if value == 0 else np.float32(value).byteswap().tobytes().hex()


def calibrated(fake, network, calibrator):
    """Ask for batches until there are none, and return the largest |x| of each tensor."""
    if name_of(fake, calibrator) == "LegacyCalibration":
        assert 0 <= calibrator.get_quantile() <= 1
        assert 0 <= calibrator.get_regression_cutoff() <= 1
    size, names, found = calibrator.get_batch_size(), [one.name for one in network._inputs], {}
    model = onnx.load_from_string(network._content)
    inner = [name for node in model.graph.node for name in node.output if name]
    known = {one.name for one in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner if name not in known)
    session = session_of(model.SerializeToString())
    while (addresses := calibrator.get_batch(names)) is not None and len(addresses):
        shape = (size, *network._inputs[0].shape[1:])
        values = read_floats(int(addresses[0]), shape)
        for name, array in zip(inner, session.run(inner, {names[0]: values}), strict=True):
            if array.dtype == np.float32:
                found[name] = max(found.get(name, 0.0), float(np.abs(array).max(initial=0.0)))
        found[names[0]] = max(found.get(names[0], 0.0), float(np.abs(values).max()))
    return found


def read_floats(address, shape):
    count = int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address)).reshape(shape).copy()


def session_of(content):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def array_at(address, shape, dtype):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * count).from_address(address), dtype).reshape(shape)
