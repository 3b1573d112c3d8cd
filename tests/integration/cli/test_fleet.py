"""A fleet in a process of its own, as a person at a terminal and as a program see it, with real signals."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.support.wait import wait_looks, wait_until

pytestmark = pytest.mark.slow_but(
    "test_a_failure_then_resume_touches_only_the_rest", reason="commands on further models and options"
)

SCRIPT = """
import json, sys
from edge.cli.fleet import Rollout, choose, drive
from tests.support.fleet import ScriptedPush
options = json.loads(sys.argv[1])
chosen = choose(["all"], None)
rollout = Rollout(release="3f9a1c07b2de", channel="main", is_resumed=options.get("resume", False))
from edge.cli.run_command import tell
from edge.errors import EdgeError
try:
    push = ScriptedPush(options["orders"])
    sys.exit(drive(chosen, push, is_json=options["json"], rollout=rollout).exit_code)
except EdgeError as error:
    tell(f"error: {error}")
    sys.exit(error.exit_code)
"""


@pytest.fixture
def start(tmp_path):
    text = '[defaults]\nmax_parallel = 2\n[wave]\ncanary = []\nsteps = ["100%"]\nmax_failed = "100%"\n'
    text += "".join(f'[[target]]\nname = "d-{number}"\nhost = "host-{number}"\n' for number in range(4))
    (tmp_path / "targets.toml").write_text(text)
    script = tmp_path / "fleet.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": os.getcwd(), "TERM": "xterm"}
    started = []

    def begin(*, stdout=subprocess.PIPE, stderr=subprocess.PIPE, is_json=True, **options):
        command = [sys.executable, str(script), json.dumps({"orders": {}, "json": is_json, **options})]
        started.append(
            subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=stdout, stderr=stderr, text=True)
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=60)


def read_until(stream, word, *, times=1):
    """Return what has come once `word` has come so often; nothing is read ahead into the stream's own buffer."""
    text, deadline = "", time.monotonic() + 60
    while text.count(word) < times:
        ready, _, _ = select.select([stream], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no {word!r} within 60 s, but {text!r}"
        part = os.read(stream.fileno(), 65536).decode()
        assert part, f"it ended with {text!r}"
        text += part
    return text


def results(text):
    events = [json.loads(line) for line in text.splitlines()]
    return {event["target"]: event["event"] for event in events if event["phase"] == "result"}


def test_a_failure_then_resume_touches_only_the_rest(start, tmp_path):
    first = start(orders={"d-1": "unhealthy", "d-2": "unreachable"})
    out, err = first.communicate(timeout=60)
    assert first.returncode == 11
    assert results(out) == {"d-0": "committed", "d-1": "rolled-back", "d-2": "unreachable", "d-3": "committed"}
    assert "2 of 4 targets done; 1 rolled-back, 1 unreachable" in err
    assert set(json.loads((tmp_path / "state/edge-deploy/seen.json").read_bytes())) == {"d-0", "d-1", "d-3"}

    second = start(resume=True)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0
    assert results(out) == {"d-1": "committed", "d-2": "committed"}
    assert "2 of 4 targets are done already" in err

    third = start(resume=True)
    out, err = third.communicate(timeout=60)
    assert (third.returncode, out) == (0, "")
    assert "4 of 4 targets done" in err


def test_f26_ctrl_c_twice_leaves_within_a_second(start):
    process = start(orders={"d-0": "hang", "d-1": "deaf"})
    read_until(process.stdout, "begin", times=2)

    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "Ctrl-C again")
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "closing all connections")
    wait_looks(
        lambda: process.poll() is not None, what="the end", seconds=2
    )  # 0.8 s for the deaf one, and Python's end
    out, _ = process.communicate()

    assert process.returncode == 130
    assert results(out) == dict.fromkeys(("d-0", "d-1", "d-2", "d-3"), "interrupted")


def test_ctrl_c_ends_it_even_while_nobody_reads_what_it_writes(start):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    process = start(stdout=writing, orders={"d-0": "deaf"})
    os.close(writing)
    read_until(process.stderr, "wave of 4")

    def end() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    wait_until(end, what="it ends")
    os.close(reading)

    assert process.returncode in (130, -signal.SIGINT)


def test_a_reader_that_goes_away_does_not_end_the_work(start):
    process = start(orders={"d-0": "unhealthy"})
    process.stdout.close()
    err = process.stderr.read()

    assert process.wait(60) == 11
    assert "3 of 4 targets done; 1 rolled-back" in err
    assert "Traceback" not in err
    assert "Exception" not in err


def test_a_terminal_has_rows_and_ends_with_the_results(start):
    master, slave = pty.openpty()
    process = start(stderr=slave, is_json=False, orders={"d-1": "full"})
    os.close(slave)
    out = process.stdout.read()
    process.wait(60)
    shown = _read_all(master)

    assert process.returncode == 11
    assert "d-1  refused  preflight.space" in out
    assert out.count("committed in") == 3
    assert "Traceback" not in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor was hidden, and is back


def _read_all(fd):
    parts = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except OSError:  # the other side of a terminal has closed
        pass
    os.close(fd)
    return b"".join(parts).decode()
