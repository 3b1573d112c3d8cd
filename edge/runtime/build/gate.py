"""The golden gate on a device: the frames of a release, and how an engine that was built here does on them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.bundle.manifest import GoldenLimits, Role, decode_manifest
from edge.config.pipeline import Pipeline
from edge.engine.pipeline_model import detector_of
from edge.errors import DeployError
from edge.evaluate.golden import GoldenScore, compare_golden, floor_of
from edge.evaluate.golden_file import GoldenSet, decode_golden
from edge.evaluate.golden_run import detect_golden
from edge.media.images import read_image
from edge.protocols import Engine
from edge.reading import read_file
from edge.types import ModelSpec
from edge.vision.detect import Detector

__all__ = ["Gate", "Race", "race", "read_gate"]

_MAX_GOLDEN_BYTES = 64 << 20  # detections of some hundred frames as text
_LEAST_PAIRS, _MOST_PAIRS = 5, 25
_ENOUGH_S = 4.0  # for all pairs; a slow engine is told from another by fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Golden frames, uint8 (H, W, 3) RGB each, and what has to be found on them."""

    canvases: Sequence[NDArray[np.uint8]]
    golden: GoldenSet
    limits: GoldenLimits
    detector: Detector

    def score(self, engine: Engine) -> GoldenScore:
        """Return how well an engine repeats what the float model found, in full batches.

        Raises:
            EngineError: if an inference failed.
        """
        found = detect_golden(self.canvases, engine, self.detector)
        expected = [one.detections for one in self.golden.images]
        return compare_golden(expected, found, sure_score=self.golden.sure_score, limits=self.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two engines timed in turn: median milliseconds for one full batch of each, and of the ratio of each pair."""

    asked_ms: float
    other_ms: float
    ratio: float
    pairs: int

    @property
    def is_asked_faster(self) -> bool:
        """Whether the one that was asked for took less time than the other in most pairs."""
        return self.ratio < 1


def read_gate(pipeline: Pipeline, spec: ModelSpec, manifest_path: Path) -> Gate:
    """Return the gate of the release that the manifest at `manifest_path` describes.

    Raises:
        DeployError: `verify.golden`, if the frames are not those of this model; `verify.manifest.*`.
    """
    manifest, release = decode_manifest(read_file(manifest_path)), manifest_path.parent
    expected = release / manifest.files_of(Role.GOLDEN)[0].path
    golden = decode_golden(read_file(expected, most_bytes=_MAX_GOLDEN_BYTES, follows_links=True))
    if (golden.model_sha256, golden.preprocess_sha256) != (spec.sha256, spec.preprocess.sha256):
        raise DeployError(
            "verify.golden", "golden.json was made for another model or preprocess", hint="bundle the release again"
        )
    listed = {one.path for one in manifest.files_of(Role.GOLDEN_IMAGE)}
    if strange := [one.path for one in golden.images if one.path not in listed]:
        raise DeployError("verify.golden", f"golden.json names {strange[0][:100]!r}, which the manifest does not list")
    return Gate(
        canvases=[read_image(release / one.path) for one in golden.images],
        golden=golden,
        limits=manifest.golden,
        detector=detector_of(pipeline, spec, score_threshold=floor_of(golden.sure_score)),
    )


def race(asked: Engine, other: Engine, canvases: Sequence[NDArray[np.uint8]]) -> Race:
    """Time two engines on the same full batches of `canvases` (none: empty ones), in turn, each first as often.

    A machine that slows down meanwhile slows both. The first batch of either is not counted.

    Raises:
        EngineError: if an inference failed.
    """
    for engine in (asked, other):
        _fill(engine, canvases)
        _batch_s(engine)
    pairs: list[tuple[float, float]] = []
    started_s = time.monotonic()
    while len(pairs) < _LEAST_PAIRS or (len(pairs) < _MOST_PAIRS and time.monotonic() - started_s < _ENOUGH_S):
        if len(pairs) % 2:
            other_s = _batch_s(other)
            pairs.append((_batch_s(asked), other_s))
        else:
            asked_s = _batch_s(asked)
            pairs.append((asked_s, _batch_s(other)))
    return Race(
        asked_ms=round(1e3 * statistics.median(one for one, _ in pairs), 3),
        other_ms=round(1e3 * statistics.median(one for _, one in pairs), 3),
        ratio=round(statistics.median(one / two for one, two in pairs), 4),
        pairs=len(pairs),
    )


def _fill(engine: Engine, canvases: Sequence[NDArray[np.uint8]]) -> None:
    for row in range(engine.max_batch if canvases else 0):
        engine.canvases[0][row] = canvases[row % len(canvases)]


def _batch_s(engine: Engine) -> float:
    began_s = time.perf_counter()
    engine.start(0, engine.max_batch)
    engine.wait(0)
    return time.perf_counter() - began_s
