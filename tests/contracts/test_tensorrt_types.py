"""mypy over our TensorRT code, with stubs written from the real bindings of each version."""

import os
import re
import subprocess
import sys

import pytest

from tests.contracts.test_tensorrt_bindings import GUARDED
from tests.support.tensorrt import ROOT, folder_of, module_of, run_python
from tests.support.tensorrt.stubs import stubs
from tests.support.tensorrt.typing_stubs import write_stubs

LACKING = re.compile(r'"(\w+)" has no attribute "(\w+)"')


def surface(version, folder):
    return run_python(
        "tests.support.tensorrt.surface",
        module_of(version),
        path=[folder_of(version)],
        libraries=stubs(version, folder),
    )


def problems(version, folder, *files):
    """Return what mypy says, less the names that are asked for before they are used."""
    write_stubs(surface(version, folder), folder)
    config = (ROOT / "setup.cfg").read_text().replace("tensorrt.*,", "")
    (folder / "mypy.cfg").write_text(re.sub(r"(?m)^files = .*$", "", config))
    options = ["--config-file", str(folder / "mypy.cfg"), "--follow-imports", "silent", "--no-warn-unused-ignores"]
    options += ["--cache-dir", str(ROOT / ".mypy_cache/tensorrt"), "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(folder)},
        timeout=500,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "error:" in line and "__init__.pyi:" not in line]
    return [line for line in lines if not is_guarded(line)]


def is_guarded(line):
    found = LACKING.search(line)
    return found is not None and f"{found[1]}.{found[2]}" in GUARDED


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0.106"])
def test_our_code_has_the_types_of_each_version(tmp_path, version):
    found = problems(version, tmp_path, "edge/engine/tensorrt")
    assert not found, "\n".join(found)


def test_a_wrong_type_is_found(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        "from tensorrt import IBuilderConfig, ICudaEngine\n\n\n"
        "def use(config: IBuilderConfig, engine: ICudaEngine) -> str:\n"
        "    config.builder_optimization_level = 'high'\n"
        "    config.no_such_thing()\n"
        "    return engine.num_io_tensors\n"
    )
    found = "\n".join(problems("10.3.0", tmp_path, str(program)))
    assert 'expression has type "str", variable has type "int"' in found
    assert 'has no attribute "no_such_thing"' in found
    assert 'got "int", expected "str"' in found
