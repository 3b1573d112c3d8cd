"""The device image on a plain Debian, built by buildah and run by podman as docs/container.md says."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.deploy.provision.facts import ProvisionFacts
from edge.deploy.provision.wheels import gather_wheels
from tests.lab import image
from tests.lab.provisioning import ROOT

NEEDED = ("buildah", "podman", "runc", "debootstrap")
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# As in docs/container.md, but for the GPU; a test holds that they are there.
FLAGS = (
    "--read-only",
    "--tmpfs /tmp",
    "--tmpfs /run/edge-runtime",
    "--cap-drop ALL",
    "--security-opt no-new-privileges",
    "--network host",
)
# podman's own: nothing is pulled; no systemd times health checks here; a root of docker's has no tmpfs on its own.
_LOCAL = (
    *("--pull", "never", "--no-healthcheck", "--read-only-tmpfs=false"),
    *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
)
_BASES = {"bookworm": ((3, 11), (2, 36)), "jammy": ((3, 10), (2, 35)), "noble": ((3, 12), (2, 39))}
_BUILD_S = 4 * 3600  # emulated, on a busy machine


def build(architecture: str, work: Path) -> str:
    """Return the name of the device image for an architecture in Debian's words; unchanged layers are kept."""
    base, name = f"localhost/edge-base-{image.suite()}:{architecture}", f"localhost/edge-deploy:{architecture}"
    if podman("image", "exists", base, check=False).returncode:
        _import_base(architecture, base)
    context = _context(architecture, work / f"context-{architecture}")
    make_image(name, context, "Dockerfile.l4t", architecture, BASE_IMAGE=base)
    return name


def make_image(name: str, context: Path, file: str, architecture: str, **arguments: str) -> None:
    """Build an image from a Dockerfile in a folder; nothing is pulled."""
    options = ["--layers", "--isolation", "chroot", "--format", "docker", "--pull-never", "--arch", architecture]
    options += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    options += ["-f", str(context / file), "-t", name]
    _run(["buildah", *_storage(), "build", *options, str(context)], timeout_s=_BUILD_S)


@dataclass(frozen=True)
class Container:
    """One that runs."""

    name: str

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as its user."""
        return podman("exec", self.name, *command, check=check)

    def stop(self) -> int:
        """Stop it as `docker stop` does; return its exit code."""
        podman("stop", "--time", "60", self.name)
        return int(self._inspected("{{.State.ExitCode}}"))

    def is_running(self) -> bool:
        """Return whether its program has not ended."""
        return self._inspected("{{.State.Running}}") == "true"

    def log(self) -> str:
        """Return what it has said."""
        done = podman("logs", self.name, check=False)
        return done.stdout + done.stderr

    def _inspected(self, what: str) -> str:
        return podman("inspect", "--format", what, self.name).stdout.strip()


@contextmanager
def running(name: str, gates: Path) -> Iterator[Container]:
    """Run an image with the folder of a pipeline; it and its volume are gone at the end."""
    one = f"edge-{name.rpartition(':')[2]}"
    podman("rm", "--force", "--volumes", one, check=False)
    words = [word for flag in FLAGS for word in flag.split()]
    volumes = ["-v", f"{one}:/var/lib/edge-runtime", "-v", f"{gates}:/etc/edge:ro"]
    podman("run", "--detach", "--name", one, *_LOCAL, *words, *volumes, name)
    try:
        yield Container(one)
    finally:
        podman("rm", "--force", one, check=False)
        podman("volume", "rm", "--force", one, check=False)


def configuration(name: str) -> dict[str, Any]:
    """Return what an image says of itself."""
    found: dict[str, Any] = json.loads(podman("image", "inspect", name).stdout)[0]
    return found


def _context(architecture: str, folder: Path) -> Path:
    """Return a folder with what the Dockerfile needs, and all wheels: in the build no index is asked."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("edge", "pipelines", "systemd"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "LICENSE", ".dockerignore", "Dockerfile.l4t"):
        shutil.copy2(ROOT / name, folder / name)
    (folder / "wheelhouse").mkdir()
    wheels = gather_wheels(_facts(architecture))
    for name in wheels.digests:
        shutil.copy2(wheels.paths[name], folder / "wheelhouse" / name)
    return folder


def _facts(architecture: str) -> ProvisionFacts:
    python, glibc = _BASES[image.suite()]
    return ProvisionFacts(
        architecture=ARCHITECTURES[architecture],
        python=python,
        glibc=glibc,
        gpu_nodes=(),
        has_argus=False,
        l4t=None,
        has_key=False,
        has_signer=False,
        has_video=True,
        credentials=(),
        free_bytes=0,
    )


def _import_base(architecture: str, name: str) -> None:
    root = image.cache() / f"container-{image.suite()}-{architecture}"
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        partial = root.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        image.debootstrap(partial, architecture, ["ca-certificates"])
        partial.rename(root)
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packing:
        line = ["podman", *_storage(), "import", "--arch", architecture, "-", name]
        subprocess.run(line, stdin=packing.stdout, check=True, capture_output=True, timeout=600)


def podman(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of podman, on images and containers of our own."""
    return _run(["podman", *global_options(), *words], check=check)


def global_options() -> list[str]:
    """Return what every command of podman has to be told."""
    return [*_storage(), "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]


def _storage() -> list[str]:
    # Beside what else runs on this machine. Where overlays cannot be mounted: STORAGE_DRIVER=vfs.
    home = image.cache() / "containers"
    return ["--root", str(home / "storage"), "--runroot", str(home / "run")]


def _run(command: list[str], *, check: bool = True, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done
