"""The batcher alone, with canvases of a few pixels and a clock that the test turns."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.shares import Terms
from edge.types import DropReason, Frame, ImageSize, Preprocess, StreamId
from edge.vision.boxes import fit
from tests.support import values
from tests.support.simulation import Camera, Simulation
from tests.support.wait import wait_until

SIZE = ImageSize(width=8, height=8)
PREPROCESS = Preprocess(size=SIZE)


class Clock:
    def __init__(self):
        self.ns = 1_000_000_000

    def __call__(self):
        return self.ns


def frame(stream, number, *, value=None, source=(8, 4), read_at_ns=1_000_000_000):
    letterbox = fit(ImageSize(width=source[0], height=source[1]), PREPROCESS)
    shape = (letterbox.fitted.height, letterbox.fitted.width, 3)
    header = values.header(stream, number, size=letterbox.source, read_at_ns=read_at_ns)
    return Frame(header=header, letterbox=letterbox, image=np.full(shape, value or number, np.uint8))


@pytest.fixture
def drops():
    return []


@pytest.fixture
def make(drops):
    def make_batcher(rows=2, canvases=2, max_wait_s=0.02, clock=None, **terms):
        arrays = [np.full((rows, 8, 8, 3), 114, np.uint8) for _ in range(canvases)]
        batcher = Batcher(
            arrays,
            max_wait_s=max_wait_s,
            pad_value=114,
            on_drop=lambda stream, reason: drops.append((stream, reason)),
            clock_ns=clock or time.monotonic_ns,
            terms={StreamId(name): one for name, one in terms.items()},
        )
        batcher.arrays = arrays
        return batcher

    return make_batcher


def put(batcher, one, *, is_live=False, may_wait=False):
    batcher.join(one.header.stream, is_live=is_live)
    turn = batcher.ask(one.header.stream, is_live=is_live)
    assert turn.is_over or may_wait, "there should have been a row"
    ticket = turn.wait()
    batcher.fill(ticket, one)
    return ticket


def test_a_batch_is_closed_when_every_live_stream_that_is_up_has_a_row(make):
    batcher = make(rows=3, clock=Clock())
    batcher.join("a", is_live=True)
    batcher.join("b", is_live=True)
    put(batcher, frame("a", 1), is_live=True)
    assert batcher.take(0) is None

    put(batcher, frame("b", 2), is_live=True)

    batch = batcher.take(0)
    assert [row.header.stream for row in batch.rows] == ["a", "b"]
    assert batcher.arrays[batch.index][0, 4, 4, 0] == 1
    assert batcher.arrays[batch.index][1, 4, 4, 0] == 2


def test_a_file_fills_every_row_in_order(make):
    batcher = make(rows=3, clock=Clock())
    put(batcher, frame("a", 1))
    put(batcher, frame("a", 2))
    assert batcher.take(0) is None

    put(batcher, frame("a", 3))

    assert [row.header.frame for row in batcher.take(0).rows] == [1, 2, 3]


def test_a_batch_is_closed_when_its_oldest_frame_has_waited_long_enough(make):
    clock = Clock()
    batcher = make(clock=clock)
    batcher.join("b", is_live=True)
    put(batcher, frame("a", 1))
    clock.ns += 19_000_000
    assert batcher.take(0) is None

    clock.ns += 1_000_000

    assert len(batcher.take(0).rows) == 1


@pytest.mark.parametrize(("is_given_up", "closes_after_ns"), [(False, 20_000_000), (True, 30_000_000)])
def test_a_newer_frame_moves_no_deadline_and_a_row_that_is_given_up_takes_its_own_along(
    make, is_given_up, closes_after_ns
):
    clock = Clock()
    batcher = make(clock=clock)
    batcher.join("slow", is_live=True)
    put(batcher, frame("fast", 1, read_at_ns=clock.ns), is_live=True)
    clock.ns += 10_000_000
    if is_given_up:
        batcher.abandon(batcher.reserve("fast", is_live=True))
    put(batcher, frame("fast", 2, read_at_ns=clock.ns), is_live=True)
    clock.ns += closes_after_ns - 10_000_001
    assert batcher.take(0) is None

    clock.ns += 1

    assert [row.header.frame for row in batcher.take(0).rows] == [2]


def test_while_the_engine_is_idle_a_stream_that_comes_again_closes_the_batch(make, drops):
    clock = Clock()
    batcher = make(rows=3, clock=clock, max_wait_s=10)
    batcher.join("slow", is_live=True)
    put(batcher, frame("fast", 1, read_at_ns=clock.ns), is_live=True)
    assert batcher.take(0) is None
    clock.ns += 16_000_000

    put(batcher, frame("fast", 2, read_at_ns=clock.ns), is_live=True)

    batch = batcher.take(0)
    assert [row.header.frame for row in batch.rows] == [1]
    put(batcher, frame("fast", 3, read_at_ns=clock.ns), is_live=True)  # the engine is at work: the newest frame wins
    batcher.give_back(batch.index)
    put(batcher, frame("slow", 1, read_at_ns=clock.ns), is_live=True)
    assert [row.header.frame for row in batcher.take(0).rows] == [3, 1]
    assert drops == [("fast", DropReason.SUPERSEDED)]


def test_a_batch_that_was_closed_early_is_taken_before_the_end(make):
    batcher = make(rows=3, clock=Clock(), max_wait_s=10)
    batcher.join("slow", is_live=True)
    put(batcher, frame("fast", 1), is_live=True)
    assert batcher.take(0) is None
    put(batcher, frame("fast", 2), is_live=True)
    batcher.close()

    assert not batcher.is_drained
    assert [batcher.take(0).rows[0].header.frame for _ in range(2)] == [1, 2]
    assert batcher.is_drained


def test_a_frame_that_cannot_be_copied_gives_its_row_up(make, drops):
    batcher = make(rows=2, clock=Clock())
    put(batcher, frame("b", 5))
    torn = frame("a", 1)
    torn = dataclasses.replace(torn, image=torn.image[:-1])
    batcher.join("a", is_live=True)

    with pytest.raises(ValueError, match="broadcast"):
        batcher.fill(batcher.reserve("a", is_live=True), torn)
    batcher.leave("a")
    put(batcher, frame("b", 6))

    assert [row.header.frame for row in batcher.take(0).rows] == [5, 6]
    assert drops == []


def test_a_newer_frame_of_a_live_stream_takes_the_row_and_the_older_is_counted(make, drops):
    batcher = make(clock=Clock())
    batcher.join("b", is_live=True)
    put(batcher, frame("a", 1), is_live=True)
    put(batcher, frame("a", 2), is_live=True)
    put(batcher, frame("b", 3), is_live=True)

    batch = batcher.take(0)

    assert [row.header.frame for row in batch.rows] == [2, 3]
    assert batcher.arrays[batch.index][0, 4, 4, 0] == 2
    assert drops == [("a", DropReason.SUPERSEDED)]


def test_a_file_waits_for_the_next_batch_when_no_row_is_left(make, drops):
    batcher = make(rows=1, max_wait_s=0)
    put(batcher, frame("a", 1))
    placed = threading.Event()

    def second():
        put(batcher, frame("a", 2), may_wait=True)
        placed.set()

    thread = threading.Thread(target=second, daemon=True)
    thread.start()
    assert batcher.take(1).rows[0].header.frame == 1
    assert placed.wait(5)
    assert batcher.take(1).rows[0].header.frame == 2
    thread.join(5)
    assert drops == []


def infer(batcher):
    batch = batcher.take(0)
    batcher.give_back(batch.index)
    return [(row.header.stream, row.header.frame) for row in batch.rows]


def test_a_stream_that_begins_takes_no_row_from_one_that_was_given_more(make, drops):
    batcher = make(rows=1, clock=Clock())
    for number in (1, 2, 3):
        put(batcher, frame("a", number), is_live=True)
        assert infer(batcher) == [("a", number)]
    put(batcher, frame("a", 4), is_live=True)

    assert not batcher.ask(StreamId("b"), is_live=True).is_over

    assert infer(batcher) == [("a", 4)]
    assert drops == []


def test_a_stream_that_missed_its_turn_takes_one_row_from_a_stream_that_was_given_more(make, drops):
    batcher = make(rows=1, clock=Clock())
    put(batcher, frame("b", 1), is_live=True)
    put(batcher, frame("b", 2), is_live=True)
    assert infer(batcher) == [("b", 2)]
    for number in (1, 2):
        put(batcher, frame("a", number), is_live=True)
        assert infer(batcher) == [("a", number)]
    put(batcher, frame("a", 3), is_live=True)

    put(batcher, frame("b", 3), is_live=True)

    assert drops == [("b", DropReason.SUPERSEDED), ("a", DropReason.YIELDED)]
    assert infer(batcher) == [("b", 3)]
    put(batcher, frame("a", 4), is_live=True)
    assert infer(batcher) == [("a", 4)]
    put(batcher, frame("a", 5), is_live=True)
    assert not batcher.ask(StreamId("b"), is_live=True).is_over
    assert drops[2:] == []


def test_no_row_is_taken_from_a_file_nor_by_one(make, drops):
    batcher = make(rows=1, clock=Clock())
    put(batcher, frame("film", 1))
    infer(batcher)
    put(batcher, frame("film", 2))

    turn = batcher.ask(StreamId("camera"), is_live=True)

    assert not turn.is_over
    assert infer(batcher) == [("film", 2)]
    batcher.fill(turn.ticket, frame("camera", 1))
    for number in (2, 3):
        assert infer(batcher) == [("camera", number - 1)]
        put(batcher, frame("camera", number), is_live=True)
    assert not batcher.ask(StreamId("film"), is_live=False).is_over
    assert drops == []


def test_rows_are_given_in_proportion_to_priorities():
    streams = {"a": Camera(fps=30), "b": Camera(fps=30, start_s=0.01)}
    terms = {StreamId("a"): Terms(priority=3)}

    sim = Simulation(streams, rows=1, end_s=10, fixed_s=0.05, per_row_s=0, terms=terms).run()

    assert {name: len(told.inferred) for name, told in sim.told.items()} == pytest.approx({"a": 150, "b": 50}, abs=2)


def test_a_frame_that_grew_too_old_is_not_inferred(make, drops):
    clock = Clock()
    batcher = make(rows=4, clock=clock, max_wait_s=1, a=Terms(max_age_ns=300_000_000))
    batcher.join("silent", is_live=True)
    put(batcher, frame("b", 1, read_at_ns=clock.ns), is_live=True)
    aged = frame("a", 1, read_at_ns=clock.ns)
    header = dataclasses.replace(aged.header, decode_ns=100_000_000)
    put(batcher, dataclasses.replace(aged, header=header), is_live=True)
    clock.ns += 200_000_000
    assert batcher.take(0) is None
    assert drops == []

    clock.ns += 1
    assert batcher.take(0) is None
    batcher.leave("silent")
    batcher.leave("a")

    assert infer(batcher) == [("b", 1)]
    assert drops == [("a", DropReason.STALE)]


def test_the_border_is_written_again_when_a_row_gets_an_image_of_another_shape(make):
    batcher = make(rows=1, canvases=1, max_wait_s=0)
    put(batcher, frame("a", 1, value=7, source=(4, 8)))
    batcher.give_back(batcher.take(1).index)

    put(batcher, frame("a", 2, value=9, source=(8, 4)))

    canvas = batcher.arrays[0][0]
    assert (canvas[2:6] == 9).all()
    assert (canvas[:2] == 114).all()
    assert (canvas[6:] == 114).all()


def test_waiting_streams_are_served_in_the_order_in_which_they_came(make):
    batcher = make(rows=1, canvases=1, max_wait_s=0)
    put(batcher, frame("first", 1))
    taken = batcher.take(1)
    threads = []
    for number, name in enumerate("bcde", start=2):
        thread = threading.Thread(
            target=put, args=(batcher, frame(name, number)), kwargs={"may_wait": True}, daemon=True
        )
        thread.start()
        threads.append(thread)
        wait_until(lambda number=number: len(batcher._waiting) == number - 1, what="the next one waits")
    order = []
    for _ in range(4):
        batcher.give_back(taken.index)
        taken = batcher.take(5)
        order.append(taken.rows[0].header.stream)

    assert order == ["b", "c", "d", "e"]
    for thread in threads:
        thread.join(5)


def test_an_abandoned_row_leaves_no_hole(make):
    batcher = make(rows=3, clock=Clock())
    for name in "abc":
        batcher.join(name, is_live=True)
    given_up = batcher.reserve("a", is_live=True)
    put(batcher, frame("b", 5), is_live=True)
    put(batcher, frame("c", 6, source=(4, 8)), is_live=True)
    batcher.abandon(given_up)
    batcher.leave("a")

    batch = batcher.take(0)

    assert [row.header.stream for row in batch.rows] == ["c", "b"]
    assert batcher.arrays[batch.index][0, 4, 4, 0] == 6
    assert batcher.arrays[batch.index][0, 0, 0, 0] == 114
    assert batcher.arrays[batch.index][0, 0, 4, 0] == 6
    assert batcher.arrays[batch.index][1, 4, 4, 0] == 5


def test_the_frames_of_a_file_stay_in_order_around_a_row_that_was_given_up(make):
    batcher = make(rows=4, clock=Clock())
    put(batcher, frame("a", 1))
    given_up = batcher.reserve("b", is_live=True)
    put(batcher, frame("a", 2))
    put(batcher, frame("a", 3, source=(4, 8)))
    batcher.abandon(given_up)
    put(batcher, frame("a", 4))

    batch = batcher.take(0)

    assert [row.header.frame for row in batch.rows] == [1, 2, 3, 4]
    assert [int(batcher.arrays[batch.index][row, 4, 4, 0]) for row in range(4)] == [1, 2, 3, 4]


def test_close_wakes_those_who_wait_and_leaves_what_is_begun(make):
    batcher = make(rows=1, canvases=1, clock=Clock())
    batcher.join("other", is_live=True)
    put(batcher, frame("a", 1))
    results = []
    thread = threading.Thread(target=lambda: results.append(batcher.reserve("a", is_live=False)), daemon=True)
    thread.start()
    wait_until(lambda: batcher._waiting, what="it waits for a row")

    batcher.close()

    thread.join(5)
    assert results == [None]
    assert len(batcher.take(0).rows) == 1
    assert batcher.is_drained


@pytest.mark.parametrize("ends_by", ["its last row", "a stream that leaves", "its deadline"])
def test_whoever_waits_for_a_batch_is_woken_when_it_can_be_taken(make, ends_by):
    batcher = make(max_wait_s=0.02 if ends_by == "its deadline" else 300)
    for name in ("a", "b"):
        batcher.join(StreamId(name), is_live=True)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(batcher.take(300)), daemon=True)
    thread.start()
    wait_until(lambda: batcher._is_idle, what="the engine is idle")
    now_ns = time.monotonic_ns()

    put(batcher, frame("a", 1, read_at_ns=now_ns), is_live=True)
    if ends_by == "its last row":
        put(batcher, frame("b", 1, read_at_ns=now_ns), is_live=True)
    elif ends_by == "a stream that leaves":
        batcher.leave(StreamId("b"))
    thread.join(30)

    assert [row.header.stream for row in taken[0].rows] == (["a", "b"] if ends_by == "its last row" else ["a"])


def test_pixels_of_four_bytes_are_pasted_by_their_colours(make):
    batcher = make()
    letterbox = fit(ImageSize(width=6, height=8), PREPROCESS)  # borders at both sides: rows of the canvas go on
    rgba = np.random.default_rng(3).integers(0, 256, (8, 6 + 2, 4), np.uint8)  # rows of the buffer are padded
    image = rgba[:, :6, :3]
    one = dataclasses.replace(frame("a", 1), letterbox=letterbox, image=image)

    put(batcher, one)

    row = batcher.arrays[0][0]
    assert (row[:, 1:7] == image).all()
    assert (row[:, [0, 7]] == 114).all()


def test_pixels_of_four_bytes_of_another_size_give_the_row_up(make):
    batcher = make()
    image = np.zeros((2, 2, 4), np.uint8)[..., :3]

    with pytest.raises(ValueError, match="broadcast"):
        put(batcher, dataclasses.replace(frame("a", 1), image=image))
