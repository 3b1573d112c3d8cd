"""Frames through an engine that computes while others are read, and overwrites what it gave out; what are no images."""

import os

import numpy as np
import pytest

from edge.errors import DatasetError, EndOfStream, SourceError
from edge.quantize.feed import canvases_of, feed
from edge.quantize.stills import image_digest
from edge.types import Frame, ImageSize, Letterbox, Preprocess, StreamId
from tests.support.values import header

SIZE = ImageSize(width=8, height=8)
SETTINGS = Preprocess(size=SIZE)
WHERE = Letterbox(
    source=ImageSize(width=8, height=4),
    fitted=ImageSize(width=8, height=4),
    canvas=SIZE,
    pad_left=0,
    pad_top=2,
)


class Source:
    """`count` frames, the n-th filled with n; one buffer, overwritten by each read. Breaks at frame `breaks_at`."""

    stream = StreamId("s")

    def __init__(self, count, *, breaks_at=None, stalls_at=None):
        self._count, self._breaks_at, self._stalls_at = count, breaks_at, stalls_at
        self._image = np.zeros((4, 8, 3), np.uint8)
        self.reads = 0
        self.reads_after_end = 0

    def read(self, timeout_s):
        self.reads += 1
        if self.reads == self._breaks_at:
            raise SourceError("s: broke")
        if self.reads == self._stalls_at:
            return None
        if self.reads > self._count:
            self.reads_after_end += self.reads > self._count + 1
            raise EndOfStream("s: end")
        self._image[:] = self.reads
        return Frame(header=header("s", self.reads, size=WHERE.source), letterbox=WHERE, image=self._image)


class Engine:
    """Gives out a view of one buffer for each canvas; while a canvas runs, it must not be touched."""

    def __init__(self, *, canvases, max_batch):
        self.preprocess, self.max_batch = SETTINGS, max_batch
        self.canvases = tuple(np.zeros((max_batch, 8, 8, 3), np.uint8) for _ in range(canvases))
        self._out = [np.zeros(max_batch, np.int64) for _ in range(canvases)]
        self._running = {}
        self.most_running = 0

    def start(self, index, count):
        assert index not in self._running
        self._out[index][:] = -1  # what was given out of this canvas is gone
        self._running[index] = (count, self.canvases[index].copy())
        self.most_running = max(self.most_running, len(self._running))

    def wait(self, index):
        count, before = self._running.pop(index)
        assert np.array_equal(before, self.canvases[index])
        self._out[index][:count] = before[:count, 4, 4, 0]
        return self._out[index][:count]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 16])
@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("canvases", [2, 5])
def test_every_frame_comes_once_and_in_order(canvases, max_batch, count):
    source, engine = Source(count), Engine(canvases=canvases, max_batch=max_batch)

    numbers, values = [], []
    for placed, found in feed(source, engine):
        assert len(placed) == len(found) <= max_batch
        numbers += [header.frame for header, _ in placed]
        values += found.tolist()
        assert all(where is WHERE for _, where in placed)

    assert numbers == values == list(range(1, count + 1))
    assert (source.reads, source.reads_after_end) == (count + 1, 0)


@pytest.mark.parametrize("canvases", [2, 5])
def test_what_was_yielded_stays_until_the_next_step(canvases):
    frames = feed(Source(10), Engine(canvases=canvases, max_batch=3))

    for expected in ([1, 2, 3], [4, 5, 6], [7, 8, 9], [10]):
        _, found = next(frames)
        assert found.tolist() == expected
    assert next(frames, None) is None


@pytest.mark.parametrize("canvases", [2, 5])
def test_all_canvases_are_in_use(canvases):
    engine = Engine(canvases=canvases, max_batch=1)

    list(feed(Source(16), engine))

    assert engine.most_running == canvases


def test_the_border_is_that_of_the_frame():
    engine = Engine(canvases=2, max_batch=1)

    list(feed(Source(1), engine))

    assert (engine.canvases[0][0, [0, 1, 6, 7]] == 114).all()
    assert (engine.canvases[0][0, 2:6] == 1).all()


@pytest.mark.parametrize("breaks_at", [1, 2, 5, 9])
def test_an_error_of_the_source_passes_through(breaks_at):
    frames = feed(Source(8, breaks_at=breaks_at), Engine(canvases=2, max_batch=2))

    with pytest.raises(SourceError, match="s: broke") as caught:
        list(frames)

    assert not isinstance(caught.value, EndOfStream)


def test_a_source_that_gives_nothing_in_time_is_an_error():
    with pytest.raises(SourceError, match="no frame within 60 s"):
        list(feed(Source(8, stalls_at=3), Engine(canvases=2, max_batch=2)))


def test_canvases_are_the_source_s_own_copies_and_letterboxed():
    rows = list(canvases_of(Source(5), SETTINGS))

    assert [int(row[4, 4, 0]) for row in rows] == [1, 2, 3, 4, 5]
    assert all((row[[0, 1, 6, 7]] == 114).all() for row in rows)


def test_canvases_of_a_source_that_breaks_are_an_error():
    with pytest.raises(SourceError, match="s: broke"):
        list(canvases_of(Source(5, breaks_at=3), SETTINGS))


def test_canvases_of_a_source_that_stalls_are_not_cut_short():
    with pytest.raises(SourceError, match="no frame within 60 s"):
        list(canvases_of(Source(5, stalls_at=3), SETTINGS))


def test_a_pipe_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "a.jpg")

    with pytest.raises(DatasetError, match="expected a regular file"):
        image_digest(tmp_path / "a.jpg")
