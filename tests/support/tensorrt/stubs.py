"""Small libraries with the few C symbols that NVIDIA's bindings look for when they are imported; none is ever called.

`stubs(version, folder)` compiles them and returns where they lie, for LD_LIBRARY_PATH. TensorRT for RTX brings its own.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tensorrt import RTX

LIBRARIES = ("nvinfer", "nvonnxparser", "nvparsers", "nvinfer_plugin")
SYMBOLS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getInferLibVersion",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
    # Parsers of TensorRT 8, for formats of before ONNX.
    "_ZN11nvuffparser15createUffParserEv",
    "_ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi",
    "_ZN14nvcaffeparser117createCaffeParserEv",
    "_ZN14nvcaffeparser123shutdownProtobufLibraryEv",
)


def stubs(version: str, folder: Path) -> Path | None:
    if version == RTX:
        return None
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here; .ci/setup test installs it")
    source, major = folder / "stubs.c", version.partition(".")[0]
    source.write_text("\n".join(f"void *{symbol}(void) {{ return 0; }}" for symbol in SYMBOLS) + "\n")
    for name in LIBRARIES:
        file = f"lib{name}.so.{major}"
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{file}", "-o", str(folder / file), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    return folder
