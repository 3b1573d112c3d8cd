"""Pictures of streams: copied, drawn and encoded only for those who ask, and no more often than they need."""

import cv2
import numpy as np
import pytest

from edge.runtime.look.pictures import Annotator, PicturePublisher, Pictures
from edge.runtime.pipeline.batcher import Batch, Row
from edge.types import ImageSize, Letterbox, StreamId
from tests.support import values
from tests.support.service_parts import Kept

EAST, WEST = StreamId("east"), StreamId("west")
SOURCE = ImageSize(width=1280, height=720)
LETTERBOX = Letterbox(
    source=SOURCE,
    fitted=ImageSize(width=96, height=54),
    canvas=ImageSize(width=96, height=96),
    pad_left=0,
    pad_top=21,
)


def row(stream, frame=1):
    return Row(header=values.header(stream, frame, size=SOURCE), letterbox=LETTERBOX)


def batch(*streams):
    return Batch(index=0, rows=tuple(row(stream) for stream in streams), closed_at_ns=0)


def result(stream, *xyxy):
    return values.result(row(stream).header, values.detections(xyxy))


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pictures(clock):
    return Pictures(labels=["car"], clock_s=clock)


def see(pictures, stream, *, value=50, boxes=()):
    pictures.see(row(stream), np.full((96, 96, 3), value, np.uint8), result(stream, *boxes))


def decoded(jpeg):
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def test_nothing_is_copied_while_nobody_looks(pictures):
    assert list(pictures.wants(batch(EAST, WEST))) == []


def test_one_question_is_good_for_one_copy_of_one_frame(pictures):
    assert pictures.ask(WEST) is None
    assert list(pictures.wants(batch(EAST, WEST, WEST))) == [1]
    see(pictures, WEST)
    assert list(pictures.wants(batch(EAST, WEST))) == []
    assert pictures.ask(WEST) is not None


def test_a_picture_is_the_frame_without_its_border_and_with_its_boxes(pictures):
    pictures.ask(EAST)
    see(pictures, EAST, boxes=[(320, 180, 960, 540)])
    found = decoded(pictures.ask(EAST))
    assert found.shape == (6 * 54, 6 * 96, 3)  # the least multiple on which labels can be read
    assert found[12, 540].tolist() == pytest.approx([50] * 3, abs=12)
    left_edge = found[180, 143:146].astype(int)  # 320 of 1280 px is 144 of 576
    assert np.abs(left_edge - 50).max() > 60


def test_who_asks_often_gets_the_same_again(pictures, clock):
    pictures.ask(EAST)
    see(pictures, EAST)
    for _ in range(50):
        assert pictures.ask(EAST) is not None
        clock.now_s += 0.001
    assert list(pictures.wants(batch(EAST))) == []
    assert pictures.encoded == 1
    clock.now_s += 0.2
    pictures.ask(EAST)
    assert list(pictures.wants(batch(EAST))) == [0]


def test_an_old_picture_is_none_and_is_let_go(pictures, clock):
    pictures.ask(EAST)
    see(pictures, EAST)
    clock.now_s += 6
    assert pictures.ask(EAST) is None
    pictures.forget()
    assert pictures._pictures == {}


def seen(pictures, clock, *streams):
    """One turn of the inference loop, which shows a frame of each of these streams."""
    clock.now_s += 1
    one = batch(*streams)
    for index in pictures.wants(one):
        pictures.see(one.rows[index], np.full((96, 96, 3), index, np.uint8), result(one.rows[index].header.stream))
    clock.now_s += 0.5


def test_pictures_of_streams_are_published_so_often_and_a_stream_without_frames_has_none():
    clock, sent = Clock(), Kept()
    pictures = Pictures(labels=["person"], clock_s=clock)
    publishing = PicturePublisher(pictures, sent, streams=lambda: [EAST, WEST], every_s=9, clock_s=clock)

    for _ in range(20):  # 30 seconds
        publishing.tick()
        seen(pictures, clock, EAST)

    assert {one.topic for one in sent.messages} == {"streams/east/picture"}
    assert len(sent.messages) in (3, 4)
    assert all(one.is_retained and one.expiry_s == 90 for one in sent.messages)
    assert cv2.imdecode(np.frombuffer(sent.messages[0].encode(), np.uint8), cv2.IMREAD_COLOR) is not None


def test_a_picture_that_cannot_be_made_small_is_smaller_and_bounded():
    noise = np.random.default_rng(1).integers(0, 256, (1280, 1280, 3), np.uint8)
    fitted = ImageSize(width=1280, height=1280)
    whole = Letterbox(source=fitted, fitted=fitted, canvas=fitted, pad_left=0, pad_top=0)
    pictures = Pictures(labels=["person"])
    pictures.ask(EAST)
    pictures.see(Row(header=row(EAST).header, letterbox=whole), noise, result(EAST))

    jpeg = pictures.ask(EAST)

    assert 20_000 < len(jpeg) <= 120_000
    assert cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR).shape[:2] in ((640, 640), (320, 320))


def test_pictures_are_written_of_a_stream_that_begins_anew(tmp_path):
    writing = Annotator(tmp_path, labels=["car"], every_s=1.0)
    written = []
    for second in (0.0, 0.9, 1.0, 900.0, 900.5, 0.1, 0.2, 1.1):
        head = values.header(EAST, size=SOURCE, pts_ns=round(second * 1e9))
        one = Batch(index=0, rows=(Row(header=head, letterbox=LETTERBOX),), closed_at_ns=0)
        for index in writing.wants(one):
            writing.see(one.rows[index], np.zeros((96, 96, 3), np.uint8), values.result(head, values.detections()))
            written.append(second)
    assert written == [0.0, 1.0, 900.0, 0.1, 1.1]
    assert len(list(tmp_path.iterdir())) == 5
