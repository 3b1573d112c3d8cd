"""The device image on Debian, for this machine's architecture and for a Jetson's: not root, nothing of it writable."""

import json
import os
import shutil

import pytest

from tests.lab import able, releases
from tests.lab.container import ARCHITECTURES, FLAGS, NEEDED, build, configuration, running
from tests.lab.provisioning import ROOT
from tests.support.mosquitto import Collector, Mosquitto
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(os.environ.get("EDGE_LAB_CONTAINER") != "1", reason="for make lab-container")
STREAMS = set(releases.CAMERA_SEEDS)
EACH = 10  # messages of each stream


@pytest.fixture(scope="module", params=ARCHITECTURES)
def built(request, tmp_path_factory):
    """The image for one architecture."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    assert not missing, f"sudo apt-get install {' '.join(missing)}"
    assert able.why_no_programs(request.param) is None, able.why_no_programs(request.param)
    return build(request.param, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    return releases.draw_cameras(tmp_path_factory.mktemp("shop") / "cameras")


@pytest.fixture(scope="module")
def site(built, cameras, tmp_path_factory):
    """A container that serves the demo's model from a mounted folder, its broker, and who listens to that."""
    home = tmp_path_factory.mktemp("site")
    with Mosquitto(home / "broker") as broker:
        pipeline = releases.write_pipeline(home / "gates", cameras, port=broker.port)
        values = json.loads(pipeline.read_text())
        values["mqtt"]["host"], values["engine"] = "127.0.0.1", {"kind": "auto"}
        (pipeline.parent / "pipeline.yaml").write_text(json.dumps(values))
        pipeline.parent.chmod(0o755)
        collector = Collector(broker.port)
        try:
            with running(built, pipeline.parent) as container:
                yield container, collector
        finally:
            collector.close()


def has_come(container, collector):
    assert container.is_running(), container.log()
    counts = {stream: len(numbers) for stream, numbers in collector.numbers().items()}
    return set(counts) == STREAMS and min(counts.values()) >= EACH


def test_detections_of_every_camera_arrive_at_a_subscriber(site):
    container, collector = site

    wait_until(lambda: has_come(container, collector), what="detections of both cameras", timeout_s=900)

    objects = [one for message in collector.payloads("/detections") for one in message["detections"]]
    assert len(objects) >= EACH
    assert "INT8" in container.log().upper()


def test_its_health_check_says_that_it_serves(site):
    container, collector = site
    wait_until(lambda: has_come(container, collector), what="detections of both cameras", timeout_s=900)

    health = json.loads(container.run("edge-runtime", "health", "--max-age", "120").stdout)

    assert set(health["streams"]) == STREAMS
    assert health["mqtt_connected"]


def test_it_is_nobody_and_may_write_its_state_only(site):
    container, _ = site
    status = container.run("cat", "/proc/self/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    assert set(fields["Uid"].split()) == {"10001"}
    assert (int(fields["CapEff"], 16), int(fields["CapBnd"], 16), fields["NoNewPrivs"]) == (0, 0, "1")
    for path in ("/", "/opt/edge", "/etc/edge", "/usr/bin"):
        assert container.run("touch", f"{path}/x", check=False).returncode, path
    assert container.run("touch", "/var/lib/edge-runtime/x", "/tmp/x").returncode == 0


def test_it_has_no_pip_and_no_compiler(site):
    for program in ("pip", "pip3", "cc", "curl", "wget", "ssh"):
        assert site[0].run("sh", "-c", f"command -v {program}", check=False).returncode, program
    assert site[0].run("python", "-m", "pip", "--version", check=False).returncode


def test_it_stops_as_the_service_does_and_nothing_is_lost_unsaid(site):
    """The last one: it stops the container."""
    container, collector = site
    wait_until(lambda: has_come(container, collector), what="detections of both cameras", timeout_s=900)

    code = container.stop()

    assert code == 0, container.log()
    assert "the counts balance" in container.log()
    states = [one["state"] for one in collector.payloads("/state") if one.get("schema", "").startswith("edge.state")]
    assert states[-1] == "offline"
    for stream, numbers in collector.numbers().items():
        assert collector.undeclared(stream, max(numbers)) == set()


def test_the_image_says_how_it_is_checked_and_stopped(built):
    config = configuration(built)["Config"]

    assert config["User"] == "10001:10001"
    assert config["StopSignal"] in ("SIGTERM", "15")
    assert list(config["Volumes"]) == ["/var/lib/edge-runtime"]
    assert configuration(built)["Healthcheck"]["Test"] == ["CMD", "edge-runtime", "health"]


def test_it_ran_with_the_options_that_the_page_names():
    page = (ROOT / "docs/container.md").read_text(encoding="utf-8")

    assert [flag for flag in FLAGS if flag not in page] == []
