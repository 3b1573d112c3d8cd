import os

from edge.publish.fanout import FanoutPublisher
from edge.publish.jsonl import JsonlPublisher
from tests.support.wait import wait_until
from tests.support.wire_messages import detections


def broken_output(directory):
    """Return an output whose reader is gone; it notices with the first message."""
    path = directory / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    publisher = JsonlPublisher(str(path))
    os.close(reader)
    return publisher


def test_it_is_broken_when_all_outputs_are(tmp_path):
    fanout = FanoutPublisher([broken_output(tmp_path)])
    assert not fanout.is_broken
    fanout.publish(detections(1))

    wait_until(lambda: fanout.is_broken, what="the output is known to be gone")
    fanout.close()


def test_it_is_not_broken_while_one_output_is_not(tmp_path):
    broken, whole = broken_output(tmp_path), JsonlPublisher(str(tmp_path / "out.jsonl"))
    fanout = FanoutPublisher([broken, whole])
    fanout.publish(detections(1))
    wait_until(lambda: broken.is_broken, what="one output is known to be gone")

    assert not fanout.is_broken
    fanout.close()


def test_without_outputs_nothing_is_broken():
    assert not FanoutPublisher([]).is_broken
    assert FanoutPublisher([]).by_output() == {}
