"""What our code uses of TensorRT, held by mypy against the real bindings of each version.

The bindings are NVIDIA's, imported over small stub libraries in a process of their own; no GPU, no TensorRT library.
"""

import json
import keyword
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_tensorrt.surface import recorded_part, surface_of
from tests.support.tensorrt import ROOT, RTX, VERSIONS, folder_of, module_of, run_python
from tests.support.tensorrt.stubs import stubs

_SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*?)\) -> (.+)$", re.MULTILINE)
_PROPERTY = re.compile(r"^\(.*?\) -> (.+)$", re.MULTILINE)
_PLAIN = {"int": "int", "str": "str", "float": "float", "bool": "bool", "None": "None"}
_OTHERWISE = {"IParserError": "ParserError", "IEngineInspector": "EngineInspector"}
_DATA_TYPES = ("float32", "float16", "int8", "int32", "int64", "bfloat16")
_HEAD = """import enum
from collections.abc import Iterator
from typing import Any, overload

__version__: str
"""
_DIMS = """
class Dims:
    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> int: ...
"""


def write_stubs(surface: dict, folder: Path) -> None:
    """Write `tensorrt/__init__.pyi` into `folder` for mypy's path."""
    classes = surface["classes"]
    lines = [_HEAD, _DIMS]
    for name, one in _bases_first(classes):
        lines += _enum(name, one["enum"]) if one["enum"] else _class(name, one, classes)
    # `import tensorrt` as a value, which a class can name and a module cannot.
    values = [name for name in surface["values"] if name in _DATA_TYPES]
    lines += ["_DataType = DataType\n\nclass Library:", "    __name__: str\n    __version__: str"]
    lines += [*(f"    {name}: type[{name}]" for name in classes), *(f"    {name}: _DataType" for name in values)]
    (folder / "tensorrt").mkdir()
    (folder / "tensorrt/__init__.pyi").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _bases_first(classes):
    done = {"Dims"}
    while left := [name for name in classes if name not in done]:
        ready = [name for name in left if all(base in done or base not in classes for base in classes[name]["bases"])]
        yield from ((name, classes[name]) for name in ready)
        done |= set(ready)


def _enum(name, members):
    return [f"\nclass {name}(enum.IntEnum):", *(f"    {key} = {value}" for key, value in members.items() if _fit(key))]


def _class(name, one, classes):
    bases = [base for base in one["bases"] if base in classes]
    lines = [f"\nclass {name}({', '.join(bases)}):" if bases else f"\nclass {name}:"]
    for member, what in one["members"].items():
        if _fit(member):
            lines += _member(member, what, classes)
    if name == "IHostMemory":  # what no docstring says: it is a buffer
        lines.append("    def __buffer__(self, flags: int, /) -> memoryview: ...")
    return lines if len(lines) > 1 else [*lines, "    pass"]


def _member(name, what, classes):
    if what["kind"] == "property":
        found = _PROPERTY.search(what["doc"])
        kind = _type(found[1], classes) if found else "Any"
        lines = ["    @property", f"    def {name}(self) -> {kind}: ..."]
        taken = "Any" if kind == "Dims" else kind  # pybind11 makes one of any sequence of numbers
        return lines + (
            [f"    @{name}.setter", f"    def {name}(self, value: {taken}) -> None: ..."] if what["settable"] else []
        )
    if what["kind"] != "method":
        return [f"    {name}: Any"]
    found = [one for one in _SIGNATURE.findall(what["doc"]) if "*args" not in one[1]]
    if not found:
        return [f"    def {name}(self, *args: Any, **more: Any) -> {'None' if name == '__init__' else 'Any'}: ..."]
    lines = []
    for _, parameters, result in found:
        lines += ["    @overload"] if len(found) > 1 else []
        returns = "None" if name == "__init__" else _type(result, classes)
        lines.append(f"    def {name}(self{_parameters(parameters, classes)}) -> {returns}: ...")
    return lines


def _parameters(text, classes):
    made, has_default = "", False
    for number, one in enumerate(_split(text)):
        name, _, rest = one.partition(":")
        kind, _, default = rest.partition("=")
        if number == 0:
            continue  # self
        if not _fit(name.strip()):
            return ", *args: Any, **more: Any"  # a default of NVIDIA's that is no Python
        has_default = has_default or bool(default)
        kind = _type(kind.strip(), classes)
        kind = "Any" if kind == "Dims" or default else kind
        made += f", {name.strip()}: {kind}" + (" = ..." if has_default else "")
    return made


def _split(text):
    depth, part = 0, ""
    for character in text + ",":
        depth += (character in "[({<") - (character in "])}>")
        if character == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += character


def _type(text, classes):
    text = text.strip()
    if text in _PLAIN:
        return _PLAIN[text]
    found = re.fullmatch(r"[Ll]ist\[(.*)\]", text)
    if found:
        return f"list[{_type(found[1], classes)}]"
    name = re.split(r"\.|::", text)[-1]
    name = _OTHERWISE.get(name, name)
    return name if name in classes and re.fullmatch(r"[\w.:]+", text) else "Any"


def _fit(name):
    return name.isidentifier() and not keyword.iskeyword(name)


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
