"""What holds of the device image on every base, also on those that cannot be pulled here.

Its Dockerfile is read into stages by the rules of https://docs.docker.com/reference/dockerfile/ that ours needs.
"""

import fnmatch
import importlib
import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.rtsp import require_gstreamer


@dataclass(frozen=True)
class Instruction:
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The value as a shell would split it, or the entries of a JSON array."""
        return json.loads(self.value) if self.value.startswith("[") else shlex.split(self.value)


@dataclass
class Stage:
    base: str
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)

    def of(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]

    def index(self, name: str) -> int:
        return next(i for i, one in enumerate(self.instructions) if one.name == name)


@dataclass(frozen=True)
class Dockerfile:
    arguments: dict[str, str]  # before the first stage, with their defaults
    stages: list[Stage]


def read_dockerfile(path: Path) -> Dockerfile:
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for one in _instructions(path.read_text(encoding="utf-8")):
        if one.name == "FROM":
            base, *name = one.words
            stages.append(Stage(base, name[1] if name else None))
        elif stages:
            stages[-1].instructions.append(one)
        else:
            assert one.name == "ARG", f"{one.name} before the first FROM"
            name, _, default = one.value.partition("=")
            arguments[name] = default
    return Dockerfile(arguments, stages)


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [
        Instruction(name.upper(), value.strip())
        for name, _, value in (row.partition(" ") for row in whole.splitlines())
    ]


ROOT = Path(__file__).parents[3]
FILE = read_dockerfile(ROOT / "Dockerfile.l4t")
FINAL = FILE.stages[-1]
PAGE = (ROOT / "docs/container.md").read_text(encoding="utf-8")
SECRETS = (
    ".git/config",
    ".venv/bin/python",
    ".env",
    "id_ed25519",
    "credentials/gate-east",
    "edge/gate.key",
    "edge/deep/er/broker.pem",
    "edge/__pycache__/types.cpython-311.pyc",
    "out/demo/camera-1.mp4",
    "targets.toml",
    "models/yolo11s.onnx",
)


def is_in_context(name: str) -> bool:
    """Whether a file is sent to a build: the last line of .dockerignore that matches it or a folder of it says so."""
    is_in = True
    folders = [name, *(str(parent) for parent in Path(name).parents if str(parent) != ".")]
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.lstrip("!").strip()
        if not pattern or line.startswith("#"):
            continue
        deep = pattern.removeprefix("**/")
        names = [each for folder in folders for each in ([folder, Path(folder).name] if deep != pattern else [folder])]
        if any(fnmatch.fnmatchcase(each, deep) for each in names):
            is_in = line.startswith("!")
    return is_in


def test_every_base_is_the_argument_that_names_the_l4t_tag():
    assert [stage.base for stage in FILE.stages] == ["${BASE_IMAGE}"] * len(FILE.stages)
    assert re.fullmatch(r"nvcr\.io/nvidia/l4t-(tensorrt|jetpack):r[0-9.]+(-runtime)?", FILE.arguments["BASE_IMAGE"])
    assert f"`{FILE.arguments['BASE_IMAGE']}`" in PAGE


def test_nothing_is_piped_from_the_network_into_a_shell_or_fetched_unverified():
    for stage in FILE.stages:
        assert stage.of("ADD") == []
        for run in stage.of("RUN"):
            assert not re.search(r"\b(curl|wget|git clone)\b", run.value), run.value
            assert not re.search(r"\|\s*(ba)?sh\b", run.value), run.value


def test_the_image_runs_without_pip_and_without_a_shell_between_it_and_its_signals():
    for name in ("CMD", "HEALTHCHECK"):
        value = FINAL.of(name)[-1].value
        command = value[value.index("[") :]
        assert command.startswith('["edge-runtime", '), command
    assert FINAL.of("ENTRYPOINT") == []
    assert not any("pip" in run.value for run in FINAL.of("RUN"))
    assert "pip uninstall -y" in FILE.stages[0].of("RUN")[-1].value


def test_what_it_imports_of_ours_is_there():
    runs = "\n".join(run.value for stage in FILE.stages for run in stage.of("RUN"))
    imported = re.findall(r"from (edge[\w.]+) import ([\w, ]+);", runs)

    assert imported
    for module, names in imported:
        there = importlib.import_module(module)
        assert all(hasattr(there, name.strip()) for name in names.split(","))


def test_the_user_is_a_number_and_not_root_before_anything_runs():
    (user,) = FINAL.of("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user.value)
    assert FINAL.index("USER") < FINAL.index("CMD")
    assert "privileged" not in " ".join(one.value for one in FINAL.instructions)


def test_it_stops_as_the_service_does():
    assert [one.value for one in FINAL.of("STOPSIGNAL")] == ["SIGTERM"]


def test_package_lists_do_not_stay_in_a_layer():
    for stage in FILE.stages:
        for run in stage.of("RUN"):
            assert "apt-get update" not in run.value or "rm -rf /var/lib/apt/lists/*" in run.value


def test_what_is_copied_exists_and_is_sent_to_the_build():
    names = {stage.name for stage in FILE.stages}
    for stage in FILE.stages:
        for copy in stage.of("COPY"):
            *sources, target = copy.words
            if sources[0].startswith("--from="):
                assert sources.pop(0).removeprefix("--from=") in names
                continue
            plain = [source for source in sources if "[" not in source]
            assert plain, f"COPY {copy.value}: one source has to be there always"
            assert all((ROOT / source).exists() for source in plain), copy.value
            assert all(is_in_context(source) for source in plain), copy.value
            assert len(sources) == 1 or target.endswith("/")
    assert is_in_context("wheelhouse/pycuda-2026.1-cp310-cp310-linux_aarch64.whl")


def test_every_folder_of_the_package_is_sent_to_the_build():
    tracked = subprocess.run(
        ["git", "ls-files", "edge", "pipelines", "systemd"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [name for name in tracked.stdout.splitlines() if not is_in_context(name)] == []


def test_wheels_that_are_put_beside_it_are_never_committed():
    asked = subprocess.run(["git", "check-ignore", "wheelhouse/pycuda.whl"], cwd=ROOT, capture_output=True, check=False)

    assert asked.returncode == 0


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_caches_and_environments_are_not_sent_to_the_build(name):
    assert not is_in_context(name)


def test_the_gstreamer_packages_are_those_that_a_device_without_containers_is_told_to_install():
    page = (ROOT / "docs/first-device.md").read_text(encoding="utf-8")
    told = set(
        re.findall(
            r"\b(?:gstreamer1\.0|python3|gir1\.2)-[a-z0-9.-]+", page.split("sudo apt-get install")[1].split("##")[0]
        )
    )
    installed = set(FINAL.of("RUN")[0].words)
    assert told <= installed, told - installed


def run_check(**environment: str) -> subprocess.CompletedProcess:
    """Run the check of a base as the build does, on this machine's Python."""
    (check,) = [run.value for run in FINAL.of("RUN") if "ElementFactory" in run.value]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment}
    return subprocess.run(["sh", "-c", check], env=environment, capture_output=True, text=True)


def test_a_base_that_is_not_of_nvidia_needs_what_decodes_on_the_cpu():
    require_gstreamer("parsebin", "avdec_h264", "avdec_h265")

    assert run_check().returncode == 0
    told = run_check(GST_PLUGIN_SYSTEM_PATH="/nonexistent", GST_REGISTRY="/nonexistent/registry")
    assert told.returncode == 1
    assert "avdec_h264" in told.stderr


def test_a_base_of_nvidia_without_its_library_ends_the_build(tmp_path):
    require_gstreamer("parsebin", "avdec_h264", "avdec_h265")
    told = run_check(NVIDIA_VISIBLE_DEVICES="all")

    assert told.returncode == 1
    assert "tensorrt" in told.stderr

    (tmp_path / "tensorrt.py").touch()
    told = run_check(NVIDIA_VISIBLE_DEVICES="all", PYTHONPATH=str(tmp_path))
    assert "tensorrt" not in told.stderr


def test_the_list_of_packages_of_jetpack_6_0_is_one_that_the_server_has(tmp_path):
    """The line that the base has, as two public Dockerfiles that mend it print it."""
    line = "deb https://repo.download.nvidia.com/jetson/common r36.0 main\n"
    for stage in FILE.stages:
        mend = next(run.value for run in stage.of("RUN") if "apt-get update" in run.value).partition(" && ")[0]
        path = tmp_path / "sources.list.d/nvidia-l4t-apt-source.list"
        path.parent.mkdir(exist_ok=True)
        path.write_text(line)
        subprocess.run(["sh", "-c", mend.replace("/etc/apt", str(tmp_path))], check=True)

        assert path.read_text() == line.replace("r36.0", "r36.3")
