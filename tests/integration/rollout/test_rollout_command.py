"""The commands of a rollout, as a person or a job types them, over a real registry and a real broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from edge.deploy.publish.publish import publish
from edge.deploy.rollout.rollout import this_second
from edge.rollout.device import RolloutDevice
from edge.rollout.rules import Rules
from tests.support.field_fleet import FieldFleet
from tests.support.registry import LOGIN
from tests.support.rolling import RollingDesk
from tests.support.wait import wait_until

pytestmark = pytest.mark.integration

PIPELINE = """\
version: 1
model: {{onnx: gates.onnx}}
streams: [{{id: gate, uri: "rtsp://camera/main"}}]
mqtt: {{host: {host}, port: {port}, site: workshop, tls: false}}
"""


class Typist:
    """Types `edge-deploy rollout ...` in a folder with a pipeline file and a login."""

    def __init__(self, folder, registry, broker):
        self.registry = registry
        self.where = f"{registry.host}/farms/gates"
        self._common = ["--ca", str(registry.certificates.ca), "--login", str(folder / "login")]
        self._broker = ["--pipeline", str(folder / "gates.yaml")]
        (folder / "gates.onnx").touch()
        (folder / "gates.yaml").write_text(PIPELINE.format(host=broker.host, port=broker.port))
        (folder / "login").write_text(f"{LOGIN.user}:{LOGIN.password}\n")

    def line(self, verb, *words, where=None, has_broker=True):
        command = [sys.executable, "-m", "edge.cli.edge_deploy", "rollout", verb, where or self.where, *self._common]
        return [*command, *(self._broker if has_broker else ()), *words]

    def type(self, verb, *words, **options):
        return subprocess.run(self.line(verb, *words, **options), capture_output=True, text=True, timeout=120)


@pytest.fixture
def typist(tmp_path, registry, broker):
    return Typist(tmp_path, registry, broker)


@pytest.fixture
def releases(registry, root):
    """An old release in both rings, and a new one that no ring has."""
    put = {"login": LOGIN, "ca": registry.certificates.ca}
    old, new = root.bundle("old"), root.bundle("new", sequence=2)
    for tag in ("stable-canary", "stable-all"):
        publish(old, registry.reference(tag), **put)
    publish(new, registry.reference(), **put)
    return old.manifest.release, new.manifest.release


@pytest.fixture
def there(fleet, releases):
    fleet.there("gate-01", "gate-02", ring="canary")
    fleet.there("gate-03", "gate-04", "gate-05", ring="all")
    fleet.switched("gate-01", "gate-02", "gate-03", "gate-04", "gate-05", release=releases[0])
    return fleet


@pytest.fixture
def begun(registry, there, releases):
    """A rollout that has begun, of both rings."""
    desk = RollingDesk(registry, this_second)
    devices = [RolloutDevice(name=f"north/{ring}", ring=ring, is_there=True) for ring in ("canary", "all")]
    with closing(desk):
        desk.rollout.start(desk.tags.release(releases[1]), ("canary", "all"), Rules(), devices)


def test_a_release_goes_over_two_rings_as_a_job_types_it(typist, there, releases):
    new = releases[1]
    started = typist.type("start", "--rings", "canary,all", "--hold", "0s", where=f"{typist.where}:{new}")
    assert started.returncode == 0, started.stderr
    assert f"release {new} of stable: running" in started.stdout

    waiting = typist.type("advance")
    assert waiting.returncode == 10, waiting.stderr
    assert "canary: 0 of 2 devices have committed it, 95 % are asked for" in waiting.stdout

    there.switched("gate-01", "gate-02", release=new)
    reached, moved = typist.type("advance"), typist.type("advance")
    assert (reached.returncode, moved.returncode) == (10, 0), moved.stderr
    there.switched("gate-03", "gate-04", "gate-05", release=new)
    codes = [typist.type("advance").returncode for _ in range(2)]
    assert codes == [10, 0]

    status = typist.type("status", "--json")
    told = json.loads(status.stdout)
    assert status.returncode == 0
    assert (told["phase"], [ring["committed"] for ring in told["rings"]]) == ("done", [2, 3])
    assert told["rings"][0]["devices"]["north/gate-01"]["standing"] == "committed"


def test_devices_that_name_the_registry_otherwise_are_told_of_and_taken_where_that_is_said(typist, broker, releases):
    other = FieldFleet(broker.port, "registry.lan:8443/farms/gates")
    other.there("gate-01", "gate-02", ring="canary")
    where = f"{typist.where}:{releases[1]}"

    unknown = typist.type("start", "--rings", "canary", where=where)
    known = typist.type("start", "--rings", "canary", "--known-as", "Registry.LAN:8443/farms/gates", where=where)

    assert unknown.returncode == 2
    assert "2 devices fetch stable from registry.lan:8443/farms/gates, none from localhost" in unknown.stderr
    assert "add --known-as registry.lan:8443/farms/gates" in unknown.stderr
    assert known.returncode == 0, known.stderr
    assert "canary: 0 of 2 devices have committed it" in known.stdout
    watching = subprocess.Popen(typist.line("watch"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "add --known-as registry.lan:8443/farms/gates" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=60)


def test_watching_shows_what_changes_and_ends_with_the_stop(typist, begun, there, releases):
    new = releases[1]
    watching = subprocess.Popen(
        typist.line("watch", "--every", "0.5"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert "canary: 0 committed, 0 failed, 2 waiting, 0 silent" in watching.stderr.readline()
    there.switched("gate-01", release=new)
    assert "canary: 1 committed, 0 failed, 1 waiting, 0 silent" in watching.stderr.readline()
    there.switched("gate-02", release=new, result="rolled-back", reason="p95 doubled")

    out, _ = watching.communicate(timeout=120)

    assert watching.returncode == 11
    assert f"release {new} of stable: stopped: canary: 1 of 2 devices have failed, more than 2 %" in out
    assert "failed: north/gate-02 rolled-back: p95 doubled" in out
    status = typist.type("status")
    assert status.returncode == 11
    assert re.search(r"canary +2 +1 +1 +0 +0", status.stdout)


def test_ctrl_c_ends_the_watching_and_nothing_else(typist, begun):
    watching = subprocess.Popen(typist.line("watch"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watching.stderr.readline()
    watching.send_signal(signal.SIGINT)

    _, said = watching.communicate(timeout=60)

    assert watching.returncode == 130
    assert "Traceback" not in said
    assert "running" in typist.type("status").stdout


def test_a_person_stops_it_without_a_broker(typist, begun, releases):
    stopped = typist.type("stop", "--why", "overheats", has_broker=False)
    assert (stopped.returncode, stopped.stdout) == (
        0,
        f"stopped: nobody else of canary takes release {releases[1]}\n",
    )
    assert "stopped: overheats" in typist.type("status").stdout


def test_a_person_gives_it_to_the_next_ring_anyway(typist, begun):
    assert typist.type("advance", "--anyway").returncode == 0
    told = json.loads(typist.type("status", "--json").stdout)
    assert all(ring["began_at"] for ring in told["rings"])


@pytest.mark.parametrize(
    ("words", "tag", "code", "said"),
    [
        (
            ["--rings", "canery,all"],
            True,
            2,
            "no device of canery is known at the broker, which knows all (3), canary (2)",
        ),
        (["--rings", "canary,canary"], True, 2, "each once"),
        (["--rings", "Canary!"], True, 2, "expected names as in canary,early,all"),
        (["--rings", "canary", "--share", "2"], True, 2, "expected a share such as 0.95 or 95%"),
        (["--rings", "canary", "--hold", "soon"], True, 2, "expected a time such as 90s, 30m, 2h or 1d"),
        (["--rings", "canary", "--share", "99%", "--max-failed", "5%"], True, 2, "more than 1 together"),
        (["--rings", "canary"], False, 2, "names no release"),
        (["--rings", "canary"], "0123456789ab", 12, "it is not there"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(typist, there, releases, words, tag, code, said):
    where = f"{typist.where}:{releases[1] if tag is True else tag}" if tag else typist.where
    done = typist.type("start", *words, where=where)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_where_nothing_is_rolled_out_that_is_said(typist, there):
    for verb in ("status", "watch", "advance"):
        done = typist.type(verb)
        assert done.returncode == 2, done.stderr
        assert "nothing has been rolled out there" in done.stderr


def test_a_broker_that_is_not_there_is_named(typist, there, broker):
    broker.stop()
    done = typist.type("status")
    assert done.returncode == 3
    assert f"{broker.host}:{broker.port}" in done.stderr


def test_a_registry_that_is_away_for_a_while_is_waited_for(typist, begun, there, releases, registry):
    watching = subprocess.Popen(
        typist.line("watch", "--every", "0.5"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watching.stderr.readline()
    registry.kill()
    assert "looked at again" in watching.stderr.readline()
    registry.__enter__()
    there.switched("gate-01", "gate-02", release=releases[1])

    lines = []
    wait_until(lambda: lines.append(watching.stderr.readline()) or "2 committed" in lines[-1], what="it goes on")
    watching.send_signal(signal.SIGTERM)
    watching.communicate(timeout=60)
