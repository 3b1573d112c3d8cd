"""The days of a device on which all goes well: pushed to, pushed to again, taken back, confirmed."""

import dataclasses
import json

import pytest

from edge.bundle.folder import Bundle
from edge.bundle.manifest import Role
from edge.device.engines import BUILD, GOLDEN
from tests.lab.releases import HEALTH, length_bytes
from tests.support.wait import QuietWatch, wait_until


def streams(site) -> dict[str, str]:
    return {name: one["state"] for name, one in site.status()["health"]["streams"].items()}


def digest_of(bundle: Bundle, role: Role) -> str:
    (one,) = (file for file in bundle.manifest.files if file.role is role)
    return one.sha256


def test_a_provisioned_machine_serves_its_first_push_and_says_so(site, shop):
    release = shop.first.manifest.release

    status = site.status()

    assert status["current"] == release
    assert status["state"]["last"]["result"] == "committed"
    assert status["health"]["release"] == release
    wait_until(lambda: streams(site) == {"east": "up", "west": "up"}, what="status shows both cameras up")
    wait_until(lambda: {one.stream for one in site.watcher.arrived()} == {"east", "west"}, what="both cameras arrive")
    assert site.watcher.state() == "online"


def test_an_unchanged_push_sends_nothing(site, shop, figures):
    watch = QuietWatch()
    said = site.push(shop.first)
    quiet_s = watch.seconds()

    assert (said.code, said.result["event"]) == (0, "unchanged"), said.told
    assert said.result["bytes"] < length_bytes(shop.first) / 100
    assert quiet_s < 2.0
    figures["unchanged push"] = f"{said.result['bytes']} bytes of {length_bytes(shop.first)}, {said.seconds:.1f} s"


def test_a_new_table_reaches_a_serving_device_which_serves_until_the_switch(site, shop, figures):
    old, new = shop.first.manifest.release, shop.second.manifest.release
    before = len(site.watcher.arrived())

    said = site.push(shop.second)

    assert (said.code, said.result["event"]) == (0, "committed"), said.told
    assert said.result["bytes"] < length_bytes(shop.first) / 50  # the table, the pipeline, the golden answers
    site.wait_serving(new)
    gap_s = site.watcher.longest_silence_s(since=before)
    figures["new table"] = (
        f"{said.result['bytes']} bytes, {said.seconds:.1f} s, of which the trial {said.took_s('trial'):.1f} s"
    )
    figures["gap in service at a switch"] = f"{gap_s:.2f} s"
    assert gap_s < 15
    arrived = site.watcher.arrived()
    first_of_new = next(index for index, one in enumerate(arrived) if one.release == new)
    assert {one.release for one in arrived[:first_of_new]} == {old}
    assert {one.release for one in arrived[first_of_new:]} == {new}
    assert arrived[first_of_new].epoch > arrived[first_of_new - 1].epoch
    assert arrived[first_of_new].seq == 1
    assert site.watcher.undeclared() == {}
    wait_until(lambda: site.watcher.last_switch().get("release") == new, what="the switch is published")
    assert site.watcher.last_switch()["result"] == "committed"


def test_another_model_gets_an_engine_of_its_own_and_serves(site, shop, retrained, figures):
    engines, before = set(site.file("engines").iterdir()), len(site.watcher.arrived())
    assert digest_of(retrained, Role.MODEL) != digest_of(shop.first, Role.MODEL)

    said = site.push(retrained)

    assert (said.code, said.result["event"]) == (0, "committed"), said.told
    site.wait_serving(retrained.manifest.release)
    gap_s = site.watcher.longest_silence_s(since=before)
    figures["another model"] = (
        f"{said.result['bytes']} bytes, {said.seconds:.1f} s, of which the build {said.took_s('build'):.1f} s; "
        f"gap in service {gap_s:.2f} s"
    )
    (engine,) = set(site.file("engines").iterdir()) - engines
    inputs = json.loads((engine / BUILD).read_text())["inputs"]
    assert inputs["onnx_sha256"] == digest_of(retrained, Role.MODEL)
    assert inputs["calibration_sha256"] == digest_of(retrained, Role.CALIBRATION)
    # Written by the device: the bundle cannot know what the engine finds there.
    assert json.loads((engine / GOLDEN).read_text())["found"] > 0
    assert gap_s < 15
    assert site.watcher.undeclared() == {}


def test_logs_show_what_the_units_wrote(site):
    lines = site.do("logs", "-n", "200").result[site.device.name]["lines"]

    assert any("committed release=" in line for line in lines)


def test_a_rollback_takes_seconds(site, shop, figures):
    before = len(site.watcher.arrived())

    watch = QuietWatch()
    said = site.do("rollback")

    assert (said.code, said.result["event"]) == (0, "rolled-back"), said.told
    assert watch.seconds() < 10
    site.wait_serving(shop.second.manifest.release)
    gap_s = site.watcher.longest_silence_s(since=before)
    figures["rollback"] = f"{said.seconds:.1f} s, gap in service {gap_s:.2f} s"
    assert site.watcher.undeclared() == {}


def test_a_push_that_is_confirmed_from_here_stays(site, retrained):
    said = site.push(retrained, "--confirm", "--retry-bad")

    assert (said.code, said.result["event"]) == (0, "committed"), said.told
    assert site.state()["confirm"] is False


@pytest.mark.parametrize("is_confirmed", [True, False], ids=["confirmed-later", "never-confirmed"])
def test_a_push_whose_client_is_gone_before_it_confirms(site, shop, is_confirmed):
    # Long enough for a person to type one more command.
    health = dataclasses.replace(HEALTH, deadline_s=40 if not is_confirmed else 120)
    new = shop.signer.variant(shop.first, health=health, pipeline=lambda it: it["batch"].update(max_frames=1))
    old = site.current()

    client = site.start_until("switch", "begin", "push", new.path, "--confirm")
    wait_until(lambda: site.current() == new.manifest.release, what="the switch moves", timeout_s=30)
    site.kill(client)
    if is_confirmed:
        assert site.do("confirm").code == 0

    wait_until(lambda: site.state()["phase"] == "idle", what="the trial ends", timeout_s=90)
    last = site.state()["last"]
    assert last["release"] == new.manifest.release
    if is_confirmed:
        assert (last["result"], site.current()) == ("committed", new.manifest.release)
    else:
        assert (last["result"], site.current()) == ("rolled-back", old)
        assert "nobody has confirmed it" in last["reason"]
    site.wait_serving(site.current())
