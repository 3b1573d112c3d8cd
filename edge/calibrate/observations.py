"""Histograms on disk (`edge.hist/1`), so that images can be spread over machines and days and merged afterwards.

An `.npz`: `head` is JSON (format, model, preprocess, names in order), the rest are arrays with one
row for each name. Equal observations give equal bytes.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge.calibrate.files import read_bytes, write_whole
from edge.calibrate.histogram import Histogram
from edge.calibrate.observer import merge_all
from edge.errors import CalibrationError

__all__ = ["Observations", "merge_observations", "read_observations", "write_observations"]

_FORMAT = "edge.hist/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was seen of one model under one preprocess; `images` is the number of images behind it."""

    model_sha256: str
    preprocess_sha256: str
    images: int
    histograms: Mapping[str, Histogram]


def merge_observations(one: Observations, other: Observations) -> Observations:
    """Return both together; the images are taken to be different ones.

    Raises:
        CalibrationError: if they are of different models or preprocesses, or do not have the same tensors.
    """
    for what in ("model_sha256", "preprocess_sha256"):
        mine, theirs = getattr(one, what), getattr(other, what)
        if mine != theirs:
            raise CalibrationError(f"observations of {what} {mine[:12]} and {theirs[:12]} do not merge")
    if one.images and other.images and one.histograms.keys() != other.histograms.keys():
        name = min(one.histograms.keys() ^ other.histograms.keys())
        raise CalibrationError(f'tensor "{name}" is in one of the observations only; observe the same tensors in both')
    return Observations(
        model_sha256=one.model_sha256,
        preprocess_sha256=one.preprocess_sha256,
        images=one.images + other.images,
        histograms=merge_all(one.histograms, other.histograms),
    )


def write_observations(path: Path, observations: Observations) -> None:
    """Write the file whole or not at all.

    Raises:
        CalibrationError: if it cannot be written.
    """
    names = sorted(observations.histograms)
    rows = [observations.histograms[name] for name in names]
    head = {
        "format": _FORMAT,
        "model_sha256": observations.model_sha256,
        "preprocess_sha256": observations.preprocess_sha256,
        "images": observations.images,
        "names": names,
    }
    content = io.BytesIO()
    np.savez_compressed(
        content,
        head=np.frombuffer(json.dumps(head).encode(), np.uint8),
        counts=np.array([row.counts for row in rows], np.int64),
        zeros=np.array([row.zeros for row in rows], np.int64),
        exponent=np.array([row.exponent for row in rows], np.int64),
        amax=np.array([row.amax for row in rows], np.float64),
    )
    write_whole(path, content.getvalue())


def read_observations(path: Path) -> Observations:
    """Return what `write_observations` has written.

    Raises:
        CalibrationError: if it is no such file, or is damaged.
    """
    data = read_bytes(path)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            head = json.loads(arrays["head"].tobytes())
            if head["format"] != _FORMAT:
                raise ValueError(f"format {head['format']!r}")
            return _observations(head, dict(arrays))
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise CalibrationError(
            f"{path}: expected histograms ({_FORMAT}), cannot be read: {error}", hint="observe the images again"
        ) from error


def _observations(head: dict[str, Any], arrays: dict[str, Any]) -> Observations:
    columns = (arrays[key] for key in ("counts", "zeros", "exponent", "amax"))
    histograms = {
        name: Histogram(counts=counts.copy(), zeros=int(zeros), exponent=int(exponent), amax=float(amax))
        for name, counts, zeros, exponent, amax in zip(head["names"], *columns, strict=True)
    }
    return Observations(
        model_sha256=head["model_sha256"],
        preprocess_sha256=head["preprocess_sha256"],
        images=int(head["images"]),
        histograms=histograms,
    )
