"""Images through an engine that computes while others are read, and overwrites what it gave out; what are no images."""

import os
from pathlib import Path

import numpy as np
import pytest

from edge.errors import DatasetError, EndOfStream, SourceError
from edge.quantize.feed import canvases_of, run_stills, still_canvases
from edge.quantize.stills import image_digest
from edge.types import Frame, ImageSize, Preprocess, StreamId
from edge.vision.boxes import fit
from tests.support.values import header

SIZE = ImageSize(width=8, height=8)
SETTINGS = Preprocess(size=SIZE)
WHERE = fit(ImageSize(width=8, height=4), SETTINGS)


class Files:
    """`count` files, the n-th of which is read as a picture filled with n. Breaks at picture `breaks_at`."""

    def __init__(self, count, *, breaks_at=None):
        self.paths, self._breaks_at = [Path(str(number)) for number in range(1, count + 1)], breaks_at
        self.reads = []

    def read(self, path):
        self.reads.append(path)
        if len(self.reads) == self._breaks_at:
            raise DatasetError(f"{path}: broke")
        return np.full((4, 8, 3), int(path.name), np.uint8)


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


def run(files, **engine):
    return run_stills(files.paths, Engine(**engine), read=files.read)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 7, 16])
@pytest.mark.parametrize("max_batch", [1, 3])
@pytest.mark.parametrize("canvases", [2, 5])
def test_every_image_is_read_once_and_comes_in_order(canvases, max_batch, count):
    files, values = Files(count), []
    for placed, found in run(files, canvases=canvases, max_batch=max_batch):
        assert placed == [WHERE] * len(found)
        assert len(found) <= max_batch
        values += found.tolist()

    assert values == list(range(1, count + 1))
    assert files.reads == files.paths


@pytest.mark.parametrize("canvases", [2, 5])
def test_what_was_yielded_stays_until_the_next_step(canvases):
    found_on = run(Files(10), canvases=canvases, max_batch=3)

    for expected in ([1, 2, 3], [4, 5, 6], [7, 8, 9], [10]):
        _, found = next(found_on)
        assert found.tolist() == expected
    assert next(found_on, None) is None


@pytest.mark.parametrize("canvases", [2, 5])
def test_all_canvases_are_in_use(canvases):
    files, engine = Files(16), Engine(canvases=canvases, max_batch=1)

    list(run_stills(files.paths, engine, read=files.read))

    assert engine.most_running == canvases


@pytest.mark.parametrize("breaks_at", [1, 2, 5, 8])
def test_an_image_that_cannot_be_read_is_an_error(breaks_at):
    files = Files(8, breaks_at=breaks_at)

    with pytest.raises(DatasetError, match=f"{breaks_at}: broke"):
        list(run(files, canvases=2, max_batch=2))


class Source:
    """`count` frames, the n-th filled with n; one buffer, overwritten by each read. Stalls at frame `stalls_at`."""

    stream = StreamId("s")

    def __init__(self, count, *, stalls_at=None):
        self._count, self._stalls_at = count, stalls_at
        self._image = np.zeros((4, 8, 3), np.uint8)
        self.reads = 0

    def read(self, timeout_s):
        self.reads += 1
        if self.reads == self._stalls_at:
            return None
        if self.reads > self._count:
            raise EndOfStream("s: end")
        self._image[:] = self.reads
        return Frame(header=header("s", self.reads, size=WHERE.source), letterbox=WHERE, image=self._image)


def of_images():
    files = Files(5)
    return still_canvases(files.paths, SETTINGS, read=files.read)


@pytest.mark.parametrize("canvases", [of_images, lambda: canvases_of(Source(5), SETTINGS)], ids=["images", "clip"])
def test_canvases_are_copies_and_letterboxed(canvases):
    rows = list(canvases())

    assert [int(row[4, 4, 0]) for row in rows] == [1, 2, 3, 4, 5]
    assert all((row[[0, 1, 6, 7]] == 114).all() for row in rows)


def test_canvases_of_a_clip_that_stalls_are_not_cut_short():
    with pytest.raises(SourceError, match="no frame within 60 s"):
        list(canvases_of(Source(5, stalls_at=3), SETTINGS))


def test_a_pipe_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "a.jpg")

    with pytest.raises(DatasetError, match="expected a regular file"):
        image_digest(tmp_path / "a.jpg")
