"""`edge-runtime run --release` in its own process: a device in a folder, a real model, broker and notify socket."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys

import pytest

from edge.bundle.sign import sign
from edge.device.engines import read_record
from edge.device.facts import this_moment
from edge.device.health import read_health
from edge.device.switch import commit, roll_back
from edge.runtime.build.request import read_request
from edge.runtime.serve.engine import open_release
from edge.runtime.trial.rollback import go_back, recover_at_boot
from tests.support.deployable import deployable
from tests.support.device_releases import attach_engine, flip, forge, plan_of, put_on_trial, signer_of, stage
from tests.support.logged import logged
from tests.support.raised import error_of
from tests.support.runs import build_for_release, builder
from tests.support.systemd import NotifySocket
from tests.support.units import failed_units
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(reason="further services over real models: the first row of each test is quick")
LOOPED = [{"id": "a", "uri": "clips/clip.mp4", "loop": True, "realtime": True}]


class Served:
    """A service's process, as systemd would start it."""

    def __init__(self, device, folder, *, watchdog_s=None):
        self.systemd = NotifySocket(folder / "notify", watchdog_s=watchdog_s)
        self.health = device.layout.health
        environ = {
            **os.environ,
            **self.systemd.environ,
            "INVOCATION_ID": "1" * 32,
            "RUNTIME_DIRECTORY": str(self.health.parent),
            "STATE_DIRECTORY": str(folder / "state"),
        }
        command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--release", str(device.layout.current)]
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.systemd.close()

    def end(self, number=None):
        if number is not None:
            self.process.send_signal(number)
        told = self.process.communicate(timeout=60)[1]
        assert "Traceback" not in told
        return self.process.returncode, told


def current(device, folder, **how):
    release = deployable(device, folder / "source", **how)
    build_for_release(builder(device), release)
    put_on_trial(device, release)
    return release


def test_a_release_is_served_and_says_how_it_stands(device, tmp_path):
    release = current(device, tmp_path, streams=LOOPED)
    with Served(device, tmp_path, watchdog_s=3) as served:
        wait_until(lambda: "READY=1" in served.systemd.lines, what="ready")
        wait_until(lambda: served.systemd.count("WATCHDOG=1") >= 3, what="the watchdog is fed")
        health = read_health(served.health)
        code, _ = served.end(signal.SIGTERM)

    assert code == 0
    assert (health.release, health.invocation, health.is_ready) == (release, "1" * 32, True)
    assert health.streams["a"].inferred > 0
    lines = served.systemd.lines
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in lines[: lines.index("READY=1")])
    assert lines.index("READY=1") < lines.index("WATCHDOG=1") < lines.index("STOPPING=1")


def state_of(served, stream):
    health = read_health(served.health)
    return None if health is None else health.streams[stream].state


def acknowledged(served):
    health = read_health(served.health)
    return 0 if health is None else health.mqtt_acknowledged  # detections may arrive before the first health file


def test_the_messages_name_release_engine_and_device(device, tmp_path, broker, subscribe):
    collector = subscribe(broker.port)
    mqtt = {"host": "127.0.0.1", "port": broker.port, "tls": False}
    pipeline = {"mqtt": mqtt, "publish": {"mode": "all"}, "device": None}
    release = current(device, tmp_path, streams=LOOPED, pipeline=pipeline)
    key = device.releases.engine_key(release)
    with Served(device, tmp_path) as served:
        wait_until(lambda: collector.payloads("/detections"), what="detections")
        wait_until(lambda: acknowledged(served) > 3, what="acknowledged messages")
        assert read_health(served.health).mqtt_connected
        assert served.end(signal.SIGTERM)[0] == 0
    info, found = collector.payloads("/info")[-1], collector.payloads("/detections")[0]

    assert info["device"] == found["device"] == "gate-01"  # as device.toml says
    for model in (info["model"], found["model"]):
        assert (model["release"], model["engine"], model["name"]) == (release, key[:8], "gates")


def test_a_device_whose_name_cannot_be_read_serves_under_its_host_name_and_says_so(device, tmp_path, caplog):
    release = current(device, tmp_path, streams=LOOPED, pipeline={"device": None})
    device.layout.device_toml.write_text('name = "gate-01\n')

    assert open_release(device.layout.release(release))[1].device is None

    assert "device-name-unknown" in logged(caplog)
    assert "device.toml:1" in caplog.text


def test_f21_how_the_last_switch_ended_is_published_at_the_start_and_at_the_verdict(
    device, tmp_path, broker, subscribe
):
    collector = subscribe(broker.port)
    mqtt = {"host": "127.0.0.1", "port": broker.port, "tls": False}
    release = current(device, tmp_path, streams=LOOPED, pipeline={"mqtt": mqtt})
    commit(device, moment=this_moment())
    broken = stage(device, sequence=2)
    attach_engine(device, broken)
    put_on_trial(device, broken)
    roll_back(device, "gate gives no frames", moment=this_moment())
    with Served(device, tmp_path) as served:
        wait_until(lambda: collector.payloads("/deploy"), what="how it ended")
        put_on_trial(device, release)
        commit(device, moment=this_moment())
        wait_until(lambda: len(collector.payloads("/deploy")) == 2, what="the new verdict")
        assert served.end(signal.SIGTERM)[0] == 0
    first, second = collector.payloads("/deploy")

    assert (first["release"], first["from"], first["result"]) == (broken, release, "rolled-back")
    assert (first["device"], first["reason"]) == ("gate-01", "gate gives no frames")
    assert (second["release"], second["result"], second["reason"]) == (release, "committed", None)


def test_a_service_that_is_told_to_stop_has_not_failed_though_a_camera_is_down(device, tmp_path):
    away = {"id": "b", "uri": "rtsp://127.0.0.1:9/away"}
    current(device, tmp_path, streams=[*LOOPED, away])
    with Served(device, tmp_path) as served:
        wait_until(lambda: read_health(served.health) is not None, what="health")
        wait_until(lambda: state_of(served, "b") == "down", what="down")

        assert served.end(signal.SIGTERM)[0] == 0


def refused(device, folder):
    with Served(device, folder) as served:
        code, told = served.end()
        assert "READY=1" not in served.systemd.lines
    assert code == 78
    assert told.startswith("error: ")
    return told


def test_f15_a_bit_that_flipped_in_the_plan_is_never_loaded_and_the_plan_is_built_anew(device, tmp_path):
    release = current(device, tmp_path, streams=LOOPED)
    device.write_state(type(device.state())())  # proven
    key = device.releases.engine_key(release)
    flip(device.layout.engine(key) / "model.plan")

    assert "is not what was built" in refused(device, tmp_path / "")
    assert go_back(device, failed_units(78), "unit-failed").release == release
    assert read_request(device.layout.build_request).release == release
    build_for_release(builder(device), release)

    assert hashlib.sha256(plan_of(device, key)[1]).hexdigest() == plan_of(device, key)[0].plan_sha256


def harmful(device, release):
    """The release's pipeline as an attacker would have it: it says where frames go."""
    content = json.loads((device.layout.release(release) / "pipeline.yaml").read_bytes())
    return json.dumps({**content, "publish": {"mode": "all", "jsonl": "/tmp/frames-for-an-attacker"}}).encode()


def test_after_a_changed_release_the_newest_valid_one_serves_and_with_none_it_stays_stopped_with_a_reason(
    device, tmp_path
):
    old = current(device, tmp_path, streams=LOOPED)
    commit(device, moment=this_moment())
    new = deployable(device, tmp_path / "new", streams=LOOPED, sequence=2)
    device.releases.attach_engine(new, device.releases.engine_key(old))
    put_on_trial(device, new)
    commit(device, moment=this_moment())
    forge(device, new, "pipeline.yaml", harmful(device, new))

    assert go_back(device, failed_units(78), "unit-failed").release == old
    assert "signature" in device.state().last.reason
    forge(device, old, "pipeline.yaml", harmful(device, old))
    assert error_of(go_back, device, failed_units(78), "unit-failed").exit_code == 9
    last = device.state().last
    assert (last.result, "signature" in last.reason) == ("failed", True), last
    error_of(recover_at_boot, device, moment=dataclasses.replace(this_moment(), boot_id="boot-2"))
    assert device.state().last.reason == f"{old} is current, and no release is valid"
    refused(device, tmp_path)


def flipped(file):
    return lambda device, release: flip(device.layout.blob(device.releases.blobs(release)[file]))


def changed_with_its_manifest(device, release):
    forge(device, release, "pipeline.yaml", harmful(device, release))


def signed_by_a_stranger(device, release):
    signed = device.layout.release(release) / "manifest.json.sig"
    signed.unlink()
    signed.write_bytes(sign(device.releases.manifest(release), signer_of(device, "stranger")))


def another_one_under_its_name(device, release):
    other = stage(device, sequence=2)
    device.releases.attach_engine(other, device.releases.engine_key(release))
    device.durable.remove_tree(device.layout.release(release))
    device.layout.release(other).rename(device.layout.release(release))


def without_engine(device, release):
    (device.layout.release(release) / "engine").unlink()


def built_from(**inputs):
    """Move the engine to what it would be if it had been built from other inputs."""

    def harm(device, release):
        key = device.releases.engine_key(release)
        record = read_record(device.engines, key)
        moved = dataclasses.replace(record, inputs=dataclasses.replace(record.inputs, **inputs))
        (device.layout.engine(key) / "build.json").write_bytes(moved.encode())
        device.layout.engine(key).rename(device.layout.engine(moved.inputs.key))
        device.releases.attach_engine(release, moved.inputs.key)

    return harm


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (flipped("model.onnx"), "model.onnx is not what was pushed (device.release.damaged)"),
        (flipped("pipeline.yaml"), "pipeline.yaml is not what was pushed (device.release.damaged)"),
        (flipped("clips/clip.mp4"), "clips/clip.mp4 is not what was pushed (device.release.damaged)"),
        (changed_with_its_manifest, "(verify.signature"),
        (signed_by_a_stranger, "(verify.signature"),
        (another_one_under_its_name, "(device.release.damaged)"),
        (without_engine, "device.engine.missing"),
        (built_from(versions={"openvino": "1.0", "architecture": "x86_64"}), "openvino 1.0 is now 20"),
        (built_from(max_batch=7), "max_batch: built with 7, now 1"),
        (built_from(onnx_sha256="1" * 64), "onnx_sha256"),
    ],
    ids=["model", "pipeline", "clip", "manifest", "signer", "name", "no-engine", "f24-version", "batch", "other-model"],
)
def test_f15_a_release_or_an_engine_that_is_not_what_it_says_is_not_served(device, tmp_path, harm, told):
    harm(device, current(device, tmp_path, streams=LOOPED))

    assert told in refused(device, tmp_path)


def test_a_folder_that_is_no_release_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--release", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "expected a release of this device" in done.stderr
