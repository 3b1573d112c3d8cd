"""What our code uses of TensorRT, held by mypy against the real bindings of each version.

The bindings are NVIDIA's, imported over small stub libraries in a process of their own; no GPU, no TensorRT library.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_tensorrt.surface import recorded_part, surface_of
from tests.support.tensorrt import ROOT, RTX, VERSIONS, folder_of, module_of, run_python
from tests.support.tensorrt.stubs import stubs
from tests.support.tensorrt.typing_stubs import write_stubs

FOLDER = "edge/engine/tensorrt"
LACKING = re.compile(r'"(?:type\[)?(\w+)\]?" has no attribute "(\w+)"')

# What some versions lack, and the ability that has to be asked before it is used. A new use of such a name fails here
# until someone has looked at it.
GUARDED_BY = {
    "has_precision_flags": "BuilderFlag.FP16 BuilderFlag.INT8 BuilderFlag.OBEY_PRECISION_CONSTRAINTS ILayer.precision",
    "has_chosen_capability": (
        "ComputeCapability IBuilderConfig.num_compute_capabilities IBuilderConfig.set_compute_capability"
    ),
    "has_own_graphs": (
        "CudaGraphStrategy DynamicShapesKernelSpecializationStrategy ICudaEngine.create_runtime_config "
        "IRuntimeConfig.create_runtime_cache IRuntimeConfig.cuda_graph_strategy "
        "IRuntimeConfig.dynamic_shapes_kernel_specialization_strategy IRuntimeConfig.set_runtime_cache"
    ),
    "has_context_strategies": (
        "ExecutionContextAllocationStrategy ICudaEngine.device_memory_size_v2 IExecutionContext.set_device_memory"
    ),
    "has_calibrators": (
        "IBuilderConfig.int8_calibrator IBuilderConfig.set_quantization_flag IInt8EntropyCalibrator2 QuantizationFlag"
    ),
    "has_progress_monitor": "IBuilderConfig.progress_monitor IProgressMonitor",
    "not has_context_strategies": (
        "ICudaEngine.create_execution_context_without_device_memory ICudaEngine.device_memory_size "
        "PreviewFeature.PROFILE_SHARING_0806"
    ),
    "has_dynamic_ranges": "ITensor.set_dynamic_range",
    "has_explicit_batch_flag": "NetworkDefinitionCreationFlag.EXPLICIT_BATCH",
    "has_strong_typing": "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
    "has_node_of_error": "ParserError.node_name ParserError.node_operator",
}
GUARDED = {name: ability for ability, names in GUARDED_BY.items() for name in names.split()}


# What ours override of classes that TensorRT calls.
OVERRIDDEN = {
    "IInt8EntropyCalibrator2": {"get_batch", "get_batch_size", "read_calibration_cache", "write_calibration_cache"},
    "ILogger": {"log"},
    "IProfiler": {"report_layer_time"},
    "IProgressMonitor": {"phase_finish", "phase_start", "step_complete"},
}

TRUE_OF = {
    "has_calibrators": {"8.6.1", "10.3.0", "10.16.1.11"},
    "has_dynamic_ranges": {"8.6.1", "10.3.0", "10.16.1.11"},
    "has_precision_flags": {"8.6.1", "10.3.0", "10.16.1.11"},
    "has_strong_typing": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_explicit_batch_flag": {"8.6.1", "10.3.0", "10.16.1.11"},
    "takes_int8_weights": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_progress_monitor": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_node_of_error": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_chosen_capability": {RTX},
    "has_context_strategies": {"10.3.0", "10.16.1.11", "11.4.0.106", RTX},
    "has_own_graphs": {RTX},
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
def problems(real, tmp_path_factory):
    """Return what mypy says of files, by stubs that are written from the real bindings."""
    folder = tmp_path_factory.mktemp("typed")
    write_stubs(real, folder)
    config = (ROOT / "setup.cfg").read_text().replace("tensorrt.*,", "")
    (folder / "mypy.cfg").write_text(re.sub(r"(?m)^files = .*$", "", config))
    options = ["--config-file", str(folder / "mypy.cfg"), "--follow-imports", "silent", "--no-warn-unused-ignores"]
    options += ["--no-warn-unreachable", "--cache-dir", str(ROOT / ".mypy_cache/tensorrt"), "--no-error-summary"]
    for path in (ROOT / FOLDER).rglob("*.py"):
        typed = folder / str(path.relative_to(ROOT)).replace("/", "-")
        typed.write_text(with_the_types_of(real, path.read_text(encoding="utf-8")), encoding="utf-8")
        options += ["--shadow-file", str(path.relative_to(ROOT)), str(typed)]

    def checked(*files):
        command = [sys.executable, "-m", "mypy", *options, *files]
        environment = {**os.environ, "MYPYPATH": str(folder)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=500)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if "error:" in line and "__init__.pyi:" not in line]

    return checked


def with_the_types_of(real, code):
    """Return our code with the types of this version where it says `Any`, because versions differ there."""
    code = code.replace("    trt: Any\n", "    trt: Library\n").replace(
        "engine: Any = self._loaded", "engine = self._loaded"
    )
    code = code.replace(
        "    from tensorrt import Runtime as", "    from tensorrt import Library\n    from tensorrt import Runtime as"
    )
    for name in {"IRuntimeCache", "IRuntimeConfig"} & set(real["classes"]):
        code = re.sub(rf"{name}: TypeAlias = Any", f"from tensorrt import {name} as {name}", code)
    return code


def is_there(name, real):
    owner, _, member = name.partition(".")
    if owner not in real["classes"] or not member:
        return owner in real["classes"]
    return member in real["classes"][owner]["members"] or member in (real["classes"][owner]["enum"] or {})


def test_the_abilities_are_those_of_the_version(version, real):
    assert real["abilities"] == {name: version in versions for name, versions in TRUE_OF.items()}


@pytest.mark.promised(reason="TensorRT 8.6 to 11 are served by the same code")
def test_our_code_has_the_types_of_each_version_and_what_it_lacks_is_asked_for_before(real, problems):
    lines = problems(FOLDER)
    lacking = {f"{found[1]}.{found[2]}".removeprefix("Library.") for line in lines if (found := LACKING.search(line))}
    other = [line for line in lines if not LACKING.search(line)]
    if not real["abilities"]["has_context_strategies"]:
        other = [line for line in other if 'Too many arguments for "create_execution_context"' not in line]

    assert not other, "\n".join(other)
    # A class that is lacking has no members that could be looked for.
    known = {name for name in GUARDED if "." not in name or name.partition(".")[0] in real["classes"]}
    assert lacking == {name for name in known if not is_there(name, real)}, "guard it by an ability; see GUARDED"


def test_a_guard_is_closed_where_the_name_is_lacking(version, real):
    for name, ability in GUARDED.items():
        is_open = real["abilities"][ability.removeprefix("not ")] != ability.startswith("not ")
        if not is_there(name, real):
            assert not is_open, f"{version} says {ability}, and lacks {name}"


def test_what_is_overridden_is_a_member_where_there_is_the_class(real):
    for owner in OVERRIDDEN.keys() & real["classes"]:
        assert real["classes"][owner]["members"].keys() >= OVERRIDDEN[owner]


WRONG = """
from tensorrt import IBuilderConfig, ICudaEngine, ILogger, INetworkDefinition, Library

def use(trt: Library, config: IBuilderConfig, network: INetworkDefinition, logger: ILogger, engine: ICudaEngine) -> str:
    trt.Builder(logger).build_cuda_engine(network)
    trt.BuilderFlag.STRICT
    trt.Runtime(logger).deserialize_cuda_engine(b"").execute()
    config.set_timing_cache(b"", ignore=True)
    config.set_flag()
    trt.OnnxParser(network)
    config.builder_optimization_level = "high"
    return engine.num_io_tensors
"""


def test_each_use_that_no_version_has_is_found(tmp_path, problems):
    (tmp_path / "wrong.py").write_text(WRONG)
    found = {int(line.split(":")[1]) for line in problems(str(tmp_path / "wrong.py"))}
    assert found == set(range(5, 13))


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
