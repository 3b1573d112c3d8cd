"""The service on its device: watched by systemd, caged, and quiet."""

import os
import re
import time

import pytest

from tests.lab.provisioning import provision
from tests.lab.releases import QUICK
from tests.support.rtsp import RtspMount, RtspServer, require_gstreamer
from tests.support.wait import wait_until

WATCHDOG_S = 5
SKIPPED = "edge-rollback.service: Skipped due to 'exec-condition'"
# What systemd 252 of the device says of units that run there; higher is weaker.
MOST_EXPOSED = {"edge-runtime": 1.5, "edge-build": 0.8, "edge-trial": 0.5, "edge-recover": 0.5, "edge-rollback": 0.5}


def restarts(site) -> int:
    return int(site.device.run("systemctl show -p NRestarts --value edge-runtime").stdout)


def test_f27_a_service_that_hangs_is_killed_and_serves_again(site, shop):
    release = shop.first.manifest.release
    with site.drop_in("edge-runtime", f"[Service]\nWatchdogSec={WATCHDOG_S}s\nTimeoutAbortSec=2s\n"):
        site.device.run("systemctl restart edge-runtime")
        site.wait_serving(release)
        began = time.monotonic()
        site.device.run("systemctl kill --kill-who=main -s STOP edge-runtime")

        wait_until(lambda: restarts(site) == 1, what="systemd starts it again", timeout_s=WATCHDOG_S + 15)
        assert time.monotonic() - began < WATCHDOG_S + 10
        site.wait_serving(release)

    assert "Watchdog timeout" in site.journal()
    assert site.state()["phase"] == "idle"


def test_f28_a_service_whose_cameras_are_all_down_stays_up_and_says_so(site, shop):
    require_gstreamer("rtpjpegpay", server=True)
    with RtspServer({"/camera": RtspMount("", "jpeg")}, host=site.device.host_address) as cameras:

        def live(pipeline) -> None:
            for stream in pipeline["streams"]:
                stream.update(uri=cameras.url("/camera"), loop=False, realtime=False, max_fps=5)

        with site.drop_in("edge-runtime", f"[Service]\nWatchdogSec={WATCHDOG_S}s\n"):
            said = site.push(shop.signer.variant(shop.first, health=QUICK, pipeline=live))
            assert (said.code, said.result["event"]) == (0, "committed"), said.result
            run, began = site.invocation(), time.monotonic()
            cameras.kill()
            wait_until(lambda: site.watcher.state() == "degraded", what="the device says degraded", timeout_s=30)
            wait_until(lambda: time.monotonic() - began > 3 * WATCHDOG_S, what="three watchdogs pass", timeout_s=60)

            assert (site.invocation(), site.is_in("edge-runtime", "active")) == (run, True)

            cameras.start()
            wait_until(lambda: site.watcher.state() == "online", what="the device says online", timeout_s=60)
            assert site.invocation() == run


@pytest.mark.parametrize(
    ("stops", "result"), [("KillSignal=SIGCONT\nTimeoutStopSec=2s", "timeout"), ("KillSignal=SIGSEGV", "signal")]
)
def test_a_release_that_hangs_or_crashes_when_told_to_stop_is_stopped_and_nothing_is_undone(site, shop, stops, result):
    new = shop.signer.variant(shop.first, health=QUICK, more={"clips/other.bin": os.urandom(1000)})
    release = new.manifest.release
    told = {name: site.journal().count(name) for name in (f"Failed with result '{result}'", SKIPPED)}

    def wait_failed(times: int) -> None:
        wanted = {name: count + times for name, count in told.items()}
        wait_until(
            lambda: {name: site.journal().count(name) for name in told} == wanted,
            what=f"the service has failed {times} times, and the way back was not taken",
            timeout_s=20,
        )

    with site.drop_in("edge-runtime", f"[Service]\n{stops}\n"):
        said = site.push(new)
        assert (said.code, said.result["event"]) == (0, "committed"), said.told + site.journal()[-2000:]
        wait_failed(1)

        site.device.run("systemctl restart edge-runtime")
        run = site.invocation()
        wait_failed(2)
        site.wait_serving(release)
        assert site.invocation() == run

        site.device.run("systemctl stop edge-runtime")
        wait_failed(3)
        assert site.is_in("edge-runtime", "failed")

    site.device.run("systemctl start edge-runtime")
    site.wait_serving(release)
    assert (site.current(), site.state()["phase"]) == (release, "idle")


@pytest.mark.parametrize("unit", sorted(MOST_EXPOSED))
def test_the_running_units_are_caged(site, unit):
    told = site.device.run(f"systemd-analyze security --no-pager {unit}").stdout
    found = re.search(r"exposure level for .*: ([0-9.]+)", told)

    assert found is not None, told
    print(f"lab: exposure of {unit}: {found[1]}")
    assert float(found[1]) <= MOST_EXPOSED[unit]


def test_a_device_that_is_provisioned_again_after_an_undo_serves_what_it_served(site):
    release = site.current()
    assert provision(site.device, "--undo").returncode == 0
    assert site.is_in("edge-runtime", "inactive")

    planned = provision(site.device, "--plan")
    again = provision(site.device)

    assert "start edge-runtime.service" in planned.stdout, planned.stderr
    assert again.returncode == 0, again.stderr
    site.wait_serving(release)
    assert (site.current(), site.is_in("edge-recover", "active")) == (release, True)
    assert "nothing to change" in provision(site.device, "--plan").stdout


def test_the_journal_has_no_traceback(site):
    assert "Traceback" not in site.journal()
