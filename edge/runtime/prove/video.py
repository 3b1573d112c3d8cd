"""Step 4: decoding. Colours against those that were drawn, decoders until they fall behind, pastes, reconnects."""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.config.schema import StreamConfig
from edge.errors import SourceError
from edge.media.address import parse_address
from edge.media.ffmpeg import binding as pyav
from edge.media.gstreamer import binding as gst
from edge.media.gstreamer.build import NVMM_FACTORIES, SOFTWARE_FACTORIES
from edge.media.select import choose_decoder, make_connection, make_source
from edge.protocols import FrameSource
from edge.roofline.proof import Verdict
from edge.runtime.pipeline.rows import Canvases, Ticket
from edge.runtime.prove.kit import BARS, CLIP, CLIP_FPS, NotHereError, Rows, held, parts, told
from edge.runtime.serve.bench import decode_alone
from edge.types import ClockSource, Frame, FrameHeader, ImageSize, Preprocess, StreamId
from edge.vision.letterbox import fit

__all__ = ["COLOURS", "video"]

COLOURS = (
    (191, 191, 191),
    (191, 191, 0),
    (0, 191, 191),
    (0, 191, 0),
    (191, 0, 191),
    (191, 0, 0),
    (0, 0, 191),
    (16, 16, 16),
)
"""Of the bars, from left to right, as they were drawn (`tools/bars.py`)."""

_PREPROCESS = Preprocess(size=ImageSize(width=320, height=320))
_COLOUR_ERROR = 8  # levels of 256: coding and two conversions; a wrong matrix or range is off by 12 and more
_FRAME_S, _RATE_S = 10.0, 2.0
_MOST_STREAMS, _MET = 32, 0.95
_RECONNECTS, _SETTLED = 50, 10
_LEAK_BYTES = 32 << 20
_PASTES, _PASTE_RATIO = 60, 6.0


def video(*, is_brief: bool) -> Rows:
    """Yield what each decoder of this machine does; briefly: only whether it decodes, and the colours."""
    decoders = [*_decoders()]
    yield told("decoders", ", ".join(decoders) or "none")
    if not decoders:
        raise NotHereError("nothing is installed that decodes")
    bars = [(decoder, path) for decoder in decoders for path in sorted(BARS.glob("*.*"))]
    yield from parts(*((f"{one} {path.stem}", functools.partial(_colours, one, path)) for one, path in bars))
    if not is_brief:
        yield from parts(
            ("streams", lambda: _streams(decoders[0])),
            ("paste", _pastes),
            ("reconnects", lambda: _reconnects(decoders[0])),
        )


def _decoders() -> Iterator[str]:
    if gst.is_available():
        for name, factories in (("nvmm", NVMM_FACTORIES), ("software", SOFTWARE_FACTORIES)):
            if gst.has_factories(factories):
                yield name
    if pyav.is_available():
        yield "pyav"


def _connection(decoder: str, path: Path) -> FrameSource:
    stream = StreamConfig(id="prove", uri=str(path), decoder=decoder)  # type: ignore[arg-type]
    address = parse_address(stream.uri, base_dir=path.parent)
    return make_connection(stream, address, decoder=choose_decoder(stream, address), preprocess=_PREPROCESS)


def _colours(decoder: str, path: Path) -> Rows:
    name = f"{decoder} {path.stem}"
    with closing(_connection(decoder, path)) as source:
        source.open()
        image = _first(source).astype(np.int64)
    middles = [image[40:-40, _middle(image, bar)].reshape(-1, 3) for bar in range(len(COLOURS))]
    found = [tuple(round(level) for level in one.mean(axis=0)) for one in middles]
    errors = np.abs(np.array([one.mean(axis=0) for one in middles]) - COLOURS)
    worst = int(errors.max(axis=1).argmax())
    detail = f"at most {errors.max():.1f} levels off, {found[worst]} for {COLOURS[worst]}"
    most = float(errors.max())
    yield held(name, most <= _COLOUR_ERROR, detail, else_=Verdict.WORSE, most=round(most, 2))


def _middle(image: NDArray[np.int64], bar: int) -> slice:
    width = image.shape[1] / len(COLOURS)
    return slice(round((bar + 0.3) * width), round((bar + 0.7) * width))


def _first(source: FrameSource) -> NDArray[np.uint8]:
    frame = source.read(_FRAME_S)
    if frame is None:
        raise SourceError(f"no frame within {_FRAME_S:g} s")
    return frame.image


def _streams(decoder: str) -> Rows:
    """Double the streams until they do not keep their rate, and tell the last number that did."""
    met, fps = 0, 0.0
    count = 1
    while count <= _MOST_STREAMS:
        fps = _rate(decoder, count)
        if fps < _MET * count * CLIP_FPS:
            break
        met, count = count, 2 * count
    last = f"of {min(count, _MOST_STREAMS)} came {fps:.0f} fps"
    detail = f"{met} streams of 640x360 at {CLIP_FPS} fps keep their rate by {decoder}; {last}"
    yield held("streams", met > 0, detail, else_=Verdict.WORSE, streams=met)


def _rate(decoder: str, count: int) -> float:
    streams = [
        StreamConfig(id=f"s{index}", uri=str(CLIP), loop=True, realtime=True, decoder=decoder)  # type: ignore[arg-type]
        for index in range(count)
    ]
    sources = [make_source(one, preprocess=_PREPROCESS, base_dir=CLIP.parent) for one in streams]
    return decode_alone(sources, _RATE_S).fps


def _pastes() -> Rows:
    """Time what copies a frame to its row of a batch: pixels of three bytes, and of four, as a Jetson gives."""
    letterbox = fit(ImageSize(width=640, height=360), Preprocess(size=ImageSize(width=640, height=640)))
    shape = (letterbox.fitted.height, letterbox.fitted.width)
    header = FrameHeader(stream=StreamId("prove"), frame=1, pts_ns=0, captured_at_ns=0, clock=ClockSource.FILE,
                         source_size=letterbox.source, read_at_ns=0)  # fmt: skip
    canvases = Canvases([np.zeros((8, 640, 640, 3), np.uint8)], pad_value=114)

    def times_us(image: Callable[[], NDArray[np.uint8]]) -> float:
        frames = [Frame(header=header, letterbox=letterbox, image=image()) for _ in range(8)]
        found = []
        for number in range(_PASTES):
            began_s = time.perf_counter()
            canvases.copy(frames[number % 8], Ticket(stream=header.stream, canvas=0, row=number % 8))
            found.append(time.perf_counter() - began_s)
        return 1e6 * statistics.median(found)

    three = times_us(lambda: np.zeros((*shape, 3), np.uint8))
    four = times_us(lambda: np.zeros((*shape, 4), np.uint8)[..., :3])
    detail = f"640x360: {three:.0f} us of RGB, {four:.0f} us of RGBA"
    yield held("paste", four <= _PASTE_RATIO * three, detail, else_=Verdict.WORSE, rgb_us=three, rgba_us=four)


def _reconnects(decoder: str) -> Rows:
    """Open, read and close a stream again and again: descriptors and memory stay."""
    marks: list[tuple[int, int]] = []
    for number in range(_RECONNECTS + 1):
        with closing(_connection(decoder, CLIP)) as source:
            source.open()
            _first(source)
        if number in (_SETTLED, _RECONNECTS):
            marks.append((len(os.listdir("/proc/self/fd")), _resident_bytes()))
    (files, memory), (files_then, memory_then) = marks
    grown = memory_then - memory
    detail = f"{_RECONNECTS} by {decoder}: descriptors {files} to {files_then}, memory grew by {grown / 2**20:.1f} MiB"
    yield held("reconnects", files_then <= files + 2 and grown < _LEAK_BYTES, detail, else_=Verdict.WORSE)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
