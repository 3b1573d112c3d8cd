"""compose.yaml as a whole: four cameras are seen by a subscriber on this machine, and by Node-RED."""

import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.request

import pytest

from tests.lab.compose import make_images, running
from tests.lab.container import NEEDED
from tests.support.collector import Collector
from tests.support.node_red import lacking
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(os.environ.get("EDGE_LAB_CONTAINER") != "1", reason="for make lab-container")
STREAMS = {f"camera-{number}" for number in range(1, 5)}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    missing = [name for name in (*NEEDED, "aardvark-dns") if shutil.which(name, path=PATH) is None]
    assert not missing, f"sudo apt-get install {' '.join(missing)}"
    assert importlib.util.find_spec("podman_compose"), "pip install podman-compose"
    assert not lacking(), lacking()
    make_images(tmp_path_factory.mktemp("images"))


PATH = f"{os.environ['PATH']}:/usr/lib/podman:/usr/libexec/podman"


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
