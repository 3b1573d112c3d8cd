"""Calibration tables and their differences as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edge.calibrate.diff import TableDiff
from edge.calibrate.table import CalibrationTable, Evidence

__all__ = ["diff_lines", "margin", "origin", "provenance", "range_lines"]


def provenance(content: CalibrationTable) -> Iterator[tuple[str, str]]:
    """Yield where a table comes from, name and value."""
    model, dataset, evidence = content.model, content.dataset, content.evidence
    yield "model", "unknown" if model is None else f"{model.name}  sha256 {model.sha256[:12]}"
    yield "preprocess", "unknown" if content.preprocess is None else _settings(content.preprocess)
    yield "images", "unknown" if dataset is None else f"{dataset.images}  sha256 {dataset.sha256[:12]}"
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


def margin(evidence: Evidence) -> str:
    """Return how sure a difference is, empty where that is not known."""
    known = evidence.uncertainty
    return "" if known is None else f", difference +- {known:.4f}"


def _settings(preprocess: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in preprocess.items())


def range_lines(content: CalibrationTable) -> Iterator[str]:
    """Yield range, scale, method and name of each tensor, by name."""
    for name, tensor in sorted(content.tensors.items()):
        yield f"{tensor.amax:>12.6g}  {tensor.scale.value:>12.6g}  {tensor.method:<10}  {name}"


def origin(content: CalibrationTable) -> str:
    """Return the cache that a table was imported from, empty where it was not."""
    cache = content.imported
    return "" if cache is None else f"TensorRT {cache.tensorrt}, {cache.calibrator}"


def diff_lines(found: TableDiff) -> Iterator[str]:
    """Yield what differs, the way of a diff."""
    for name, first, second in found.facts:
        yield f"{name}: {first} -> {second}"
    for name in found.only_first:
        yield f"- {name}"
    for name in found.only_second:
        yield f"+ {name}"
    for change in found.changed:
        yield f"{change.first:>12.6g} -> {change.second:<12.6g} x {change.ratio:<10.4g}  {change.name}"
    yield f"{len(found.changed)} ranges differ, {found.equal} are equal"
