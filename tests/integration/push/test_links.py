"""Links that are cut, again and again, or fall silent; a real sshd behind a proxy."""

import os

import pytest

from edge.delivery import link
from edge.device.lock import PushLock
from edge.runtime.agent.session import SILENCE_S
from edge.transport.ssh import SshChannel
from tests.support.tcp_proxy import LinkProxy
from tests.support.wait import QuietWatch, wait_until

pytestmark = pytest.mark.slow_but(
    "test_f9_a_link_that_is_cut_five_times_costs_a_window_each_time", reason="further pushes over real agents"
)

MIB = 1024 * 1024


@pytest.fixture
def proxy(sshd):
    with LinkProxy(sshd.port) as running:
        yield running


def test_f9_a_link_that_is_cut_five_times_costs_a_window_each_time(device, sshd, proxy):
    size = 24 * MIB
    bundle = device.bundle(model=os.urandom(size))
    cuts = [0, 0.01, 0.5, 0.5, 0.999]
    address = sshd.address(port=proxy.port)

    def cut(event):
        is_upload = event.phase == "upload" and event.total and event.total > MIB
        if cuts and is_upload and (event.bytes or 0) >= min(cuts[0], 1) * event.total:
            cuts.pop(0)
            proxy.cut()

    outcome = device.push(bundle, lambda: SshChannel(address), on_event=cut)
    assert (outcome.result, cuts) == ("committed", [])
    assert proxy.connections >= 6
    assert size <= outcome.bytes_sent <= size + 5 * MIB
    stored = device.layout.blob(next(f.sha256 for f in bundle.manifest.files if f.path == "model.onnx"))
    assert stored.stat().st_size == size


def test_f8_a_link_that_falls_silent_is_noticed_by_both_sides(device, sshd, proxy, monkeypatch):
    # Both sides wait shorter than in life, so that this takes seconds; the real lengths are what the last lines hold.
    monkeypatch.setattr(link, "SILENCE_S", 3.0)
    sshd.allow([*device.command, "2.0"])
    address = sshd.address(port=proxy.port)
    bundle = device.bundle(model=os.urandom(8 * MIB))

    def pull(event):
        if event.phase == "upload" and (event.bytes or 0) > MIB and proxy.connections == 1:
            proxy.pull()

    watch = QuietWatch()
    outcome = device.push(bundle, lambda: SshChannel(address), on_event=pull, reconnect_s=0.0)
    assert watch.seconds() < 8.0
    assert (outcome.result, outcome.exit_code, outcome.code) == ("unreachable", 3, "transfer.timeout")
    assert outcome.seconds >= 3.0
    wait_until(lambda: PushLock(device.layout).holder() is None, what="the agent has ended", timeout_s=20)
    assert device.push(bundle, lambda: SshChannel(address)).result == "committed"
    monkeypatch.undo()
    assert link.SILENCE_S <= 20.0
    assert SILENCE_S == 30.0


def test_a_link_lost_in_the_trial_is_made_again_and_the_verdict_is_read(device, sshd, proxy):
    device.script(trial_s=1.0)
    address = sshd.address(port=proxy.port)

    def cut(event):
        if (event.phase, event.event) == ("trial", "progress") and proxy.connections == 1:
            proxy.cut()

    outcome = device.push(device.bundle(), lambda: SshChannel(address), on_event=cut)
    assert outcome.result == "committed"
    assert proxy.connections == 2


def test_a_device_that_does_not_come_back_is_given_up_with_exit_3(device, sshd, proxy):
    address = sshd.address(port=proxy.port)

    def leave(event):
        if (event.phase, event.event) == ("upload", "begin"):
            proxy.__exit__()

    outcome = device.push(
        device.bundle(model=os.urandom(2 * MIB)), lambda: SshChannel(address), on_event=leave, reconnect_s=2.0
    )
    assert (outcome.result, outcome.exit_code) == ("unreachable", 3)
    assert outcome.code.startswith("transfer.ssh")
    assert outcome.seconds < 10
    assert device.device.releases.current() is None
