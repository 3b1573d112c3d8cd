"""Golden frames: chosen, run in float, and put to the very gate that the device will put its engine to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.bundle.manifest import GoldenFrames, GoldenLimits
from edge.config.pipeline import Pipeline
from edge.deploy.packing.golden_candidates import Canvas, GoldenCandidates
from edge.engine.kind import EngineRequest
from edge.engine.pipeline_model import detector_of, max_batch_of
from edge.engine.select import build_and_load, quick_kind, usable_kind
from edge.errors import DeployError
from edge.evaluate.golden import GoldenScore, compare_golden, floor_of
from edge.evaluate.golden_file import GoldenImage, GoldenSet
from edge.evaluate.golden_run import detect_golden
from edge.media.images import write_image
from edge.protocols import Engine
from edge.quantize.forms import Forms
from edge.types import Detections, ModelSpec, Precision
from edge.vision.detect import Detector

__all__ = ["PackedGolden", "make_golden"]

MIN_IMAGES, MAX_IMAGES = 8, 16
_MOST_LOOKED_AT = 64
_ENOUGH_SURE = 40  # detections: one that is missed is then less than the gate allows
_SURE_SCORE = 0.4
_MIN_SCORE_ERROR = 0.02  # of the limit: kernels of other engines round otherwise
_MORE_THAN_HERE = 1.5
_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedGolden:
    """Golden frames of a release: their pictures as PNG files by path, what is to be found, and how it went here."""

    golden: GoldenSet
    pictures: dict[str, Path]
    proof: GoldenFrames
    limits: GoldenLimits
    score: GoldenScore


@dataclass(frozen=True, slots=True)
class _Chosen:
    canvas: Canvas
    found: Detections


def make_golden(
    pipeline: Pipeline,
    forms: Forms,
    precision: Precision,
    candidates: GoldenCandidates,
    *,
    folder: Path,
    limits: GoldenLimits,
    on_image: Callable[[], None] = lambda: None,
) -> PackedGolden:
    """Return the golden frames of a release, which it has passed here.

    Args:
        pipeline: whose thresholds and batch are used.
        forms: of its model, by its table.
        precision: what the release runs in.
        candidates: pictures to choose from.
        folder: where the chosen pictures are written to.
        limits: what has to hold here and on the device.
        on_image: called after each picture.

    Raises:
        DeployError: `bundle.golden.images` if the float model is sure of nothing on them, `bundle.golden` with the
            numbers if the release does not repeat what the float model finds.
        EdgeError: what engine and source raise.
    """
    spec, sure = forms.spec, max(_SURE_SCORE, pipeline.config.model.score_threshold)
    detector = detector_of(pipeline, spec, score_threshold=floor_of(sure))
    engine_name, chosen = _choose(forms, detector, candidates, sure=sure, on_image=on_image)
    found = _run_release(pipeline, forms, precision, detector, [one.canvas for one in chosen])
    score = compare_golden([one.found for one in chosen], found, sure_score=sure, limits=limits)
    if not score.is_passed:
        raise DeployError(
            "bundle.golden",
            f"{pipeline.path}: the release does not find what its float model finds: {'; '.join(score.failures)}",
            hint="calibrate again with images of these cameras, or use fp16",
            evidence=score.as_json(spec.labels),
        )
    pictures = {f"golden/{index:02}.png": folder / f"{index:02}.png" for index in range(len(chosen))}
    for path, one in zip(pictures.values(), chosen, strict=True):
        write_image(path, one.canvas)
    golden = GoldenSet(
        model_sha256=spec.sha256,
        preprocess_sha256=spec.preprocess.sha256,
        engine=engine_name,
        labels=spec.labels,
        sure_score=sure,
        iou_threshold=detector.iou_threshold,
        max_detections=detector.max_detections,
        images=tuple(GoldenImage(path=p, detections=one.found) for p, one in zip(pictures, chosen, strict=True)),
    )
    return PackedGolden(
        golden=golden, pictures=pictures, proof=candidates.proof, limits=_tightened(limits, score), score=score
    )


def _choose(
    forms: Forms, detector: Detector, candidates: GoldenCandidates, *, sure: float, on_image: Callable[[], None]
) -> tuple[str, Sequence[_Chosen]]:
    """Take the first pictures on which the float model is sure of something, and a few without where those are few."""
    engine = _engine(forms, precision=_float_of(forms.spec), max_batch=_BATCH)
    telling: list[_Chosen] = []
    silent: list[_Chosen] = []
    try:
        for one in _look_at(engine, detector, candidates.canvases):
            on_image()
            (telling if (one.found.score >= sure).any() else silent).append(one)
            is_enough = len(telling) >= MIN_IMAGES and _sure_count(telling, sure) >= _ENOUGH_SURE
            if is_enough or len(telling) == MAX_IMAGES:
                break
    finally:
        engine.close()
    if not telling:
        raise DeployError(
            "bundle.golden.images",
            f"the float model is sure (score {sure:g}) of nothing on {candidates.origin}, so they prove nothing",
            hint="give images that show what is to be found, --golden DIR",
        )
    return engine.name, telling + silent[: max(0, MIN_IMAGES - len(telling))]


def _look_at(engine: Engine, detector: Detector, canvases: Iterator[Canvas]) -> Iterator[_Chosen]:
    looked_at = itertools.islice(canvases, _MOST_LOOKED_AT)
    while some := list(itertools.islice(looked_at, _BATCH)):
        for canvas, found in zip(some, detect_golden(some, engine, detector), strict=True):
            yield _Chosen(canvas, found)


def _run_release(
    pipeline: Pipeline, forms: Forms, precision: Precision, detector: Detector, canvases: Sequence[Canvas]
) -> list[Detections]:
    # Few CPUs compute in fp16; what the device's own fp16 is worth only the device can tell.
    here = Precision.INT8 if precision is Precision.INT8 else Precision.FP32
    engine = _engine(forms, precision=here, max_batch=max_batch_of(pipeline))
    try:
        return detect_golden(canvases, engine, detector)
    finally:
        engine.close()


def _engine(forms: Forms, *, precision: Precision, max_batch: int) -> Engine:
    # The options of a pipeline are for its devices; what is found does not depend on them.
    kind = quick_kind(usable_kind())  # a push is to take seconds; the device proves its own engine
    return build_and_load(
        kind, forms, EngineRequest(precision=precision, max_batch=max_batch, options=kind.options_type())
    )


def _float_of(spec: ModelSpec) -> Precision:
    # A model that carries Q/DQ pairs has no float form here: it is its own reference.
    return Precision.INT8 if spec.is_quantized else Precision.FP32


def _sure_count(chosen: Sequence[_Chosen], sure: float) -> int:
    return sum(int((one.found.score >= sure).sum()) for one in chosen)


def _tightened(limits: GoldenLimits, score: GoldenScore) -> GoldenLimits:
    """Hold the device to what the release has reached here: one broken scale costs less than the widest limit."""
    allowed = max(_MIN_SCORE_ERROR, round(score.score_error * _MORE_THAN_HERE + 0.01, 3))
    return dataclasses.replace(limits, max_score_error=min(limits.max_score_error, allowed))
