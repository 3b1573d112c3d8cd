import dataclasses
import json

from edge.publish.frames import FramePublisher, Selection
from tests.support.wire_messages import birth, found, frame_result


class Kept:
    def __init__(self):
        self.messages = []

    def publish(self, message):
        self.messages.append(message)


def test_only_published_frames_are_numbered():
    kept = Kept()
    frames = FramePublisher(
        kept,
        birth().run_info,
        Selection("nonempty", heartbeat_s=1000),
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


def test_each_stream_counts_by_ones():
    kept = Kept()
    frames = FramePublisher(kept, birth().run_info, Selection("all", heartbeat_s=1000))
    result = frame_result(found())
    for stream in ("east", "west", "east", "north", "west", "east"):
        frames.publish(dataclasses.replace(result, header=dataclasses.replace(result.header, stream=stream)))

    numbers = [(message.stream, message.seq) for message in kept.messages]
    assert numbers == [("east", 1), ("west", 1), ("east", 2), ("north", 1), ("west", 2), ("east", 3)]
