"""The fake's builder: refuses what the real one does, says why to the logger only, and serializes ONNX."""

import json
import os
import signal

from tests.support.fake_tensorrt.calibrators import scales_of

PHASES = (("Building Engine", None, 3), ("Tactic Selection", "Building Engine", 4))


class IHostMemory:
    def __init__(self, content):
        self._content = content

    @property
    def nbytes(self):
        return len(self._content)

    def __bytes__(self):
        return self._content


class IOptimizationProfile:
    def __init__(self):
        self._shapes = {}

    def set_shape(self, input, min, opt, max):
        if not all(low <= mid <= high for low, mid, high in zip(min, opt, max, strict=True)):
            raise ValueError("min <= opt <= max")
        self._shapes[input] = (tuple(min), tuple(opt), tuple(max))


class IBuilderConfig:
    builder_optimization_level, profiling_verbosity, DLA_core = 3, 0, -1
    avg_timing_iterations = num_compute_capabilities = default_device_type = int8_calibrator = progress_monitor = None

    def __init__(self, fake):
        self._fake = fake
        self._flags = {fake.module.BuilderFlag.TF32} if hasattr(fake.module.BuilderFlag, "TF32") else set()
        self._pools, self._profiles, self._cache = {}, [], None
        self._previews = set()

    def set_flag(self, flag):
        self._flags.add(self._fake.module.BuilderFlag(flag))

    def clear_flag(self, flag):
        self._flags.discard(self._fake.module.BuilderFlag(flag))

    def set_preview_feature(self, feature, enable):
        (self._previews.add if enable else self._previews.discard)(self._fake.module.PreviewFeature(feature).name)

    def set_quantization_flag(self, flag):
        self._fake.module.QuantizationFlag(flag)

    def set_memory_pool_limit(self, pool, pool_size):
        self._pools[self._fake.module.MemoryPoolType(pool)] = int(pool_size)

    def add_optimization_profile(self, profile):
        self._profiles.append(profile)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache):
        return self._fake.new("ITimingCache", self._fake, bytes(serialized_timing_cache))

    def set_timing_cache(self, cache, ignore_mismatch):
        fits = not cache._content or cache._content.startswith(self._fake.timing_tag)
        if not fits:
            return False
        self._cache = cache
        return True

    def get_timing_cache(self):
        return self._cache

    def set_compute_capability(self, compute_capability, index):
        self._fake.module.ComputeCapability(compute_capability)


class Builder:
    def __init__(self, logger):
        self._logger = self._fake_of(logger)
        self._fake.builders.add(self)

    def create_network(self, flags=0):
        return self._fake.new("INetworkDefinition", self._fake, flags)

    def create_builder_config(self):
        return self._fake.new("IBuilderConfig", self._fake)

    def create_optimization_profile(self):
        return self._fake.new("IOptimizationProfile")

    @property
    def num_DLA_cores(self):
        return self._fake.faults.dla_cores

    def build_serialized_network(self, network, config):
        problem = self._fake.faults.build
        if callable(problem):
            problem = problem(network, config)
        if problem == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if problem is not None:
            self._fake.log(self._logger, 1, problem)
            return None
        problem = self._fake.lack_of_memory(self._logger, config)
        why_not = (
            problem or _refusal(self._fake, network, config) or _lacking(self._fake, self._logger, network, config)
        )
        if why_not:
            self._fake.log(self._logger, 1, why_not)
            return None
        if not _went_on(config):
            return None
        if config._cache is not None:
            config._cache._content = self._fake.timing_tag + b"measured"
        return self._fake.new("IHostMemory", _serialized(self._fake, network, config))


def _refusal(fake, network, config):
    """Return why the real builder would not begin."""
    flags = fake.module.BuilderFlag
    typed = [name for name in ("INT8", "FP16") if hasattr(flags, name) and flags[name] in config._flags]
    if network._is_strong and typed:
        return f"Strongly typed networks take no precision flags, {typed} is set"
    if any(-1 in one.shape for one in network._inputs) and not config._profiles:
        return "Network has dynamic or shape inputs, but no optimization profile has been defined."
    if 0 <= _dla_core(config) >= fake.faults.dla_cores:
        return "Cannot create DLA engine, 0 not available"
    types = {layer.type.name for layer in network._layers}
    has_pairs = "QUANTIZE" in types
    if has_pairs and not network._is_strong and flags.INT8 not in config._flags:
        return "Int8 precision has been set for a layer or layer output, but int8 is not configured in the builder"
    if has_pairs and not hasattr(fake.module, "int64") and _has_int8_weights(network):
        return "TensorRT does not support INT8 weights for explicit quantization"
    return None


def _dla_core(config):
    """Return the core that was asked for; TensorRT for RTX has none."""
    return getattr(config, "DLA_core", -1)


def _has_int8_weights(network):
    made = {tensor.name for layer in network._layers for tensor in layer._outputs}
    return any(layer.type.name == "DEQUANTIZE" and layer._inputs[0].name not in made for layer in network._layers)


def _lacking(fake, logger, network, config):
    """Return what INT8 lacks: scales, by one way or another."""
    flags = fake.module.BuilderFlag
    has_pairs = any(layer.type.name == "QUANTIZE" for layer in network._layers)
    if not hasattr(flags, "INT8") or flags.INT8 not in config._flags or has_pairs:
        return None
    if config.int8_calibrator is not None:
        has_scales = scales_of(fake, logger, network, config.int8_calibrator)
        return None if has_scales else "Engine building failed: calibration"
    tensors = {id(one): one for layer in network._layers for one in layer._outputs}
    if not any(one._range for one in tensors.values()):
        return "Calibration failure occurred with no scaling factors detected."
    return None


def _went_on(config):
    """Tell the progress; return whether the build was not told to end."""
    monitor = getattr(config, "progress_monitor", None)  # since TensorRT 10
    if monitor is None:
        return True
    for name, parent, steps in PHASES:
        monitor.phase_start(name, parent, steps)
    goes_on = True
    for name, _, steps in reversed(PHASES):
        for step in range(steps):
            goes_on = goes_on and monitor.step_complete(name, step)
        monitor.phase_finish(name)
    return goes_on


def _is_set(fake, config, name):
    flags = fake.module.BuilderFlag
    return hasattr(flags, name) and flags[name] in config._flags


def _int8_layers(fake, network, config):
    """Return the convolutions that compute in INT8: those behind pairs, or without any all, if that was asked for."""
    made_by = {tensor.name: layer.type.name for layer in network._layers for tensor in layer._outputs}
    has_pairs = "QUANTIZE" in made_by.values()
    return [
        layer.name
        for layer in network._layers
        if layer.type.name in ("CONVOLUTION", "DECONVOLUTION")
        and (made_by.get(layer._inputs[0].name) == "DEQUANTIZE" if has_pairs else _is_set(fake, config, "INT8"))
    ]


def _serialized(fake, network, config):
    header = {
        "version": fake.version,
        "capability": list(fake.faults.capability),
        "shares_profiles": fake.number >= 90_000
        or fake.name != "tensorrt"
        or "PROFILE_SHARING_0806" in config._previews,
        "profiles": [profile._shapes for profile in config._profiles],
        "inputs": [[one.name, one.dtype.name, list(one.shape)] for one in network._inputs],
        "outputs": [[one.name, one.dtype.name, list(one.shape)] for one in network._outputs],
        "int8": _int8_layers(fake, network, config),
        "float": "FP16" if network._is_strong or _is_set(fake, config, "FP16") else "FP32",
        "names": [layer.name for layer in network._layers],
        "dla_core": _dla_core(config),
    }
    told = json.dumps(header).encode()
    return b"FAKEPLAN" + len(told).to_bytes(4, "little") + told + network._content
