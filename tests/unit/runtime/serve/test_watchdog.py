"""When `WATCHDOG=1` may be sent: made-up accounts of a run, heard on a real socket."""

import pytest

from edge.device.units import Notifier
from edge.runtime.serve.serve import Heartbeat
from edge.types import DropReason
from tests.support.service_parts import CONNECTING, DOWN, ENDED, UP, account
from tests.support.systemd import NotifySocket
from tests.support.wait import wait_until


@pytest.mark.parametrize(
    ("turns", "batches", "streams", "has_work", "hanging", "is_fed"),
    [
        (20, 11, [(UP, 11, 11)], True, (), True),
        (20, 11, [(UP, 11, 11), (DOWN, 0, 0)], False, (), True),
        (20, 10, [(DOWN, 10, 10), (ENDED, 5, 5)], False, (), True),
        (20, 10, [(UP, 15, 10, {"dropped": {DropReason.MAX_FPS: 5}})], False, (), True),
        (20, 10, [(UP, 10, 10)], False, (), True),
        (20, 10, [(CONNECTING, 0, 0)], False, (), True),
        (10, 10, [(DOWN, 10, 10)], False, (), False),
        (10, 11, [(UP, 11, 11)], True, (), False),
        (20, 10, [(UP, 12, 10)], True, (), False),
        (20, 11, [(UP, 11, 11), (UP, 0, 0)], True, ("pull-s1",), False),
        (20, 10, [(CONNECTING, 0, 0)], False, ("pull-s0",), False),
        (20, 11, [(UP, 11, 11), (DOWN, 0, 0)], True, ("teardown s1",), False),
    ],
    ids=[
        "a-batch-completed",
        "one-camera-down",
        "f28-all-down-or-ended",
        "all-frames-dropped-by-max-fps",
        "up-and-silent-for-less-than-its-stall-s",
        "connecting",
        "f27-loop-stuck-and-all-down",
        "f27-loop-stuck",
        "frames-wait-and-no-batch-completes",
        "one-of-two-hangs-in-a-read",
        "hangs-while-connecting",
        "a-teardown-hangs",
    ],
)
def test_the_watchdog_is_fed_by_progress_only(tmp_path, caplog, turns, batches, streams, has_work, hanging, is_fed):
    now = [0.0]
    with NotifySocket(tmp_path / "notify", watchdog_s=30) as systemd:
        heartbeat = Heartbeat(Notifier(systemd.environ), path=None, clock_s=lambda: now[0])
        heartbeat.tick(account(*((state, 10, 10) for state, *_ in streams), turns=10, batches=10))
        now[0] = 10.0

        for _ in range(2):
            heartbeat.tick(account(*streams, turns=turns, batches=batches, has_work=has_work, hanging=hanging))
        heartbeat.stopping()

        wait_until(lambda: "STOPPING=1" in systemd.lines, what="everything was heard")
        assert systemd.count("WATCHDOG=1") == (2 if is_fed else 1)
        for name in hanging:
            assert caplog.text.count(name) == 1
            assert any(line.startswith("STATUS=") and name in line for line in systemd.lines)


def test_threads_that_were_suspended_with_the_machine_do_not_hang(tmp_path, caplog):
    heartbeat = Heartbeat(Notifier({}), path=None)
    for hanging in (("pull-s0", "infer"), (), ("infer",), ("infer",), ("infer",)):
        heartbeat.tick(account((UP, 1, 1), hanging=hanging))

    assert "pull-s0" not in caplog.text
    assert caplog.text.count("names=infer") == 1


def test_it_is_not_fed_more_often_than_is_asked_for(tmp_path):
    now = [0.0]
    with NotifySocket(tmp_path / "notify", watchdog_s=30) as systemd:
        heartbeat = Heartbeat(Notifier(systemd.environ), path=None, clock_s=lambda: now[0])
        for second in range(31):
            now[0] = float(second)
            heartbeat.tick(account((UP, second, second), turns=second + 1, batches=second + 1))
        heartbeat.stopping()

        wait_until(lambda: "STOPPING=1" in systemd.lines, what="everything was heard")
        assert systemd.count("WATCHDOG=1") == 4  # at 0, 10, 20 and 30 seconds
