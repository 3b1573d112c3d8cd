"""Golden frames: chosen, run in float, and put to the very gate that the device will put its engine to."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.bundle.manifest import GoldenFrames, GoldenLimits
from edge.calibrate.table import CalibrationTable, DatasetId
from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.config.uris import local_path
from edge.engine.kind import EngineRequest, build_and_load, quick_kind, usable_kind
from edge.engine.section import detector_of, max_batch_of
from edge.errors import DeployError, ModelError
from edge.evaluate.golden import GoldenImage, GoldenScore, GoldenSet, compare_golden, detect_golden, floor_of
from edge.media.images import write_image
from edge.media.select import make_source
from edge.protocols import Engine
from edge.quantize.feed import canvases_of, still_canvases
from edge.quantize.forms import Forms
from edge.quantize.stills import StillImage, looking_like
from edge.quantize.subject import FoundImages, find_images, split_images
from edge.types import Detections, ModelSpec, Precision, Preprocess
from edge.vision.heads import Detector

__all__ = ["GoldenCandidates", "PackedGolden", "find_golden_candidates", "make_golden"]

Canvas = NDArray[np.uint8]
_OF_A_CLIP = 480  # frames of each clip that are looked through
_EVERY = 30  # neighbours show the same
_NO_FRAMES_HINT = "give a folder of images, --golden DIR, or leave it unproven: edge-deploy bundle --no-golden"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCandidates:
    """Pictures to choose golden frames from; `canvases` can be gone through once. `notes`: what was left out."""

    canvases: Iterator[Canvas]
    proof: GoldenFrames
    origin: str
    notes: tuple[str, ...] = ()


def find_golden_candidates(
    pipeline: Pipeline,
    spec: ModelSpec,
    table: CalibrationTable | None,
    *,
    folder: Path | None,
    calibration_images: Path | None,
) -> GoldenCandidates:
    """Return pictures of `folder` (None: the clips) that did not make the table, as far as that can be known.

    `calibration_images`: the folder that the table was made from, if it is at hand. Raises `DatasetError` for an image,
    DeployError `bundle.golden.images` if there are none, or all of them made the table.
    """
    proven = GoldenFrames.OUTSIDE if table is None and not spec.is_quantized else GoldenFrames.UNKNOWN
    if folder is None:
        clips = _clips(pipeline)
        if not clips:
            raise DeployError(
                "bundle.golden.images", f"{pipeline.path}: no images to prove the release on", hint=_NO_FRAMES_HINT
            )
        frames = itertools.chain.from_iterable(_frames(pipeline, clip, spec.preprocess) for clip in clips)
        return GoldenCandidates(canvases=frames, proof=proven, origin=f"{len(clips)} clips of the pipeline")
    found = find_images(folder)
    images: Sequence[StillImage] = found.images
    dataset = None if table is None else table.dataset
    if dataset is not None:
        images, proven = _outside(found, folder, dataset, calibration_images)
    canvases = still_canvases([image.path for image in images], spec.preprocess)
    return GoldenCandidates(canvases=canvases, proof=proven, origin=f"{len(images)} of {folder}", notes=found.notes)


def _outside(
    found: FoundImages, folder: Path, dataset: DatasetId, calibration_images: Path | None
) -> tuple[Sequence[StillImage], GoldenFrames]:
    """Leave out what made the table, and what looks like it. A table knows its images only by one digest of all."""
    known = found
    observed = _observed(found.images, dataset)
    if observed is None and calibration_images is not None:
        known = find_images(calibration_images)
        observed = _observed(known.images, dataset)
        if observed is None:
            raise DeployError(
                "bundle.golden.images",
                f"{calibration_images}: the table was made from {dataset.images} other images",
                hint="name the folder that edge-deploy calibrate was given",
            )
    if observed is None:
        return found.images, GoldenFrames.UNKNOWN
    same = looking_like(found.looks, {digest: known.looks[digest] for digest in sorted(observed)})
    others = [image for image in found.images if image.sha256 not in same]
    if not others:
        raise DeployError(
            "bundle.golden.images",
            f"{folder}: the calibration table was made from all of these images, or from ones that look the same, so "
            "they prove nothing",
            hint="give other images of the same cameras, --golden DIR",
        )
    return others, GoldenFrames.OUTSIDE


def _observed(images: Sequence[StillImage], dataset: DatasetId) -> set[str] | None:
    """Return which of `images` made a table: all, or all but those that `calibrate` has held out; None: cannot tell."""
    held_out = len(images) - dataset.images
    if held_out < 0:
        return None
    digests = sorted(image.sha256 for image in split_images(images, held_out=held_out).observed)
    whole = hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()
    return set(digests) if whole == dataset.sha256 else None


def _clips(pipeline: Pipeline) -> list[StreamConfig]:
    folder, clips = pipeline.path.parent, dict[Path, StreamConfig]()
    for stream in pipeline.config.streams:
        path = local_path(stream.uri, folder)
        if path is not None and path.is_file():
            clips.setdefault(path, stream)
    return list(clips.values())


def _frames(pipeline: Pipeline, clip: StreamConfig, preprocess: Preprocess) -> Iterator[Canvas]:
    # As a file is read: every frame once, in order, so that the choice does not depend on the machine's speed.
    stream = StreamConfig(id=clip.id, uri=clip.uri, decoder="auto" if clip.decoder == "nvmm" else clip.decoder)
    source = make_source(stream, preprocess=preprocess, base_dir=pipeline.path.parent)
    with closing(source):
        source.open()
        yield from itertools.islice(canvases_of(source, preprocess), 0, _OF_A_CLIP, _EVERY)


MIN_IMAGES, MAX_IMAGES = 8, 16
_MOST_LOOKED_AT = 64
_ENOUGH_SURE = 40  # detections: one that is missed is then less than the gate allows
_SURE_SCORE = 0.4
_MIN_SCORE_ERROR = 0.02  # of the limit: kernels of other engines round otherwise
_MORE_THAN_HERE = 1.5
_BATCH = 4
_QDQ_HINT = "train or quantize it again; edge-deploy table import takes its pairs out, calibrate finds ranges anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedGolden:
    """Golden frames of a release: their pictures as PNG files by path, what is to be found, and how it went here.

    `notes` say what makes the proof weak.
    """

    golden: GoldenSet
    pictures: dict[str, Path]
    proof: GoldenFrames
    limits: GoldenLimits
    score: GoldenScore
    notes: tuple[str, ...] = ()


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
) -> PackedGolden:
    """Write the golden frames of a release to `folder` and return them; the release passed `limits` on them here.

    Raises DeployError: `bundle.golden.images` if the float model is sure of nothing on them, `bundle.golden.reference`
    if the model carries Q/DQ pairs that cannot be taken out, `bundle.golden` with the numbers if the release does not
    repeat what the float model finds; and what engine and source raise.
    """
    spec, sure = forms.spec, max(_SURE_SCORE, pipeline.config.model.score_threshold)
    detector = detector_of(pipeline, spec, score_threshold=floor_of(sure))
    engine_name, chosen = _choose(
        _reference(forms), dataclasses.replace(detector, refuses_nan_of=spec.name), candidates, sure=sure
    )
    found = _run_release(pipeline, forms, precision, detector, [one.canvas for one in chosen])
    score = compare_golden([one.found for one in chosen], found, sure_score=sure, limits=limits)
    if not score.is_passed:
        raise DeployError(
            "bundle.golden",
            f"{pipeline.path}: the release does not find what its float model finds: {'; '.join(score.failures)}",
            hint=_QDQ_HINT if spec.is_quantized else "calibrate again with images of these cameras, or use fp16",
            evidence={"found again": _by_class(score, spec.labels)},
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
        golden=golden,
        pictures=pictures,
        proof=candidates.proof,
        limits=_tightened(limits, score),
        score=score,
        notes=(*candidates.notes, *_few(score)),
    )


def _by_class(score: GoldenScore, labels: Sequence[str]) -> str:
    rows = score.as_json(labels)["per_class"].items()
    return ", ".join(
        f"{name} {found} of {wanted}" + f" and {extra} extra" * (extra > 0) for name, (wanted, found, extra) in rows
    )


def _few(score: GoldenScore) -> Iterator[str]:
    if score.expected < _ENOUGH_SURE or score.images < MIN_IMAGES:
        yield (
            f"the proof is weak: {score.expected} of {_ENOUGH_SURE} sure detections, on {score.images} images "
            f"({MIN_IMAGES} to {MAX_IMAGES}); --golden DIR takes others, which show more of what is to be found"
        )


def _reference(forms: Forms) -> Forms:
    """Return the float model: where Q/DQ pairs are the release's own, the model without them, never itself."""
    try:
        return forms.reference()
    except ModelError as error:
        raise DeployError(
            "bundle.golden.reference",
            f"the release is unproven: no float model can be made of it to hold its INT8 against: {error.problem}",
            hint=f"{error.hint}; or bundle it unproven, --no-golden, for devices with allow_unproven = true",
        ) from error


def _choose(
    reference: Forms, detector: Detector, candidates: GoldenCandidates, *, sure: float
) -> tuple[str, Sequence[_Chosen]]:
    """Take the first pictures on which the float model is sure of something, and a few without where those are few."""
    engine = _engine(reference, precision=Precision.FP32, max_batch=_BATCH)
    telling: list[_Chosen] = []
    silent: list[_Chosen] = []
    try:
        for one in _look_at(engine, detector, candidates.canvases):
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


def _sure_count(chosen: Sequence[_Chosen], sure: float) -> int:
    return sum(int((one.found.score >= sure).sum()) for one in chosen)


def _tightened(limits: GoldenLimits, score: GoldenScore) -> GoldenLimits:
    """Hold the device to what the release has reached here: one broken scale costs less than the limit."""
    allowed = max(_MIN_SCORE_ERROR, round(score.score_error * _MORE_THAN_HERE + 0.01, 3))
    return dataclasses.replace(limits, max_score_error=min(limits.max_score_error, allowed))
