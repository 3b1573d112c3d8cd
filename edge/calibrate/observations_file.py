"""Observations on disk (`edge.hist/2`): whole or absent, and equal observations give equal bytes.

An `.npz`: `head` is JSON (format, model, preprocess, names in order), `image_sha256s` has one row of 32 bytes for each
image, `peaks` one for each of `peak_names`, the other arrays have one for each of `names`.
"""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.calibrate.files import read_bytes, write_bytes
from edge.calibrate.histogram import BINS, Histogram
from edge.calibrate.observations import Observations
from edge.errors import CalibrationError
from edge.mistaken import mistaken

__all__ = ["observations_bytes", "read_observations", "write_observations"]

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


def write_observations(path: Path, observations: Observations) -> None:
    """Write the file whole or not at all.

    Raises:
        CalibrationError: if it cannot be written.
    """
    write_bytes(path, observations_bytes(observations))


def observations_bytes(observations: Observations) -> bytes:
    """Return the file's content: equal observations give equal bytes."""
    names = sorted(observations.histograms)
    rows = [observations.histograms[name] for name in names]
    head = _Head(
        format=_FORMAT,
        model_sha256=observations.model_sha256,
        preprocess_sha256=observations.preprocess_sha256,
        names=tuple(names),
        peak_names=tuple(sorted(observations.peaks)),
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
    )
    return content.getvalue()


def read_observations(path: Path) -> Observations:
    """Return what `write_observations` has written.

    Raises:
        CalibrationError: if it is no such file, of another version, or damaged.
    """
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
    return Observations(
        model_sha256=head.model_sha256,
        preprocess_sha256=head.preprocess_sha256,
        image_sha256s=_digests(arrays["image_sha256s"]),
        histograms=histograms,
        peaks={name: float(peak) for name, peak in zip(head.peak_names, peaks, strict=True)},
    )


def _column(arrays: Mapping[str, NDArray[Any]], key: str, expected: tuple[str, int], *, rows: int) -> NDArray[Any]:
    found, (dtype, dimensions) = arrays[key], expected
    if found.dtype != dtype or found.ndim != dimensions or len(found) != rows:
        raise ValueError(f"{key} should be {dtype} with {rows} rows, it is {found.dtype} {found.shape}")
    return found


def _digests(rows: NDArray[Any]) -> tuple[str, ...]:
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _DIGEST_BYTES:
        raise ValueError(f"image_sha256s should be uint8 (images, {_DIGEST_BYTES}), it is {rows.dtype} {rows.shape}")
    return tuple(row.tobytes().hex() for row in rows)
