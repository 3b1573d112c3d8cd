"""Where golden frames come from: a folder of images, or else the clips that the pipeline plays."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.bundle.manifest import GoldenFrames
from edge.calibrate.table import CalibrationTable, DatasetId
from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.config.uris import local_path
from edge.errors import DeployError
from edge.media.select import make_source
from edge.quantize.feed import canvases_of
from edge.quantize.make_table.images import CalibrationImage, find_images, split_images, still_source
from edge.types import ModelSpec, Preprocess

__all__ = ["GoldenCandidates", "find_golden_candidates"]

Canvas = NDArray[np.uint8]
_OF_A_CLIP = 480  # frames of each clip that are looked through
_EVERY = 30  # neighbours show the same
_NO_FRAMES_HINT = "give a folder of images, --golden DIR, or state --no-golden"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCandidates:
    """Pictures to choose golden frames from; `canvases` can be gone through once."""

    canvases: Iterator[Canvas]
    proof: GoldenFrames
    origin: str


def find_golden_candidates(
    pipeline: Pipeline,
    spec: ModelSpec,
    table: CalibrationTable | None,
    *,
    folder: Path | None,
    calibration_images: Path | None,
) -> GoldenCandidates:
    """Return pictures that did not make the calibration table, as far as that can be known.

    Args:
        pipeline: whose clips are used where there is no `folder`.
        spec: of its model.
        table: that the release runs by.
        folder: of images.
        calibration_images: the folder that the table was made from, if it is at hand.

    Raises:
        DeployError: `bundle.golden.images`, if there are none, or all of them made the table.
        DatasetError: if an image cannot be used.
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
    images: Sequence[CalibrationImage] = find_images(folder)[0]
    dataset = None if table is None else table.dataset
    if dataset is not None:
        images, proven = _outside(images, folder, dataset, calibration_images)
    source = still_source(images, spec.preprocess)
    return GoldenCandidates(
        canvases=canvases_of(source, spec.preprocess), proof=proven, origin=f"{len(images)} of {folder}"
    )


def _outside(
    images: Sequence[CalibrationImage], folder: Path, dataset: DatasetId, calibration_images: Path | None
) -> tuple[Sequence[CalibrationImage], GoldenFrames]:
    """Leave out what made the table. A table knows its images only as a set, by one digest of all."""
    observed = _observed(images, dataset)
    if observed is None and calibration_images is not None:
        known, _ = find_images(calibration_images)
        observed = _observed(known, dataset)
        if observed is None:
            raise DeployError(
                "bundle.golden.images",
                f"{calibration_images}: the table was made from {dataset.images} other images",
                hint="name the folder that edge-deploy calibrate was given",
            )
    if observed is None:
        return images, GoldenFrames.UNKNOWN
    others = [image for image in images if image.sha256 not in observed]
    if not others:
        raise DeployError(
            "bundle.golden.images",
            f"{folder}: the calibration table was made from all of these images, so they prove nothing",
            hint="give other images of the same cameras, --golden DIR",
        )
    return others, GoldenFrames.OUTSIDE


def _observed(images: Sequence[CalibrationImage], dataset: DatasetId) -> set[str] | None:
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
