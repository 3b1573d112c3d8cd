"""Calibration tables and their differences as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edge.calibrate.diff import TableDiff
from edge.calibrate.table import CalibrationTable, Evidence, Objects, Variety
from edge.evaluate.class_names import listed

__all__ = ["diff_lines", "margin", "origin", "provenance", "range_lines", "unlabelled_line"]

_CLASSES_SHOWN = 8


def provenance(content: CalibrationTable) -> Iterator[tuple[str, str]]:
    """Yield where a table comes from, name and value."""
    model, dataset, evidence = content.model, content.dataset, content.evidence
    yield "model", "unknown" if model is None else f"{model.name}  sha256 {model.sha256[:12]}"
    settings = (f"{key} {value}" for key, value in (content.preprocess or {}).items())
    yield "preprocess", ", ".join(settings) or "unknown"
    yield "images", "unknown" if dataset is None else f"{dataset.images}  sha256 {dataset.sha256[:12]}"
    if dataset is not None and dataset.variety is not None:
        yield from _variety(dataset.variety)
    yield "method", content.method
    yield "made by", f"edge {content.made_by.edge}, {content.made_by.engine}"
    yield "tensors", str(len(content.tensors))
    if means := sum(bool(tensor.means) for tensor in content.tensors.values()):
        yield "means", f"of {means} tensors, to correct biases in a Q/DQ model"
    if content.centred:
        where = "" if content.padded else " and no padded convolution reads it"
        yield "centred", f"around centres in a Q/DQ model, where that makes steps finer{where}"
    if content.imported is not None:
        yield "imported", origin(content)
    for node in content.keep_float:
        reason = content.float_reasons.get(node)
        yield "kept float", node if reason is None else f"{node}  ({reason})"
    if evidence is not None:
        yield (
            "evidence",
            f"{evidence.metric} {evidence.int8:.4f} (float {evidence.float_:.4f}{margin(evidence)}) on "
            f"{evidence.images} images, "
            f"{evidence.int8_mac_share:.1%} of the MACs in INT8",
        )
        if evidence.unlabelled:
            yield "unlabelled", unlabelled_line(evidence.unlabelled, evidence.images)
        if evidence.left_out:
            yield "left out", f"could not be decoded: {', '.join(evidence.left_out)}"
        yield from (("note", note) for note in evidence.notes)


def _variety(images: Variety) -> Iterator[tuple[str, str]]:
    yield "alike", f"{images.alike} of {images.images} images look like another one"
    low, median, high = images.brightness
    yield "light", f"{images.dark} dark; mean brightness of eight in ten {low} to {high} of 255, median {median}"
    if images.cameras:
        yield "cameras", ", ".join(f"{name} {count}" for name, count in images.cameras.items())
    if images.objects is not None:
        yield "objects", _objects(images.objects)


def _objects(objects: Objects) -> str:
    seen = sorted(((count, name) for name, count in objects.counts.items() if count), key=lambda one: -one[0])
    shown = ", ".join(f"{name} {count}" for count, name in seen[:_CLASSES_SHOWN]) or "none"
    further = f", {len(seen) - _CLASSES_SHOWN} further classes" if len(seen) > _CLASSES_SHOWN else ""
    by = "labelled" if objects.by == "labels" else "found by the float model"
    return f"{shown}{further}; none of {len(objects.counts) - len(seen)} classes ({by}, on {objects.images} images)"


def margin(evidence: Evidence) -> str:
    """Return how sure a difference is, empty where that is not known."""
    known = evidence.uncertainty
    return "" if known is None else f", difference +- {known:.4f}"


def unlabelled_line(names: Sequence[str], images: int) -> str:
    return f"{len(names)} of {images} images have no labels, and were taken as empty: {listed(names)}"


def range_lines(content: CalibrationTable) -> Iterator[str]:
    for name, tensor in sorted(content.tensors.items()):
        yield f"{tensor.amax:>12.6g}  {tensor.scale.value:>12.6g}  {tensor.method:<10}  {name}"


def origin(content: CalibrationTable) -> str:
    """Return the cache that a table was imported from, empty where it was not."""
    cache = content.imported
    return "" if cache is None else f"TensorRT {cache.tensorrt}, {cache.calibrator}"


def diff_lines(found: TableDiff) -> Iterator[str]:
    for name, first, second in found.facts:
        yield f"{name}: {first} -> {second}"
    for name in found.only_first:
        yield f"- {name}"
    for name in found.only_second:
        yield f"+ {name}"
    for change in found.changed:
        yield f"{change.first:>12.6g} -> {change.second:<12.6g} x {change.ratio:<10.4g}  {change.name}"
    yield f"{len(found.changed)} ranges differ, {found.equal} are equal"
