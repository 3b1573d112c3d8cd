"""kill -9 of the client, of the agent, and of what systemd runs; restarts and power cuts: while a push is at work."""

import pytest

from tests.support.wait import wait_until

IN_EACH_PHASE = pytest.mark.parametrize(
    ("phase", "event"), [("upload", "progress"), ("build", "begin"), ("switch", "begin"), ("trial", "progress")]
)


def assert_converges(site, bundle) -> None:
    said = site.push(bundle, "--lock-wait", "60")

    assert said.code == 0, said.told + str(said.documents[-3:])
    assert said.result["event"] in ("committed", "unchanged")
    assert site.current() == bundle.manifest.release
    site.wait_serving(bundle.manifest.release)


def started(site, bundle, phase, event):
    """A push that is in a phase; of a switch, where the link has moved."""
    client = site.start_until(phase, event, "push", bundle.path)
    if phase == "switch":
        wait_until(lambda: site.current() == bundle.manifest.release, what="the switch moves", timeout_s=30)
    return client


@IN_EACH_PHASE
def test_f7_a_client_that_is_killed_leaves_a_device_that_serves_and_takes_the_next_push(
    site, large, figures, phase, event
):
    old = site.current()

    client = started(site, large, phase, event)
    site.kill(client)
    freed_s = site.seconds_until_free()

    assert site.current() in (old, large.manifest.release)
    if phase in ("switch", "trial"):
        wait_until(lambda: site.state()["phase"] == "idle", what="the device ends it alone", timeout_s=60)
        assert site.current() == large.manifest.release
    else:
        figures[f"lock free after the client is killed in {phase}"] = f"{freed_s:.2f} s"
        assert freed_s < 5
    assert_converges(site, large)


@IN_EACH_PHASE
def test_f6_an_agent_that_is_killed_is_called_again_and_the_push_ends_well(site, large, phase, event):
    client = started(site, large, phase, event)
    site.device.run("pkill -KILL -u edge-deploy -f 'edge-runtime agent'", check=False)

    said = site.end(client)

    assert (said.code, said.result["event"]) == (0, "committed"), said.told + str(said.documents[-3:])
    assert site.current() == large.manifest.release
    site.wait_serving(large.manifest.release)


def test_f19_a_build_that_is_killed_leaves_the_old_release_serving(site, large):
    old = site.current()
    client = site.start_until("build", "begin", "push", large.path)
    wait_until(lambda: site.is_in("edge-build", "activating"), what="the build runs")
    site.device.run("systemctl kill -s KILL edge-build")

    said = site.end(client)

    assert (said.code, said.result["code"]) == (7, "build.died"), said.told
    assert site.current() == old
    site.wait_serving(old)
    assert_converges(site, large)


@pytest.mark.parametrize("unit", ["edge-runtime", "edge-trial"])
def test_a_service_or_a_judge_that_is_killed_in_a_trial_sends_the_release_back(site, large, unit):
    old = site.current()
    client = site.start_until("trial", "progress", "push", large.path)
    site.device.run(f"systemctl kill --kill-who=main -s KILL {unit}")

    said = site.end(client)

    assert (said.code, said.result["event"]) == (8, "rolled-back"), said.told
    assert site.current() == old
    site.wait_serving(old)
    assert site.push(large).result["code"] == "preflight.bad"


def test_a_service_that_is_killed_serves_again_with_the_same_release(site):
    release, count = site.current(), len(site.watcher.arrived())

    site.device.run("systemctl kill --kill-who=main -s KILL edge-runtime")

    wait_until(lambda: len(site.watcher.arrived()) > count + 5, what="detections arrive again", timeout_s=40)
    site.wait_serving(release)
    assert site.state()["phase"] == "idle"
    # What the broker had not acknowledged is lost with the process: at most the messages of a moment.
    assert sum(map(len, site.watcher.undeclared().values())) <= 10


@pytest.mark.parametrize(
    ("how", "phase", "event"),
    [
        ("power", "upload", "progress"),
        ("power", "build", "begin"),
        ("power", "switch", "begin"),
        ("power", "trial", "progress"),
        ("reboot", "build", "begin"),
        ("reboot", "trial", "progress"),
    ],
)
def test_f1_a_device_that_goes_down_serves_again_and_the_same_push_goes_on(site, large, how, phase, event):
    old = site.current()

    client = started(site, large, phase, event)
    if how == "power":
        site.device.power_cut()
        site.device.boot()
    else:
        site.device.reboot()

    assert site.current() in (old, large.manifest.release)
    wait_until(lambda: site.is_in("edge-runtime", "active"), what="the service runs", timeout_s=60)
    said = site.end(client)
    if said.code:  # a reboot may have ended the trial as an orderly stop, which is a way back
        said = site.push(large, "--retry-bad")
    assert said.code == 0, said.told + str(said.documents[-3:])
    assert site.current() == large.manifest.release
    site.wait_serving(large.manifest.release)
    assert "Traceback" not in site.journal()
