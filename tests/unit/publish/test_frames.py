import json

from edge.publish.frames import FramePublisher
from edge.publish.numbering import Numbering
from edge.publish.selection import Selection
from tests.support.wire_messages import MODEL, found, frame_result


class Kept:
    def __init__(self):
        self.messages = []

    def publish(self, message):
        self.messages.append(message)


def test_only_published_frames_are_numbered():
    kept = Kept()
    frames = FramePublisher(
        kept,
        device="gate-01",
        numbering=Numbering(41),
        selection=Selection("nonempty", heartbeat_s=1000),
        labels=["person", "bicycle", "car"],
        model=MODEL,
        is_synced=lambda: True,
        now_ns=lambda: 0,
    )
    car = found((0, 0, 10, 10))
    taken = [frames.publish(frame_result(result)) for result in (car, found(), found(), car)]

    assert taken == [True, False, False, True]
    assert [
        (message.epoch, message.seq, json.loads(message.encode())["clock"]["synced"]) for message in kept.messages
    ] == [
        (41, 1, True),
        (41, 2, True),
    ]
