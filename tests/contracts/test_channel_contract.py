"""What holds for every `Channel`: whole frames in order, deadlines on both directions, one end that both sides see."""

import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest

from edge.errors import DeployError
from edge.transport.channel import MAX_BLOB_BYTES, Blob, ChildChannel, Message, PipeChannel
from edge.transport.ssh import SshChannel
from tests.support.raised import code_of
from tests.support.sshd import Sshd
from tests.support.wait import QuietWatch, wait_looks

# Answers each frame with itself; stops reading after a "deaf"; says half a frame after "half"; ends after "end".
ECHO = """
import sys, threading
while head := sys.stdin.buffer.read(5):
    body = sys.stdin.buffer.read(int.from_bytes(head[:4], "big") - 1)
    if b'"deaf"' in body:
        threading.Event().wait(60)
    if b'"end"' in body:
        break
    if b'"half"' in body:
        sys.stdout.buffer.write((head + body)[:7]); sys.stdout.buffer.flush()
        continue
    if b'"rest"' in body:
        sys.stdout.buffer.write(b'verb":"half"}')
    else:
        sys.stdout.buffer.write(head + body)
    sys.stdout.buffer.flush()
"""
COMMAND = [sys.executable, "-c", ECHO]


@contextlib.contextmanager
def _pipe(directory):
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    channel = PipeChannel(os.dup(child.stdout.fileno()), os.dup(child.stdin.fileno()))
    child.stdin.close()
    child.stdout.close()
    yield channel
    channel.close()
    child.kill()
    child.wait(60)


@contextlib.contextmanager
def _local(directory):
    with contextlib.closing(ChildChannel(COMMAND)) as channel:
        yield channel


@contextlib.contextmanager
def _ssh(directory):
    script = directory / "echo.py"
    script.write_text(ECHO)
    with (
        Sshd(directory / "sshd", command=[sys.executable, str(script)]) as server,
        contextlib.closing(SshChannel(server.address())) as channel,
    ):
        yield channel


@pytest.fixture(params=[_pipe, _local, _ssh], ids=["pipe", "local", "ssh"])
def channel(request, tmp_path):
    with request.param(tmp_path) as opened:
        yield opened


def test_frames_come_whole_and_in_order(channel):
    sent = [Message("ping", {"number": 1}), Blob(b""), Blob(os.urandom(70_000)), Message("ping", {"text": "ä" * 5000})]
    for frame in sent:
        channel.send(frame)
        assert channel.receive(timeout_s=60) == frame


def test_a_blob_of_the_largest_size_passes(channel):
    content = os.urandom(MAX_BLOB_BYTES)
    sender = threading.Thread(target=channel.send, args=(Blob(content),))
    sender.start()
    assert channel.receive(timeout_s=60) == Blob(content)
    sender.join(60)


def test_silence_ends_a_receive_at_its_deadline_and_the_channel_goes_on(channel):
    channel.send(Message("ping", {}))
    channel.receive(timeout_s=60)
    codes = []

    def receive():
        with pytest.raises(DeployError) as caught:
            channel.receive(timeout_s=0.2)
        codes.append(caught.value.code)

    began, receiver = time.monotonic(), threading.Thread(target=receive)
    receiver.start()
    wait_looks(lambda: not receiver.is_alive(), what="the deadline", seconds=1.0)
    assert codes == ["transfer.timeout"]
    assert time.monotonic() - began >= 0.2
    channel.send(Message("ping", {"after": True}))
    assert channel.receive(timeout_s=60) == Message("ping", {"after": True})


def test_half_a_frame_is_kept_over_a_deadline(channel):
    channel.send(Message("half", {}))
    assert code_of(channel.receive, timeout_s=0.5) == "transfer.timeout"
    channel.send(Message("rest", {}))
    assert channel.receive(timeout_s=60) == Message("half", {})


def test_a_side_that_takes_nothing_ends_a_send_at_its_deadline(channel):
    channel.send(Message("deaf", {}))
    watch = QuietWatch()
    assert code_of(_send_much, channel) == "transfer.timeout"
    assert watch.seconds() < 10
    assert code_of(channel.send, Message("ping", {})) == "transfer.closed"


def _send_much(channel):
    for _ in range(64):  # more than pipes, ssh and its window hold together
        channel.send(Blob(bytes(MAX_BLOB_BYTES)), timeout_s=0.5)


def test_the_end_of_the_other_side_is_seen_at_once(channel):
    channel.send(Message("end", {}))
    assert code_of(channel.receive, timeout_s=60) == "transfer.closed"


def test_waiting_costs_no_processor_time(channel):
    channel.send(Message("ping", {}))
    channel.receive(timeout_s=60)
    before = time.thread_time()
    with pytest.raises(DeployError, match="said nothing"):
        channel.receive(timeout_s=0.5)
    assert time.thread_time() - before < 0.05


def test_it_may_be_closed_twice_and_is_closed_then(channel):
    channel.close()
    channel.close()
    for use in (lambda: channel.send(Message("ping", {})), channel.receive):
        assert code_of(use) == "transfer.closed"
