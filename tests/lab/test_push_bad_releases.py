"""Releases that are bad, each in its own way: the device ends with the old one serving, and says why."""

import dataclasses
from typing import Any

import pytest

from edge.bundle.manifest import GoldenLimits
from tests.lab.releases import HEALTH
from tests.support.wait import wait_until

SHORT = dataclasses.replace(HEALTH, hold_s=3, deadline_s=24)  # for what never gets well


def without_secret(pipeline: dict[str, Any]) -> None:
    pipeline["mqtt"]["credential"] = "absent"


def without_place_to_write(pipeline: dict[str, Any]) -> None:
    pipeline["publish"]["jsonl"] = "/var/lib/edge-deploy/out.jsonl"  # of another user, and read-only there


def with_a_dead_camera(pipeline: dict[str, Any]) -> None:
    east = next(one for one in pipeline["streams"] if one["id"] == "east")
    east.update(uri="rtsp://workstation:9/east", loop=False, realtime=False)


def with_an_absent_clip(pipeline: dict[str, Any]) -> None:
    pipeline["streams"][0]["uri"] = "/srv/clips/absent.mp4"


def assert_old_release_serves(site, shop) -> None:
    assert site.current() == shop.first.manifest.release
    site.wait_serving(shop.first.manifest.release)
    assert site.watcher.undeclared() == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [(without_place_to_write, "exit status 78"), (with_a_dead_camera, "stream east: 0.00 frames per second")],
)
def test_f21_a_release_that_fails_in_service_is_undone_and_taken_again_only_on_request(site, shop, change, reason):
    bad = shop.signer.variant(shop.first, pipeline=change, health=SHORT)

    said = site.push(bad)

    assert (said.code, said.result["event"], said.result["code"]) == (8, "rolled-back", "trial.refused"), said.told
    assert reason in said.result["hint"]
    assert_old_release_serves(site, shop)
    status = site.status()
    assert reason in status["state"]["last"]["reason"]
    assert status["bad"][bad.manifest.release]["verdict"] == "bad"
    wait_until(
        lambda: site.watcher.last_switch().get("release") == bad.manifest.release, what="the switch is published"
    )
    assert site.watcher.last_switch()["result"] == "rolled-back"
    assert reason in str(site.watcher.last_switch()["reason"])

    again = site.push(bad)

    assert (again.code, again.result["code"], again.result["bytes"]) == (6, "preflight.bad", 0)


def test_a_release_that_lacks_a_secret_of_the_device_is_undone_and_may_come_again(site, shop):
    release = shop.signer.variant(shop.first, pipeline=without_secret, health=SHORT)

    for said in (site.push(release), site.push(release)):
        assert (said.code, said.result["event"], said.result["code"]) == (8, "rolled-back", "trial.lacking"), said.told
        assert "credential 'absent' is not here" in said.result["hint"]
        assert_old_release_serves(site, shop)
    assert release.manifest.release not in site.status()["bad"]


@pytest.mark.parametrize(
    ("made", "code", "says"),
    [
        ({"pipeline": with_an_absent_clip}, "build.failed", "absent.mp4"),
        ({"golden": GoldenLimits(max_score_error=1e-6)}, "smoke.accuracy", "scores differ by"),
    ],
    ids=["a clip that is not there", "golden frames that are not met"],
)
def test_f20_a_release_that_cannot_be_proven_is_never_switched_to(site, shop, made, code, says):
    before = len(site.watcher.arrived())
    invocation = site.device.run("systemctl show -p InvocationID --value edge-runtime").stdout

    said = site.push(shop.signer.variant(shop.first, health=SHORT, **made))

    assert (said.code, said.result["event"], said.result["code"]) == (7, "failed", code), said.told
    assert says in said.result["hint"]
    assert_old_release_serves(site, shop)
    assert site.watcher.longest_silence_s(since=before) < 3  # it went on, on two busy cores
    assert site.device.run("systemctl show -p InvocationID --value edge-runtime").stdout == invocation


def test_f21_a_release_that_never_gets_ready_is_undone_at_the_start_deadline(site, shop):
    slow = shop.signer.variant(shop.first, health=SHORT, pipeline=lambda it: it["batch"].update(max_wait_ms=21))
    with site.drop_in("edge-runtime", "[Service]\nTimeoutStartSec=6s\nTimeoutStopSec=3s\n"):
        client = site.start_until("build", "end", "push", slow.path)
        wait_until(lambda: starting(site), what="the service starts", timeout_s=30)
        site.device.run("systemctl kill --kill-who=main -s STOP edge-runtime")

        said = site.end(client)

    assert (said.code, said.result["event"]) == (8, "rolled-back"), said.told
    assert "timeout" in said.result["hint"]
    assert_old_release_serves(site, shop)


def starting(site) -> bool:
    shown = site.device.run("systemctl show -p ActiveState -p MainPID --value edge-runtime").stdout.split()
    return "activating" in shown and "0" not in shown
