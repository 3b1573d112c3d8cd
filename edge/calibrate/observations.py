"""What was seen of one model: histograms, and the images behind them, so that images can be spread over machines and
days and merged afterwards. The file is `edge.calibrate.observations_file`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edge.calibrate.histogram import Histogram
from edge.calibrate.observer import merge_all
from edge.calibrate.table import DatasetId
from edge.errors import CalibrationError

__all__ = ["Observations", "largest_of_both", "merge_observations"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was seen of one model under one preprocess.

    Attributes:
        image_sha256s: lower-case hex digests of the bytes of the image files that were seen, sorted, each once.
        histograms: by tensor name.
        peaks: the largest |x| of other tensors, infinite or NaN where the model overflowed.

    Raises:
        CalibrationError: if `image_sha256s` are something else.
    """

    model_sha256: str
    preprocess_sha256: str
    image_sha256s: tuple[str, ...]
    histograms: Mapping[str, Histogram]
    peaks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for digest in self.image_sha256s:
            if _SHA256.fullmatch(digest) is None:
                raise CalibrationError(f"expected the SHA-256 of an image as 64 lower-case hex digits, got {digest!r}")
        for digest, following in zip(self.image_sha256s, self.image_sha256s[1:], strict=False):
            if digest == following:
                raise CalibrationError(
                    f"image {digest} is given twice, it would be counted twice",
                    hint="observe each image once; copies under another name are the same image",
                )
            if digest > following:
                raise CalibrationError(f"expected the digests of images in order, got {following} behind {digest}")

    @property
    def images(self) -> int:
        """How many images were seen."""
        return len(self.image_sha256s)

    @property
    def dataset(self) -> DatasetId:
        """The images as a set: SHA-256 over their sorted digests, 32 bytes each.

        It depends neither on the order or the names of the files, nor on how they were spread.
        """
        digests = b"".join(map(bytes.fromhex, self.image_sha256s))
        return DatasetId(images=self.images, sha256=hashlib.sha256(digests).hexdigest())


def merge_observations(one: Observations, other: Observations) -> Observations:
    """Return both together; associative and commutative.

    Raises:
        CalibrationError: if they are of different models or preprocesses, have other tensors, or share images.
    """
    for what in ("model_sha256", "preprocess_sha256"):
        mine, theirs = getattr(one, what), getattr(other, what)
        if mine != theirs:
            raise CalibrationError(f"observations of {what} {mine[:12]} and {theirs[:12]} do not merge")
    for mine, theirs in ((one.histograms.keys(), other.histograms.keys()), (one.peaks.keys(), other.peaks.keys())):
        if one.images and other.images and mine != theirs:
            raise CalibrationError(
                f'tensor "{min(mine ^ theirs)}" is in one of the observations only; observe the same tensors in both'
            )
    _require_other_images(one, other)
    return Observations(
        model_sha256=one.model_sha256,
        preprocess_sha256=one.preprocess_sha256,
        image_sha256s=tuple(sorted((*one.image_sha256s, *other.image_sha256s))),
        histograms=merge_all(one.histograms, other.histograms),
        peaks=largest_of_both(one.peaks, other.peaks),
    )


def largest_of_both(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the larger one for each name; NaN stays NaN."""
    return {name: float(np.maximum(one.get(name, 0.0), other.get(name, 0.0))) for name in dict.fromkeys((*one, *other))}


def _require_other_images(one: Observations, other: Observations) -> None:
    shared = sorted(set(one.image_sha256s).intersection(other.image_sha256s))
    if shared:
        raise CalibrationError(
            f"{len(shared)} of the images are in both of the observations and would be counted twice, the first is "
            f"{shared[0]}",
            hint="leave one of the two out, or observe sets of images that do not overlap",
        )
