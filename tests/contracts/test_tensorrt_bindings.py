"""What our code uses of TensorRT, held against the real bindings of each version, found by walking the code.

The bindings are NVIDIA's, imported over small stub libraries in a process of their own; no GPU, no TensorRT library.
"""

import json
from pathlib import Path

import pytest

from tests.support.fake_tensorrt.surface import recorded_part, surface_of
from tests.support.tensorrt import ROOT, RTX, VERSIONS, folder_of, module_of, run_python
from tests.support.tensorrt.stubs import stubs
from tests.support.tensorrt.uses import Use, call_fits, is_there, uses_in

FOLDER = ROOT / "edge/engine/tensorrt"

# What some versions lack, and the ability that has to be asked before it is used. A new use of such a name fails here
# until someone has looked at it.
GUARDED = {
    "BuilderFlag.FP16": "has_precision_flags",
    "BuilderFlag.INT8": "has_precision_flags",
    "BuilderFlag.OBEY_PRECISION_CONSTRAINTS": "has_precision_flags",
    "ComputeCapability": "has_chosen_capability",
    "IBuilderConfig.int8_calibrator": "has_calibrators",
    "ICudaEngine.get_binding_index": "not has_execute_v3",
    "ICudaEngine.get_binding_name": "not has_execute_v3",
    "ICudaEngine.num_bindings": "not has_execute_v3",
    "IExecutionContext.execute_async_v2": "not has_execute_v3",
    "IExecutionContext.get_binding_shape": "not has_execute_v3",
    "IExecutionContext.set_binding_shape": "not has_execute_v3",
    "IBuilderConfig.num_compute_capabilities": "has_chosen_capability",
    "IBuilderConfig.progress_monitor": "has_progress_monitor",
    "IBuilderConfig.set_compute_capability": "has_chosen_capability",
    "IBuilderConfig.set_quantization_flag": "has_calibrators",
    "IInt8EntropyCalibrator2": "has_calibrators",
    "IInt8EntropyCalibrator2.get_batch": "has_calibrators",
    "IInt8EntropyCalibrator2.get_batch_size": "has_calibrators",
    "IInt8EntropyCalibrator2.read_calibration_cache": "has_calibrators",
    "IInt8EntropyCalibrator2.write_calibration_cache": "has_calibrators",
    "ILayer.precision": "has_precision_flags",
    "IProgressMonitor": "has_progress_monitor",
    "IProgressMonitor.phase_finish": "has_progress_monitor",
    "IProgressMonitor.phase_start": "has_progress_monitor",
    "IProgressMonitor.step_complete": "has_progress_monitor",
    "ITensor.set_dynamic_range": "has_dynamic_ranges",
    "NetworkDefinitionCreationFlag.EXPLICIT_BATCH": "has_explicit_batch_flag",
    "NetworkDefinitionCreationFlag.STRONGLY_TYPED": "has_strong_typing",
    "ParserError.node_name": "has_node_of_error",
    "ParserError.node_operator": "has_node_of_error",
    "QuantizationFlag": "has_calibrators",
    "QuantizationFlag.CALIBRATE_BEFORE_FUSION": "has_calibrators",
}

TRUE_OF = {
    "has_calibrators": {"8.6.1", "10.3.0", "10.16.1.11"},
    "has_dynamic_ranges": {"8.6.1", "10.3.0", "10.16.1.11"},
    "has_precision_flags": {"8.6.1", "10.3.0", "10.16.1.11"},
    "has_strong_typing": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_explicit_batch_flag": {"8.6.1", "10.3.0", "10.16.1.11"},
    "takes_int8_weights": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_execute_v3": set(VERSIONS),
    "has_tactic_memory_limit": set(VERSIONS),
    "has_optimization_level": set(VERSIONS),
    "has_progress_monitor": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_node_of_error": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_chosen_capability": {RTX},
}


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def real(version, tmp_path_factory):
    """The surface and the abilities of the real bindings."""
    libraries = stubs(version, tmp_path_factory.mktemp("stubs"))
    return run_python(
        "tests.support.tensorrt.surface", module_of(version), path=[folder_of(version)], libraries=libraries
    )


@pytest.fixture(scope="module")
def uses(real):
    return uses_in(FOLDER, real)


def test_the_abilities_are_those_of_the_version(version, real):
    assert real["abilities"] == {name: version in versions for name, versions in TRUE_OF.items()}


def test_what_is_used_is_there_or_asked_for_before(version, real, uses):
    lacking = sorted({(use.name, use.where) for use in uses if not is_there(use, real) and use.name not in GUARDED})
    assert lacking == [], f"TensorRT {version} lacks these; guard them by an ability, and say so in GUARDED"


def test_a_guard_is_closed_where_the_name_is_lacking(version, real):
    for name, ability in GUARDED.items():
        is_open = real["abilities"][ability.removeprefix("not ")] != ability.startswith("not ")
        if not is_there(Use(name, ""), real):
            assert not is_open, f"{version} says {ability}, and lacks {name}"


def test_calls_give_the_arguments_that_are_taken(version, real, uses):
    wrong = sorted((use.name, use.where, use.call) for use in uses if is_there(use, real) and not call_fits(use, real))
    assert wrong == [], f"TensorRT {version} takes other arguments"


def test_the_walk_finds_what_is_used(uses):
    names = {use.name for use in uses}
    expected = {
        "Builder.__init__",
        "Builder.build_serialized_network",
        "BuilderFlag.INT8",
        "EngineInspector.get_engine_information",
        "IBuilderConfig.set_memory_pool_limit",
        "IBuilderConfig.set_timing_cache",
        "INetworkDefinition.get_layer",
        "ILogger.log",
        "ITimingCache.serialize",
        "MemoryPoolType.TACTIC_DRAM",
        "OnnxParser.parse",
        "Runtime.deserialize_cuda_engine",
    }
    assert expected <= names


def test_nothing_is_guarded_that_nothing_uses(uses, version):
    if version != "10.16.1.11":
        pytest.skip("of one version, which has the most of it")
    names = {use.name for use in uses}
    assert {name for name in GUARDED if name not in names} == set()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("library.trt.Builder(logger).build_cuda_engine(network)", "lacks Builder.build_cuda_engine"),
        ("library.trt.BuilderFlag.STRICT", "lacks BuilderFlag.STRICT"),
        ("library.trt.Runtime(logger).deserialize_cuda_engine(b'').execute()", "lacks ICudaEngine.execute"),
        ("config.set_timing_cache(b'', ignore=True)", "arguments IBuilderConfig.set_timing_cache"),
        ("config.set_flag()", "arguments IBuilderConfig.set_flag"),
        ("library.trt.OnnxParser(network)", "arguments OnnxParser.__init__"),
    ],
)
def test_a_use_that_the_library_does_not_have_is_found(tmp_path, real, line, problem):
    program = f"def use(library, config: IBuilderConfig, network, logger):\n    return {line}\n"
    (tmp_path / "new.py").write_text(program)
    uses = uses_in(tmp_path, real)
    found = {f"lacks {use.name}" for use in uses if not is_there(use, real)}
    found |= {f"arguments {use.name}" for use in uses if is_there(use, real) and not call_fits(use, real)}
    assert problem in found


def test_the_fake_keeps_to_what_the_real_one_has(version, real):
    assert json.loads(json.dumps(recorded_part(real))) == surface_of(version), (
        "record it again: python -m tests.support.fake_tensorrt"
    )


@pytest.mark.parametrize(
    "name", ["get_quantile", "get_regression_cutoff", "read_histogram_cache", "write_histogram_cache"]
)
def test_what_the_legacy_calibrator_is_asked_beside_its_documented_members(version, real, name):
    if not real["abilities"]["has_calibrators"]:
        pytest.skip("it has no calibrators")
    (library,) = Path(folder_of(version)).glob("*/tensorrt.so")
    # pybind11 looks such a method up by its name, which stands in the message for a subclass that lacks it.
    assert f"IInt8LegacyCalibrator::{name}".encode() in library.read_bytes()
