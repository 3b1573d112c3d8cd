"""compose.yaml without a container runtime: what it mounts is there, what it names fits, and compose reads it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from edge.demo.show import DemoOptions
from tests.lab.container import FLAGS

ROOT = Path(__file__).parents[3]
CONTENT = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = CONTENT["services"]
PIPELINE = ROOT / "compose/pipeline.yaml"
ASKED = yaml.safe_load(PIPELINE.read_text(encoding="utf-8"))  # its files are there in the container only


def mounts(service: str) -> dict[str, str]:
    """Return for each path in a service's container what is mounted there."""
    return {target: source for source, target, *_ in (one.split(":") for one in SERVICES[service]["volumes"])}


def reader() -> list[str]:
    """Return a compose that can read the file; skip where there is none."""
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    installed = Path(sys.executable).with_name("podman-compose")
    if shutil.which("podman") and installed.is_file():
        return [str(installed)]
    pytest.skip("neither docker compose nor podman with podman-compose is installed")


def test_compose_reads_the_file():
    done = subprocess.run([*reader(), "-f", "compose.yaml", "config"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)["services"]
    assert set(read) == {"edge", "broker", "node-red"}
    assert read["edge"]["read_only"] is True


def test_what_is_mounted_is_in_the_checkout_or_made_by_the_demo():
    sources = {source for service in SERVICES for source in mounts(service).values() if source.startswith("./")}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    strange = [one for one in sources if f"\n{one[2:]}" not in f"\n{tracked}" and one != "./out/demo"]
    assert strange == []
    assert "edge-deploy demo --keep out/demo" in (ROOT / "compose.yaml").read_text(encoding="utf-8")


def test_the_service_is_closed_as_the_page_says():
    service = SERVICES["edge"]
    options = {f"--tmpfs {one}" for one in service["tmpfs"]} | {f"--cap-drop {one}" for one in service["cap_drop"]}
    options |= {f"--security-opt {one}" for one in service["security_opt"]} | {"--read-only"}

    assert service["read_only"] is True
    assert set(FLAGS) - options == {"--network host"}  # here it has a network with its broker
    assert all(":ro" in one for one in service["volumes"] if not one.startswith("edge-state:"))
    assert "privileged" not in json.dumps(CONTENT)


def test_only_this_machine_reaches_what_has_no_password():
    assert [
        port for service in SERVICES.values() for port in service.get("ports", ()) if port[:10] != "127.0.0.1:"
    ] == []


def test_the_images_are_of_named_versions():
    for service in SERVICES.values():
        assert re.fullmatch(r"[a-z.]+/[a-z/-]+:(?!latest)\S+", service["image"])


def test_the_flow_and_the_pipeline_name_the_broker_as_it_is_called_there():
    flow = json.loads((ROOT / "docs/node-red.json").read_text(encoding="utf-8"))
    (asked,) = [(node["broker"], node["port"]) for node in flow if node["type"] == "mqtt-broker"]
    settings = (ROOT / "compose/mosquitto.conf").read_text(encoding="utf-8")

    assert asked[0] in SERVICES["broker"]["networks"]["default"]["aliases"]
    assert f"listener {asked[1]}\n" in settings
    assert ASKED["mqtt"]["host"] in SERVICES
    assert ASKED["mqtt"]["tls"] is False


def test_its_cameras_are_those_of_the_demo():
    expected = [f"/demo/camera-{number}.mp4" for number in range(1, DemoOptions().cameras + 1)]
    assert [stream["uri"] for stream in ASKED["streams"]] == expected
    assert set(mounts("edge")) >= {"/demo", "/model", "/etc/edge/pipeline.yaml"}
