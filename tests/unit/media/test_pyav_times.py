"""Times of a stream that PyAV reads go on when those of the sender begin anew, and keep its pace."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edge.config.schema import StreamConfig
from edge.errors import EdgeError
from edge.media.address import parse_address
from edge.media.ffmpeg import source as pyav
from tests.support.clips import CANVAS

PERIOD_S = 0.04
ONE = [round(index * PERIOD_S, 3) for index in range(12)]


class Playlist:
    """Stands in for the decoder of a live playlist: gives all that it has at once."""

    codec, is_bursty, errors, packets, period_ns = "h264", True, 0, 0, round(PERIOD_S * 1e9)

    def __init__(self, times_s):
        self._times_s = times_s

    def frames(self):
        av = pytest.importorskip("av")
        for time_s in self._times_s:
            frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
            yield SimpleNamespace(
                time=time_s,
                width=64,
                height=64,
                side_data={},
                color_range=2,
                colorspace=5,
                format=frame.format,
                reformat=frame.reformat,
            )

    def is_clean(self, _frame):
        return True

    def end_read(self):
        pass

    def close(self):
        pass


@pytest.mark.parametrize("again_s", [0.0, 95443.7, 3600.0], ids=["from zero", "behind a wrap", "an hour ahead"])
def test_a_playlist_that_begins_anew_goes_on_at_its_pace(monkeypatch, again_s):
    times_s = [2.0 + one for one in ONE] + [again_s + one for one in ONE]
    monkeypatch.setattr(pyav, "Decoder", lambda *_, **__: Playlist(times_s))
    address = parse_address("http://camera/live", base_dir=Path("/"))
    source = pyav.PyavSource(StreamConfig(id="east", uri="http://camera/live"), address, preprocess=CANVAS)
    begun_s, times_ns = time.monotonic(), []
    source.open()
    with contextlib.suppress(EdgeError):  # its end
        while time.monotonic() - begun_s < 10:
            frame = source.read(0.5)
            times_ns += [] if frame is None else [frame.header.pts_ns]
    took_s = time.monotonic() - begun_s
    source.close()

    assert times_ns[-1] == pytest.approx((len(times_s) - 1) * PERIOD_S * 1e9, abs=2)
    assert 0.8 * len(times_s) * PERIOD_S < took_s < 10
