"""The process of one step: `child STEP FOLDER [as-service]`. Each row is a line of JSON on stdout, as it is found.

Here are steps 3, 5 and 7, what the engines of this machine stand on, and each way in which they build a model.
And step 4, decoding: colours against those that were drawn, decoders until they fall behind, pastes, reconnects.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.bundle.manifest import GoldenLimits
from edge.config.schema import StreamConfig
from edge.engine.kind import (
    EngineKind,
    EngineRequest,
    ProofForm,
    ProvingKind,
    build_and_load,
    load_kind,
    quick_kind,
    usable_kind,
)
from edge.engine.kinds import kinds
from edge.errors import EdgeError, SourceError
from edge.evaluate.golden import GoldenScore, compare_golden, detect_golden, floor_of
from edge.media.address import parse_address
from edge.media.ffmpeg import binding as pyav
from edge.media.gstreamer import binding as gst
from edge.media.gstreamer.build import NVMM_FACTORIES, SOFTWARE_FACTORIES
from edge.media.select import choose_decoder, make_connection, make_source
from edge.model.inspect import inspect_model
from edge.protocols import Engine, FrameSource, GraphingEngine
from edge.quantize.forms import Forms
from edge.reading import available_bytes
from edge.roofline.proof import Row, Verdict
from edge.runtime.build.choice import batch_s
from edge.runtime.pipeline.rows import Canvases, Ticket
from edge.runtime.prove.kit import (
    BARS,
    CLIP,
    CLIP_FPS,
    MODEL,
    NotHereError,
    Rows,
    forms_of,
    golden_canvases,
    held,
    parts,
    told,
    watched,
)
from edge.runtime.prove.look import beside, facts, load, nodes, unit
from edge.runtime.serve.bench import decode_alone
from edge.types import ClockSource, Detections, Frame, FrameHeader, ImageSize, Precision, Preprocess, StreamId
from edge.vision.boxes import fit
from edge.vision.heads import Detector, head_of

__all__ = ["AS_SERVICE", "COLOURS", "STEP_OF", "cuda", "dla", "forms", "forms_of_kind", "main", "video"]

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


_BATCH, _SURE_SCORE, _IOU = 4, 0.25, 0.45
_BATCHES = 30
_LOOK_S = 0.1
_BEGIN_S = 120.0  # no form is begun after so long: those before it are to be reported, and the others have their steps


def cuda(*, is_brief: bool) -> Rows:
    """Yield what the units of the kinds of engine do, where a kind can say so."""
    found = [*_proving()]
    if not found:
        raise NotHereError("no kind of engine here has a unit of its own to be proven")
    for name, kind in found:
        why_not = kinds()[name].why_not()
        try:
            yield from kind.proofs(is_brief=is_brief)
        except EdgeError as error:
            # Where the kind is ready to run, its unit has to do so, too.
            if why_not is None:
                raise
            raise NotHereError(error.problem) from None


def _proving() -> Iterator[tuple[str, ProvingKind]]:
    for name in kinds():
        kind = load_kind(name)
        if isinstance(kind, ProvingKind):
            yield name, kind


def forms(folder: Path) -> Rows:
    """Yield how each way to build the model does, and which one this kind of board should take."""
    for kind, asked in _ready(is_beside=False):
        yield from forms_of_kind(kind, asked, folder)


def dla(folder: Path) -> Rows:
    """Yield how the model does on a unit beside the one that computes else."""
    each = [(kind, form) for kind, asked in _ready(is_beside=True) for form in asked]
    if not each:
        raise NotHereError("the machine has none")
    for kind, form in each:
        yield from forms_of_kind(kind, [form], folder)


def _ready(*, is_beside: bool) -> Iterator[tuple[EngineKind, Sequence[ProofForm]]]:
    for name, kind in _proving():
        if (why_not := kinds()[name].why_not()) is not None:
            raise NotHereError(f"{name}: {why_not}")
        yield load_kind(name), [one for one in kind.forms() if one.is_beside == is_beside]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A form that was built, and how its engine does."""

    form: ProofForm
    batch_ms: float
    singly_ms: float | None
    score: GoldenScore


def forms_of_kind(kind: EngineKind, asked: Sequence[ProofForm], folder: Path) -> Rows:
    """Yield a row for each form as it is built, loaded, held against the float model and timed."""
    spec = inspect_model(MODEL)
    model, canvases = forms_of(spec), golden_canvases(spec)
    detector = Detector(
        head=head_of(spec), score_threshold=floor_of(_SURE_SCORE), iou_threshold=_IOU, max_detections=300
    )
    expected = _float_detections(model, canvases, detector)
    done: list[_Done] = []
    started_s = time.monotonic()
    for form in asked:
        if (took_s := time.monotonic() - started_s) > _BEGIN_S:
            yield Row(name=form.name, verdict=Verdict.WORSE, detail=f"not begun: those before it took {took_s:.0f} s")
            continue
        request = EngineRequest(precision=form.precision, max_batch=_BATCH, options=form.options, cache_folder=folder)
        try:
            with watched(lambda: available_bytes() or 0, every_s=_LOOK_S) as left:
                began_s = time.monotonic()
                plan = kind.build(model, request)
                seconds = time.monotonic() - began_s
            with closing(kind.load(plan.data, spec, request)) as engine:
                found = detect_golden(canvases, engine, detector)
                score = compare_golden(expected, found, sure_score=_SURE_SCORE, limits=GoldenLimits())
                ended = _Done(form=form, batch_ms=_batch_ms(engine), singly_ms=_singly_ms(engine), score=score)
        except EdgeError as error:
            yield Row(name=form.name, verdict=Verdict.WORSE, detail=f"is not built or does not run here: {error}")
            continue
        done.append(ended)
        yield _row(ended, seconds=seconds, low_bytes=min(left), report=plan.report)
    yield _taken(done)


def _row(done: _Done, *, seconds: float, low_bytes: int, report: Mapping[str, object]) -> Row:
    score, skipped = done.score, report.get("skipped_tactics", 0)
    singly = "" if done.singly_ms is None else f", {done.singly_ms:.2f} without a graph"
    detail = (
        f"built in {seconds:.0f} s, {low_bytes >> 20} MiB of memory left at least; {done.batch_ms:.2f} ms for a batch "
        f"of {_BATCH}{singly}; finds {score.recall:.1%} of the float model's, {score.extra_share:.1%} of its own"
        + (f"; {skipped} tactics left out for lack of memory" if skipped else "")
    )
    values = {"build_s": round(seconds, 2), "low_bytes": low_bytes, "batch_ms": done.batch_ms, "report": report}
    values["singly_ms"] = done.singly_ms
    return held(done.form.name, score.is_passed and not skipped, detail, else_=Verdict.WORSE, **values)


def _taken(done: Sequence[_Done]) -> Row:
    """Return which form this board should take: of those that find what the float model does the fastest."""
    good = sorted((one for one in done if one.score.is_passed), key=lambda one: one.batch_ms)
    if not good:
        return Row(name="form", verdict=Verdict.FAILS, detail="none is built here and finds what the float model finds")
    best = good[0]
    is_int8 = best.form.precision is Precision.INT8
    detail = f"{best.form.name} is the fastest that is right, {best.batch_ms:.2f} ms for a batch of {_BATCH}"
    return held("form", is_int8, detail, else_=Verdict.WORSE, form=best.form.name)


def _float_detections(model: Forms, canvases: Sequence[NDArray[np.uint8]], detector: Detector) -> Sequence[Detections]:
    kind = quick_kind(usable_kind())
    request = EngineRequest(precision=Precision.FP32, max_batch=_BATCH, options=kind.options_type())
    with closing(build_and_load(kind, model, request)) as engine:
        return detect_golden(canvases, engine, detector)


def _singly_ms(engine: Engine) -> float | None:
    if not isinstance(engine, GraphingEngine):
        return None
    with engine.singly():
        return _batch_ms(engine)


def _batch_ms(engine: Engine) -> float:
    return round(1e3 * statistics.median(batch_s(engine) for _ in range(_BATCHES)), 3)


AS_SERVICE = "as-service"

STEP_OF: Mapping[str, Callable[[Path, bool], Rows]] = MappingProxyType(
    {
        "facts": lambda folder, brief: facts(),
        "nodes": lambda folder, brief: nodes(),
        "cuda": lambda folder, brief: cuda(is_brief=brief),
        "video": lambda folder, brief: video(is_brief=brief),
        "forms": lambda folder, brief: forms(folder),
        "beside": lambda folder, brief: beside(folder),
        "dla": lambda folder, brief: dla(folder),
        "load": lambda folder, brief: load(folder),
        "unit": lambda folder, brief: unit(folder),
    }
)
"""By name: what yields the rows of a step, given a folder of its own and whether it runs inside the sandbox."""


def main(name: str, folder: str, *more: str) -> None:
    """Do one step. Whatever libraries print goes to stderr."""
    rows = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for row in parts((name, lambda: STEP_OF[name](Path(folder), AS_SERVICE in more))):
        rows.write(msgspec.json.encode(row) + b"\n")
        rows.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
