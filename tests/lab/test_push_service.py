"""The service on its device: watched by systemd, caged, and quiet."""

from __future__ import annotations

import dataclasses
import re
import time

import pytest

from tests.lab.releases import HEALTH
from tests.lab.units import drop_in
from tests.support.wait import wait_until

WATCHDOG_S = 5
# What systemd 252 computes; higher is weaker. Read on the devices of docs/targets, see docs/adr/0007-push.md.
MOST_EXPOSED = {"edge-runtime": 4.0, "edge-build": 3.5, "edge-trial": 3.0, "edge-recover": 3.0, "edge-rollback": 3.0}


def restarts(site) -> int:
    return int(site.device.run("systemctl show -p NRestarts --value edge-runtime").stdout)


def test_f27_a_service_that_hangs_is_killed_and_serves_again(site, shop):
    release = shop.first.manifest.release
    with drop_in(site.device, "edge-runtime", f"[Service]\nWatchdogSec={WATCHDOG_S}s\nTimeoutAbortSec=2s\n"):
        site.device.run("systemctl restart edge-runtime")
        site.wait_serving(release)
        began = time.monotonic()
        site.device.run("systemctl kill --kill-whom=main -s STOP edge-runtime")

        wait_until(lambda: restarts(site) == 1, what="systemd starts it again", timeout_s=WATCHDOG_S + 15)
        assert time.monotonic() - began < WATCHDOG_S + 10
        site.wait_serving(release)

    assert "Watchdog timeout" in site.journal()
    assert site.state()["phase"] == "idle"


def test_f28_a_service_without_any_camera_stays_up_and_says_so(site, shop):
    def without_cameras(pipeline) -> None:
        for number, stream in enumerate(pipeline["streams"]):  # others than those that gave frames before
            stream.update(id=f"dark-{number}", uri="rtsp://workstation:9/dark", loop=False, realtime=False)

    health = dataclasses.replace(HEALTH, hold_s=3, deadline_s=30)
    dark = shop.signer.variant(shop.first, health=health, pipeline=without_cameras)
    with drop_in(site.device, "edge-runtime", f"[Service]\nWatchdogSec={WATCHDOG_S}s\n"):
        said = site.push(dark)
        assert (said.code, said.result["event"]) == (0, "committed"), said.told
        began = restarts(site), time.monotonic()
        wait_until(lambda: time.monotonic() - began[1] > 3 * WATCHDOG_S, what="three watchdogs pass", timeout_s=60)

        assert restarts(site) == began[0]
        assert site.is_in("edge-runtime", "active")
        assert site.watcher.state() == "degraded"

    assert site.do("rollback").code == 0
    site.wait_serving(shop.first.manifest.release)
    wait_until(lambda: site.watcher.state() == "online", what="the device says online")


@pytest.mark.parametrize("unit", sorted(MOST_EXPOSED))
def test_the_running_units_are_caged(site, unit):
    told = site.device.run(f"systemd-analyze security --no-pager {unit}").stdout
    found = re.search(r"exposure level for .*: ([0-9.]+)", told)

    assert found is not None, told
    print(f"lab: exposure of {unit}: {found[1]}")
    assert float(found[1]) <= MOST_EXPOSED[unit]


def test_the_journal_has_no_traceback(site):
    assert "Traceback" not in site.journal()
