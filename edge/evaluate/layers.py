"""How much a model loses in INT8: in its detections, and by layers, and whether what a layer saves is worth it.

Scores and boxes are compared before suppression. That is smoother than mAP, and needs no labels: a box a little off
counts a little. What is surely there counts most, by the square of its score: mAP is lost where INT8 lowers high scores
and shifts their boxes, not in the noise of low ones (docs/adr/0003).

Signal and noise of layers are summed over all images, in float64:

    SQNR = 10 log10(sum x^2 / sum (x - x_int8)^2)

where x is a tensor of the float model and x_int8 the same tensor of the INT8 model, everything in front of it in INT8
as well. A layer also makes more or less of the noise that comes in, in float just so; SQNR of output and input cannot
tell that from the noise that its own rounding adds. So that is measured apart, against the layer in float on the very
input that the INT8 model has for it (its copy in float):

    added = sum (x_copy - x_int8)^2 / sum x_copy^2

A layer pays where that is at most MOST_ADDED_NOISE and it is faster in INT8 by more than the noise of the clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.types import HeadFamily
from edge.vision.heads import Candidates

__all__ = [
    "ComparedLayer",
    "LayerError",
    "LayerErrors",
    "LayerTimes",
    "LayerVerdict",
    "MOST_ADDED_NOISE",
    "Parity",
    "Quantization",
    "best_candidates",
    "compare_candidates",
    "error_of_best",
    "worst_layers",
]

MOST_ADDED_NOISE = 0.01  # of the power of the signal: what a layer adds that keeps 20 dB by itself
_CHUNK = 1 << 16  # values at once: float64 copies that stay in the cache
_QUARTILES = (0.25, 0.75)


class LayerVerdict(str, enum.Enum):
    """Whether a layer pays for itself in INT8; the first that is true, from the top."""

    FLOAT = "float"  # it stays in float
    COSTS_ACCURACY = "costs accuracy"  # it adds more noise than MOST_ADDED_NOISE
    UNKNOWN = "unknown"  # there is no signal, or its time is not known
    PAYS = "pays"  # three quarters of its runs in INT8 are faster than three quarters of those in float
    SAVES_NO_TIME = "saves no time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the values of a tensor become INT8: what is above `range_` is clipped, what is below `step` / 2 becomes 0."""

    range_: float
    step: float

    def __post_init__(self) -> None:
        if not 0 < self.step <= self.range_ < math.inf:
            raise ValueError(f"a range is larger than its step, and both are positive; got {self.range_}, {self.step}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLayer:
    """A weighted node: `input_` is the activation that it reads, `quantization` how; None where it reads float.

    `float_copy` is what the INT8 model calls the output of the same node in float; None where the node itself is.
    """

    name: str
    op_type: str
    input_: str
    output: str
    macs: int
    quantization: Quantization | None
    float_copy: str | None

    def __post_init__(self) -> None:
        if (self.quantization is None) != (self.float_copy is None):
            raise ValueError(f"{self.name}: a layer in INT8 has a range and a copy in float, one in float neither")

    @property
    def is_int8(self) -> bool:
        return self.quantization is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds for one frame in each run, float64 (runs,), in either arithmetic."""

    float_s: NDArray[np.float64]
    int8_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not (self.float_s.size and self.int8_s.size):
            raise ValueError("expected at least one run in float and one in INT8")

    @property
    def saves(self) -> bool:
        """Whether three quarters of the runs in INT8 are faster than three quarters of those in float."""
        return float(np.quantile(self.int8_s, _QUARTILES[1])) < float(np.quantile(self.float_s, _QUARTILES[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """Errors of one layer in INT8."""

    layer: ComparedLayer
    sqnr_db: float  # of its output; infinite without noise, NaN without signal and noise
    input_sqnr_db: float  # of the activation that it reads
    own_sqnr_db: float | None  # of its output, with its own rounding as the only noise; None where it runs in float
    clipped_share: float | None  # of the values that it reads, those beyond the range; None where it reads float
    dead_share: float | None  # of those that are not zero, those that become zero
    mac_share: float  # its multiply-accumulates, of all weighted nodes
    times: LayerTimes | None  # None where the engine does not tell them for this layer alone

    @property
    def added_noise(self) -> float | None:
        """Noise that its own rounding adds, in shares of its signal's power; None where it runs in float."""
        return None if self.own_sqnr_db is None else _noise_share(self.own_sqnr_db)

    @property
    def verdict(self) -> LayerVerdict:
        """Whether it pays for itself."""
        added = self.added_noise
        if added is None:
            return LayerVerdict.FLOAT
        if added > MOST_ADDED_NOISE:
            return LayerVerdict.COSTS_ACCURACY
        if self.times is None or math.isnan(added):
            return LayerVerdict.UNKNOWN
        return LayerVerdict.PAYS if self.times.saves else LayerVerdict.SAVES_NO_TIME

    @property
    def float_ms(self) -> float | None:
        """Median milliseconds for one frame in float."""
        return None if self.times is None else 1e3 * float(np.median(self.times.float_s))

    @property
    def int8_ms(self) -> float | None:
        """Median milliseconds for one frame in the INT8 model."""
        return None if self.times is None else 1e3 * float(np.median(self.times.int8_s))

    def as_json(self) -> dict[str, Any]:
        """Give null where a value is not finite."""
        return {
            "name": self.layer.name,
            "op_type": self.layer.op_type,
            "precision": "int8" if self.layer.is_int8 else "float",
            "sqnr_db": _finite(self.sqnr_db, digits=3),
            "input_sqnr_db": _finite(self.input_sqnr_db, digits=3),
            "own_sqnr_db": _finite(self.own_sqnr_db, digits=3),
            "clipped_share": _finite(self.clipped_share, digits=9),
            "dead_share": _finite(self.dead_share, digits=9),
            "macs": self.layer.macs,
            "mac_share": _finite(self.mac_share, digits=6),
            "float_ms": _finite(self.float_ms, digits=4),
            "int8_ms": _finite(self.int8_ms, digits=4),
            "verdict": self.verdict.value,
        }


class LayerErrors:
    """Sums over images; memory depends on the number of tensors only.

    `quantizations`: of the tensors that are read in INT8.
    """

    def __init__(self, quantizations: Mapping[str, Quantization]) -> None:
        self._quantizations = dict(quantizations)
        self._sums: dict[str, _Sums] = {}

    def add(self, name: str, float_values: NDArray[np.float32], int8_values: NDArray[np.float32]) -> None:
        """Count tensor `name` of one or more images, in two arrays of the same shape, whatever it is.
        Raises `ValueError` if the shapes differ.
        """
        if float_values.shape != int8_values.shape:
            raise ValueError(f'"{name}": {float_values.shape} in float, {int8_values.shape} in INT8')
        sums = self._sums.setdefault(name, _Sums())
        exact, rounded = float_values.reshape(-1), int8_values.reshape(-1)
        for start in range(0, len(exact), _CHUNK):
            chunk = exact[start : start + _CHUNK]
            sums.add_noise(chunk.astype(np.float64), rounded[start : start + _CHUNK])
            if name in self._quantizations:
                sums.add_losses(np.abs(chunk), self._quantizations[name])

    def join(self, other: LayerErrors) -> None:
        """Add what `other` has counted; sums of signal and noise depend on the order in the last bits."""
        for name, sums in other._sums.items():
            self._sums.setdefault(name, _Sums()).join(sums)

    def sqnr_db(self, name: str) -> float:
        """Return signal to noise of a tensor in dB; infinite without noise, NaN without both.
        Raises `KeyError` if no tensor of that name was counted.
        """
        sums = self._sums[name]
        if not sums.noise:
            return math.inf if sums.signal else math.nan
        ratio = sums.signal / sums.noise
        return 10 * math.log10(ratio) if ratio else -math.inf

    def result(self, layer: ComparedLayer, *, all_macs: int, times: LayerTimes | None) -> LayerError:
        """Return what INT8 does to `layer`, whose input, output and copy in float were counted."""
        read = self._sums[layer.input_]
        is_int8 = layer.is_int8
        return LayerError(
            layer=layer,
            sqnr_db=self.sqnr_db(layer.output),
            input_sqnr_db=self.sqnr_db(layer.input_),
            own_sqnr_db=None if layer.float_copy is None else self.sqnr_db(layer.float_copy),
            clipped_share=read.clipped / max(1, read.values) if is_int8 else None,
            dead_share=read.dead / max(1, read.above_zero) if is_int8 else None,
            mac_share=layer.macs / max(1, all_macs),
            times=times,
        )


@dataclass(slots=True)
class _Sums:
    signal: float = 0.0
    noise: float = 0.0
    values: int = 0
    above_zero: int = 0
    clipped: int = 0
    dead: int = 0

    def join(self, other: _Sums) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add_noise(self, exact: NDArray[np.float64], rounded: NDArray[np.float32]) -> None:
        self.signal += _power(exact)
        self.noise += _power(exact - rounded)

    def add_losses(self, size: NDArray[np.float32], quantization: Quantization) -> None:
        above_zero = int(np.count_nonzero(size))
        self.values += len(size)
        self.above_zero += above_zero
        self.clipped += int(np.count_nonzero(size > quantization.range_))
        self.dead += int(np.count_nonzero(size < quantization.step / 2)) - (len(size) - above_zero)


def worst_layers(errors: tuple[LayerError, ...], *, count: int) -> tuple[LayerError, ...]:
    """Return the layers in INT8 that add most noise, the worst first; fewer where fewer add any."""
    noises = [(error.added_noise, error) for error in errors]
    adding = [(added, error) for added, error in noises if added is not None and added > 0]
    return tuple(error for _, error in sorted(adding, key=lambda pair: -pair[0])[:count])


def _power(values: NDArray[np.float64]) -> float:
    # Not np.dot: its threads wait for each other longer than they compute where an engine has the cores.
    return float(np.einsum("i,i->", values, values))


def _noise_share(sqnr_db: float) -> float:
    return math.inf if sqnr_db == -math.inf else 10 ** (-sqnr_db / 10)


def _finite(value: float | None, *, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)


_SAME_OBJECT_IOU = 0.5
_WITHOUT_PARTNER = 1.0  # of the logarithm of a score: that of e times less, beyond which nothing is looked at
_WORTH_OF_BOX = 2.0  # mAP50-95 wants an IoU between 0.5 and 0.95: half of the range of 1 - IoU is all there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Sums over candidates."""

    score_error: float  # absolute differences of scores, each times the larger of the two
    box_error: float  # 1 - IoU of the two boxes, times the square of the reference's score
    weight: float  # squares of the reference's scores

    def error_for(self, weight: float) -> float:
        """Return the error of an image by the mean weight of several, so that the mean of theirs is the error of all.
        0 is equal, 1 is as bad as finding nothing.
        """
        return (self.score_error + _WORTH_OF_BOX * self.box_error) / weight


def compare_candidates(reference: Candidates, found: Candidates, family: HeadFamily) -> Parity:
    """Return how far `found` is from `reference`, both of the same frames with every class above the same threshold.

    Candidates belong together by cell and class; in end-to-end heads, whose lines have no fixed meaning, by class and
    overlap. One without a partner counts as a difference of its whole score.
    """
    pair = _by_overlap if family is HeadFamily.YOLOV10 else _by_cell
    mine, theirs = pair(reference, found)
    score, other = reference.score.astype(np.float64), found.score.astype(np.float64)
    alone = np.concatenate((np.delete(score, mine), np.delete(other, theirs)))
    one, two = score[mine], other[theirs]
    overlap = _iou(reference.xyxy[mine], found.xyxy[theirs])
    return Parity(
        score_error=float((alone**2).sum() + (np.maximum(one, two) * np.abs(one - two)).sum()),
        box_error=float((one**2 * (1 - overlap)).sum()),
        weight=float((score**2).sum()),
    )


def best_candidates(found: Candidates, count: int) -> Candidates:
    """Return the `count` candidates of one frame that have the highest scores, however low these are."""
    return found.take(np.sort(np.argsort(-found.score, kind="stable")[:count]))


def error_of_best(best: Candidates, found: Candidates, family: HeadFamily) -> float:
    """Return how far `found` is from `best`, of the same frame, each of which counts the same whatever its score.

    Every frame has best candidates, also where nothing is sure: so this has far less noise than `compare_candidates`
    where objects are rare. It does not tell how much that matters: clipping lowers high scores, of which there are few.
    `best`: some of the reference's candidates, scores above 0. `found`: with all scores above 1 / e of the lowest of
    them. Returns: The mean difference of the logarithms of scores, 1 at most each, and twice the mean of 1 - IoU; 0 of
    none.
    """
    pair = _by_overlap if family is HeadFamily.YOLOV10 else _by_cell
    mine, theirs = pair(best, found)
    ratio = np.log(best.score[mine].astype(np.float64) / found.score[theirs])
    scores = np.minimum(np.abs(ratio), _WITHOUT_PARTNER).sum()
    boxes = (1 - _iou(best.xyxy[mine], found.xyxy[theirs])).sum()
    alone = len(best.score) - len(mine)
    total = float(scores + _WORTH_OF_BOX * boxes) + alone * (_WITHOUT_PARTNER + _WORTH_OF_BOX)
    return total / len(best.score) if len(best.score) else 0.0


Index = NDArray[np.int64]


def _by_cell(one: Candidates, other: Candidates) -> tuple[Index, Index]:
    cells = 1 + max(int(c.cell.max(initial=0)) for c in (one, other))
    classes = 1 + max(int(c.class_id.max(initial=0)) for c in (one, other))
    first = (one.row * cells + one.cell) * classes + one.class_id
    second = (other.row * cells + other.cell) * classes + other.class_id
    _, mine, theirs = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return mine.astype(np.int64), theirs.astype(np.int64)


def _by_overlap(one: Candidates, other: Candidates) -> tuple[Index, Index]:
    mine, theirs = [], []
    free = np.ones(len(other.score), bool)
    for index in np.argsort(-one.score, kind="stable"):
        same = free & (other.row == one.row[index]) & (other.class_id == one.class_id[index])
        choices = np.flatnonzero(same)
        overlap = _iou(np.broadcast_to(one.xyxy[index], (len(choices), 4)), other.xyxy[choices])
        if len(choices) and overlap.max() >= _SAME_OBJECT_IOU:
            mine.append(index)
            theirs.append(choices[overlap.argmax()])
            free[theirs[-1]] = False
    return np.array(mine, np.int64), np.array(theirs, np.int64)


def _iou(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the overlap of boxes, xyxy (M, 4) each, one by one; 0 where one of them is not finite or empty."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        sides = np.clip(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]), 0, None)
        both = sides.prod(axis=1)
        areas = (a[:, 2:] - a[:, :2]).prod(axis=1) + (b[:, 2:] - b[:, :2]).prod(axis=1)
        overlap: NDArray[np.float64] = both / (areas - both)
    return np.where(np.isfinite(overlap), overlap, 0.0)
