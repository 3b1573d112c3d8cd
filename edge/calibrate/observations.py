"""Observations of one model: histograms, and the images behind them, so that images can be spread over machines and
days and merged afterwards; how much these images differ; and the file of them.
"""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.calibrate.files import read_bytes
from edge.calibrate.histogram import BINS, Histogram, merge_all
from edge.calibrate.table import DARK, DatasetId, Variety
from edge.errors import CalibrationError
from edge.mistaken import mistaken

__all__ = [
    "LOOK_CELLS",
    "Observations",
    "Scene",
    "camera_of",
    "largest_of_both",
    "merge_observations",
    "observations_bytes",
    "read_observations",
    "scene_of",
    "variety_of",
]

LOOK_CELLS = 16 * 16 * 3
_ALIKE = 8  # levels of a cell; other qualities and sizes of a file change less, a frame and the next one 22 at least
_FEWEST_OF_A_CAMERA = 4  # images on average; where there are fewer, names tell no cameras
_LUMA = np.array((0.299, 0.587, 0.114))  # ITU-R BT.601
# What tools put behind a camera's name: the export of Roboflow; the event of Frigate; dates, times and frame numbers.
_BEHIND_CAMERA = re.compile(
    r"(?:(?:_(?:jpe?g|png|bmp|webp))?\.rf\.[0-9a-f]+|-\d{10}\.\d+-[0-9a-z]{6}"
    r"|(?:[-_. T](?:\d{4}-\d\d-\d\d|\d\d[-.:]\d\d[-.:]\d\d|\d{3,}))+)+$"
)


@dataclass(frozen=True, slots=True)
class Scene:
    """An image in small: the mean colours of 16 x 16 parts, RGB, row by row; and its camera, empty: not known."""

    look: bytes
    camera: str

    def __post_init__(self) -> None:
        if len(self.look) != LOOK_CELLS:
            raise ValueError(f"expected {LOOK_CELLS} bytes of a look, got {len(self.look)}")


def scene_of(coarse: NDArray[np.int16], stem: str) -> Scene:
    """Return the scene of an image by its 768 mean colours and its file's name."""
    return Scene(coarse.astype(np.uint8).tobytes(), camera_of(stem))


def camera_of(stem: str) -> str:
    """Return the camera that a file's name begins with, empty where no time or number follows one."""
    found = _BEHIND_CAMERA.search(f"_{stem}")
    return stem[: max(found.start() - 1, 0)] if found is not None else ""


def variety_of(scenes: Collection[Scene]) -> Variety:
    """Return how much images differ, objects aside; the order does not matter."""
    looks = np.frombuffer(b"".join(scene.look for scene in scenes), np.uint8).reshape(-1, LOOK_CELLS).astype(np.int16)
    brightness = (looks.reshape(len(looks), -1, 3) @ _LUMA).mean(axis=1)
    low, median, high = np.percentile(brightness, (10, 50, 90)).round().astype(int).tolist()
    return Variety(
        images=len(looks),
        alike=_alike(looks),
        dark=int((brightness < DARK).sum()),
        brightness=(low, median, high),
        cameras=_by_camera(Counter(scene.camera for scene in scenes)),
    )


def _alike(looks: NDArray[np.int16]) -> int:
    """Return how many look like another one, but for one of each such pair or chain."""
    parents = list(range(len(looks)))

    def root(index: int) -> int:
        while parents[index] != index:
            index = parents[index]
        return index

    for index, look in enumerate(looks):
        for other in np.flatnonzero(abs(looks[:index] - look).max(axis=1) <= _ALIKE).tolist():
            parents[root(other)] = root(index)
    return sum(parent != index for index, parent in enumerate(parents))


def _by_camera(cameras: Mapping[str, int]) -> dict[str, int]:
    """Return the images of each camera, empty where the names of some files do not tell."""
    is_told = "" not in cameras and _FEWEST_OF_A_CAMERA * len(cameras) <= sum(cameras.values())
    return dict(sorted(cameras.items())) if is_told else {}


_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Observations of one model under one preprocess; CalibrationError if `image_sha256s` are something else."""

    model_sha256: str
    preprocess_sha256: str
    # lower-case hex digests of the bytes of the image files that were seen, sorted, each once
    image_sha256s: tuple[str, ...]
    histograms: Mapping[str, Histogram]
    # the largest |x| of other tensors, infinite or NaN where the model overflowed
    peaks: Mapping[str, float] = field(default_factory=dict)
    # of the images, by their digest; none of those that an older version has observed
    scenes: Mapping[str, Scene] = field(default_factory=dict)

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
        return len(self.image_sha256s)

    @property
    def dataset(self) -> DatasetId:
        """The images as a set: SHA-256 over their sorted digests, 32 bytes each; and how much they differ.

        It depends neither on the order of the files, nor on how they were spread; on their names cameras do.
        """
        digests = b"".join(map(bytes.fromhex, self.image_sha256s))
        is_known = bool(self.scenes) and len(self.scenes) == self.images
        return DatasetId(
            images=self.images,
            sha256=hashlib.sha256(digests).hexdigest(),
            variety=variety_of(self.scenes.values()) if is_known else None,
        )


def merge_observations(one: Observations, other: Observations) -> Observations:
    """Return both together; associative and commutative.
    Raises `CalibrationError` if they are of different models or preprocesses, have other tensors, or share images.
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
        scenes={**one.scenes, **other.scenes},
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


_FORMAT = "edge.hist/2"
_ZIP = b"PK"  # as which numpy writes an .npz
_DIGEST_BYTES = 32
_COLUMNS = {"counts": ("int64", 2), "zeros": ("int64", 1), "exponent": ("int64", 1), "amax": ("float64", 1)}
# What zipfile, zlib and numpy make of damaged bytes: a length that lies is a MemoryError, an entry that is said to be
# encrypted a RuntimeError, a single array an object without archive, or without context.
_DAMAGE = (
    *(ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, MemoryError, RuntimeError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, CalibrationError),
)


class _AnyHead(msgspec.Struct, frozen=True):
    format: str


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    model_sha256: str
    preprocess_sha256: str
    names: tuple[str, ...]
    peak_names: tuple[str, ...]
    cameras: tuple[str, ...] = ()


def observations_bytes(observations: Observations) -> bytes:
    """Return the file's content: equal observations give equal bytes."""
    names = sorted(observations.histograms)
    rows = [observations.histograms[name] for name in names]
    is_known = len(observations.scenes) == observations.images
    scenes = [observations.scenes[digest] for digest in observations.image_sha256s] if is_known else []
    head = _Head(
        format=_FORMAT,
        model_sha256=observations.model_sha256,
        preprocess_sha256=observations.preprocess_sha256,
        names=tuple(names),
        peak_names=tuple(sorted(observations.peaks)),
        cameras=tuple(scene.camera for scene in scenes),
    )
    digests = b"".join(map(bytes.fromhex, observations.image_sha256s))
    content = io.BytesIO()
    np.savez_compressed(  # dates every entry 1980-01-01
        content,
        head=np.frombuffer(msgspec.json.encode(head), np.uint8),
        image_sha256s=np.frombuffer(digests, np.uint8).reshape(-1, _DIGEST_BYTES),
        counts=np.array([row.counts for row in rows], np.int64) if rows else np.zeros((0, BINS), np.int64),
        zeros=np.array([row.zeros for row in rows], np.int64),
        exponent=np.array([row.exponent for row in rows], np.int64),
        amax=np.array([row.amax for row in rows], np.float64),
        peaks=np.array([observations.peaks[name] for name in sorted(observations.peaks)], np.float64),
        looks=np.frombuffer(b"".join(scene.look for scene in scenes), np.uint8).reshape(-1, LOOK_CELLS),
    )
    return content.getvalue()


def read_observations(path: Path) -> Observations:
    """Raise `CalibrationError` if it holds no observations in this version of the format, or is damaged."""
    data = read_bytes(path)
    if not data.startswith(_ZIP) and (found := mistaken(data)) is not None:
        raise CalibrationError(f"{path}: expected histograms ({_FORMAT}), this is {found.what}", hint=found.todo)
    try:
        _require_checksums(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            head = _head(stored["head"].tobytes())
            return _observations(head, dict(stored))
    except _DAMAGE as error:
        raise CalibrationError(
            f"{path}: expected histograms ({_FORMAT}), cannot be read: {error}", hint="observe the images again"
        ) from error


def _require_checksums(data: bytes) -> None:
    """Refuse a damaged archive before numpy reads the headers of its arrays, which it does with Python's parser."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} is damaged")


def _head(data: bytes) -> _Head:
    found = msgspec.json.decode(data, type=_AnyHead).format
    if found != _FORMAT:
        raise ValueError(f"this is {found!r}")
    return msgspec.json.decode(data, type=_Head)


def _observations(head: _Head, arrays: Mapping[str, NDArray[Any]]) -> Observations:
    if any(len(set(names)) != len(names) for names in (head.names, head.peak_names)):
        raise ValueError("a tensor is named twice")
    columns = [_column(arrays, key, _COLUMNS[key], rows=len(head.names)) for key in _COLUMNS]
    peaks = _column(arrays, "peaks", ("float64", 1), rows=len(head.peak_names))
    histograms = {
        name: Histogram(counts=counts.copy(), zeros=int(zeros), exponent=int(exponent), amax=float(amax))
        for name, counts, zeros, exponent, amax in zip(head.names, *columns, strict=True)
    }
    digests = _digests(arrays["image_sha256s"])
    return Observations(
        model_sha256=head.model_sha256,
        preprocess_sha256=head.preprocess_sha256,
        image_sha256s=digests,
        histograms=histograms,
        peaks={name: float(peak) for name, peak in zip(head.peak_names, peaks, strict=True)},
        scenes=dict(zip(digests, _scenes(head, arrays), strict=True)) if head.cameras else {},
    )


def _scenes(head: _Head, arrays: Mapping[str, NDArray[Any]]) -> list[Scene]:
    looks = _column(arrays, "looks", ("uint8", 2), rows=len(head.cameras))
    return [Scene(look.tobytes(), camera) for look, camera in zip(looks, head.cameras, strict=True)]


def _column(arrays: Mapping[str, NDArray[Any]], key: str, expected: tuple[str, int], *, rows: int) -> NDArray[Any]:
    found, (dtype, dimensions) = arrays[key], expected
    if found.dtype != dtype or found.ndim != dimensions or len(found) != rows:
        raise ValueError(f"{key} should be {dtype} with {rows} rows, it is {found.dtype} {found.shape}")
    return found


def _digests(rows: NDArray[Any]) -> tuple[str, ...]:
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _DIGEST_BYTES:
        raise ValueError(f"image_sha256s should be uint8 (images, {_DIGEST_BYTES}), it is {rows.dtype} {rows.shape}")
    return tuple(row.tobytes().hex() for row in rows)
