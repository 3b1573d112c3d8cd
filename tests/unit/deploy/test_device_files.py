"""What travels to a device: all that `edge-runtime` can import, and nothing of the workstation's."""

import ast
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edge.cli.runtime_commands import edge_runtime
from edge.deploy.provision.wheels import device_files, own_wheel
from edge.runtime.prove import kit

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "edge/demo/clips/images"
AT_HOME = ("client", "demo", "deploy", "systemd")  # rooms of which no file travels but what a proof brings


@pytest.fixture(scope="module")
def device(tmp_path_factory) -> Path:
    """A folder with the package as a device has it."""
    site = tmp_path_factory.mktemp("device")
    zipfile.ZipFile(io.BytesIO(own_wheel())).extractall(site)
    return site


def names(site: Path) -> set[str]:
    return {path.relative_to(site).as_posix() for path in (site / "edge").rglob("*") if path.is_file()}


def on(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the device's package, away from the checkout; what else is installed here is seen."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *words], env=environment, cwd=site, capture_output=True, text=True)


def test_what_lies_beside_the_files_of_a_checkout_does_not_travel(tmp_path):
    """Work in a checkout leaves secrets, clips and what editors keep in its folders."""
    for name in ("edge", "pipelines", "systemd"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    before = own_wheel(tmp_path)
    (tmp_path / "pipelines/broker-password").write_text("gate:secret\n")
    (tmp_path / "edge/runtime/.env").write_text("A=b\n")
    (tmp_path / "edge/http/page.html~").write_text("old\n")
    (tmp_path / "edge/device/.#lock.py").symlink_to("somebody@here")

    assert own_wheel(tmp_path) == before


def test_nothing_of_the_workstation_travels(device):
    travelling = names(device)

    assert {name for name in travelling if name.split("/")[1] in AT_HOME} == {
        path.relative_to(ROOT).as_posix() for path in (kit.MODEL, kit.CLIP, kit.UNIT, *IMAGES.glob("camera-1-*.jpg"))
    }
    assert {path.name for path in (device / "edge/cli/commands").iterdir()} == {
        *("__init__.py", "bench.py", "build.py", "doctor.py", "prove.py", "run.py")
    }
    commands = next(device.glob("*.dist-info/entry_points.txt")).read_text()
    assert commands.split("\n") == ["[console_scripts]", "edge-runtime = edge.cli.entry:edge_runtime", ""]


def test_a_command_of_the_workstation_is_no_command_on_a_device_and_no_defect_either(device):
    ended = on(device, "-m", "edge.cli.edge_runtime", "push")

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith("edge_runtime --help")


def test_what_is_read_beside_the_code_travels_with_it(device):
    needed = {"edge/pipelines/launch/software.launch", "edge/engine/cuda/compiled/sm_87.cubin", "edge/http/page.html"}

    needed |= {"edge/runtime/prove/traffic.calib.json", "edge/runtime/prove/bars/jpeg-601-full.avi"}
    needed |= {"edge/roofline/machines.yaml", "edge/capacity/evidence.yaml"}  # `doctor` tells the bound of its board
    assert needed | {"edge/py.typed", "edge/pipelines/reference.yaml"} <= names(device)


def test_each_import_of_what_travels_leads_to_what_travels(device):
    """By Python's own reading of the files; the product looks for the words."""
    travelling = names(device)
    missing = []
    for name in sorted(one for one in travelling if one.endswith(".py")):
        for node in ast.walk(ast.parse((device / name).read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                modules = [node.module, *(one for one in inside if is_module(one))]
            missing += [(name, module) for module in modules if is_module(module) and not in_names(module, travelling)]
    assert missing == [("edge/cli/entry.py", "edge.cli.edge_deploy")]  # where the workstation's command begins


def is_module(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return module.startswith("edge") and (path.is_dir() or path.with_suffix(".py").is_file())


def in_names(module: str, travelling: set[str]) -> bool:
    path = module.replace(".", "/")
    return f"{path}.py" in travelling or any(name.startswith(f"{path}/") for name in travelling)


def test_each_module_that_travels_can_be_imported_there(device):
    modules = sorted(name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names(device))
    modules = [one for one in modules if (device / one.replace(".", "/")).is_dir() or is_module(one)]
    program = (
        "import importlib, sys, edge; [importlib.import_module(one) for one in sys.argv[1:]]; print(edge.__file__)"
    )

    told = on(device, "-c", program, *modules)

    assert told.stdout.strip() == str(device / "edge/__init__.py"), told.stderr
    assert len(modules) == sum(name.startswith("edge/") and name.endswith(".py") for name in names(device))


@pytest.mark.parametrize("command", sorted(edge_runtime.list_commands(None)))
def test_each_command_of_a_device_is_there(device, command):
    told = on(device, "-c", "from edge.cli.entry import edge_runtime; edge_runtime()", command, "--help")

    assert told.returncode == 0, told.stderr
    assert told.stdout.lower().startswith("usage: ")


def test_a_folder_of_an_engine_that_nobody_names_travels():
    files = {
        "edge/cli/entry.py": b"",
        "edge/engine/__init__.py": b"",
        "edge/engine/new/facts.py": b"import edge.wire.x",
    }
    files |= {"edge/wire/x.py": b"", "edge/wire/y.py": b"", "edge/engine/new/kernel.bin": b""}

    assert set(files) - set(device_files(files)) == {"edge/wire/y.py"}


@pytest.mark.parametrize(
    "line",
    [
        b"from edge.wire import x",
        b"    from edge.wire import (\n    x,\n    z)",
        b"import edge.wire.x",
        b"from edge.wire.x import Name",
        b'open(files("edge.wire.x"))',
    ],
)
def test_a_module_travels_however_it_is_named(line):
    files = {"edge/cli/entry.py": line, "edge/wire/x.py": b"", "edge/wire/y.py": b""}

    assert set(device_files(files)) == {"edge/cli/entry.py", "edge/wire/x.py"}
