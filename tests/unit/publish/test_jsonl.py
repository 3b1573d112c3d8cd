import contextlib
import json
import os
import threading
import time

import pytest

from edge.errors import ConfigError
from edge.publish import jsonl
from edge.publish.jsonl import JsonlPublisher
from edge.publish.message import RetainedBytes
from tests.support.logged import logged
from tests.support.wait import wait_until
from tests.support.wire_messages import birth, detections, publish_frames


@pytest.fixture
def pipe(tmp_path):
    """A pipe, and the descriptor of a reader that reads nothing yet."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, reader
    with contextlib.suppress(OSError):  # closed by the test
        os.close(reader)


@contextlib.contextmanager
def read_meanwhile(reader):
    """Read all that comes until the writer ends; give the messages, which are there at the end."""
    found = []
    os.set_blocking(reader, True)
    receiver = threading.Thread(target=lambda: found.extend(read_all(reader)))
    receiver.start()
    yield found
    receiver.join(10)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_message_is_a_line_of_its_own(tmp_path):
    publisher = JsonlPublisher(str(tmp_path / "out.jsonl"))
    publisher.publish(birth())
    publish_frames(publisher, range(1, 101))
    publisher.close()

    found = lines(tmp_path / "out.jsonl")
    assert found[0]["schema"] == "edge.info/1"
    assert [line["seq"] for line in found[1:]] == list(range(1, 101))


def test_a_file_is_appended_to(tmp_path):
    for seq in (1, 2):
        publisher = JsonlPublisher(str(tmp_path / "out.jsonl"))
        publisher.publish(detections(seq))
        publisher.close()

    assert [line["seq"] for line in lines(tmp_path / "out.jsonl")] == [1, 2]


def test_a_dash_is_standard_output(capfd):
    publisher = JsonlPublisher("-")
    publisher.publish(detections(1))
    publisher.close()

    assert json.loads(capfd.readouterr().out)["seq"] == 1


@pytest.mark.parametrize(
    ("target", "words"), [("absent/out.jsonl", r".*absent/out.jsonl: No such file"), ("", ".*: Is a directory")]
)
def test_a_file_that_cannot_be_opened_is_a_configuration_error(tmp_path, target, words):
    with pytest.raises(ConfigError, match=f"publish.jsonl: {words}"):
        JsonlPublisher(str(tmp_path / target))


def test_a_pipe_that_nobody_reads_is_a_configuration_error_at_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    ends = []

    def read_after_a_while():  # so that a test that fails ends, too
        if not has_ended.wait(5):
            ends.append(os.open(path, os.O_RDONLY))

    has_ended = threading.Event()
    reader = threading.Thread(target=read_after_a_while)
    reader.start()
    try:
        with pytest.raises(ConfigError, match=r"publish.jsonl: .*pipe: .*start its reader"):
            JsonlPublisher(str(path))
    finally:
        has_ended.set()
        reader.join()
        for descriptor in ends:
            os.close(descriptor)


def test_a_pipe_with_a_reader_is_written_without_loss_when_it_is_full(pipe):
    path, reader = pipe
    publisher = JsonlPublisher(str(path))
    publish_frames(publisher, range(1, 501))  # more than a pipe holds
    wait_until(lambda: publisher.counts()["delivered"] > 10, what="the writer is at work")
    with read_meanwhile(reader) as found:
        publisher.close()

    assert [line["seq"] for line in found] == list(range(1, 501))
    assert publisher.counts()["errors"] == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_always_full_keeps_what_fits_as_waiting():
    publisher = JsonlPublisher("/dev/full", retry_s=0.005)
    publish_frames(publisher, range(1, 11))
    wait_until(lambda: publisher.counts()["errors"] >= 3, what="several failed writes")
    publisher.close()

    counts = publisher.counts()
    assert (counts["accepted"], counts["delivered"], counts["waiting"], counts["dropped"]) == (10, 0, 10, 0)
    assert not publisher.is_broken


def test_a_standard_output_that_is_closed_is_a_configuration_error(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)  # what Python makes of `>&-`

    with pytest.raises(ConfigError, match="standard output cannot be written: it is closed"):
        JsonlPublisher("-")


def test_a_full_disk_is_told_once_counted_and_recovered_from(tmp_path, monkeypatch, caplog):
    write = os.write
    room = [10]

    def limited(descriptor, data):
        if room and not room[0]:
            raise OSError(28, "No space left on device")
        written = write(descriptor, data[: room[0]] if room else data)
        if room:
            room[0] -= written
        return written

    monkeypatch.setattr(jsonl.os, "write", limited)
    publisher = JsonlPublisher(str(tmp_path / "out.jsonl"), retry_s=0.005)
    publish_frames(publisher, range(1, 11))
    wait_until(lambda: publisher.counts()["errors"] >= 3, what="several failed writes")
    room.clear()
    assert publisher.flush(5)
    publisher.close()

    whole = [line for line in (tmp_path / "out.jsonl").read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line)["seq"] for line in whole] == list(range(1, 11))
    assert logged(caplog).count("jsonl-cannot-be-written") == 1


def test_a_closed_pipe_ends_the_output_and_nothing_else(pipe, caplog):
    path, reader = pipe
    publisher = JsonlPublisher(str(path))
    assert not publisher.is_broken
    os.close(reader)
    publish_frames(publisher, range(1, 11))
    wait_until(lambda: publisher.counts()["waiting"] == 0, what="the queue is given up")
    publisher.close()

    counts = publisher.counts()
    assert publisher.is_broken
    assert counts["errors"] == 1
    assert counts["accepted"] == counts["dropped"] == 10
    assert logged(caplog).count("jsonl-reader-has-gone") == 1


def test_a_stalled_reader_costs_the_oldest_lines_which_are_counted(pipe, caplog):
    path, reader = pipe
    publisher = JsonlPublisher(str(path), max_bytes=100_000)
    publish_frames(publisher, range(1, 2001), count=20)
    assert publisher.counts()["waiting_bytes"] <= 100_000
    with read_meanwhile(reader) as found:
        assert publisher.flush(10)
        publisher.close()

    counts, numbers = publisher.counts(), [line["seq"] for line in found]
    assert counts["dropped"] == counts["numbered_lost"] == 2000 - len(numbers) > 0
    assert numbers == sorted(set(numbers)), "each once, in their order"
    assert numbers[-20:] == list(range(1981, 2001)), "the newest stay"
    assert caplog.text.count("lines are dropped") == 1


def read_all(descriptor):
    with open(descriptor, "rb", closefd=False) as file:
        return [json.loads(line) for line in file]


def test_a_stuck_reader_does_not_hold_up_a_stop(pipe):
    path, _ = pipe
    publisher = JsonlPublisher(str(path))
    publish_frames(publisher, range(1, 2001), count=20)
    began_s = time.monotonic()
    publisher.flush(30)
    publisher.close()
    lasted_s = time.monotonic() - began_s

    assert lasted_s < 5
    assert not publisher._thread.is_alive()
    counts = publisher.counts()
    assert counts["accepted"] == counts["delivered"] + counts["waiting"] + counts["dropped"]
    assert counts["waiting"] > 0


def test_the_state_of_a_stream_that_is_no_more_is_no_line(tmp_path):
    publisher = JsonlPublisher(str(tmp_path / "out.jsonl"))
    publisher.publish(RetainedBytes("streams/west/state"))
    publisher.publish(RetainedBytes("streams/west/picture", b"\xff\xd8", 60))
    publisher.close()

    assert lines(tmp_path / "out.jsonl") == []
