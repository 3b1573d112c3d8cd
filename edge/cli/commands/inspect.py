"""`edge-deploy inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from edge.cli.output import echo_result, pair_lines
from edge.cli.paths import MODEL, command
from edge.model.inspect import inspect_model
from edge.model.obstacles import ModelReport, report_on_model
from edge.types import ModelSpec

__all__ = ["inspect"]

_LABELS_SHOWN = 8


@command("""
  edge-deploy inspect yolo11s.onnx
  edge-deploy inspect yolo11s.onnx --json""")
@click.argument("model", type=MODEL)
def inspect(model: Path, as_json: bool) -> None:
    """Show what an ONNX file is, read from the file itself.

    Family of its head, input, preprocess, labels, cost, and what stands in the way of INT8. A model that cannot be
    shown to be a YOLO detector is refused, with what was seen in it. Of pose, segmentation and OBB models the boxes
    alone are decoded.
    """
    spec = inspect_model(model)
    report = report_on_model(spec)
    echo_result(_as_json(spec, report), pair_lines(_lines(spec, report)), as_json=as_json)


def _as_json(spec: ModelSpec, report: ModelReport) -> dict[str, Any]:
    size = spec.preprocess.size
    return {
        "model": spec.name,
        "sha256": spec.sha256,
        "family": spec.family.value,
        "task": spec.task,
        "suppression": None if spec.suppression is None else asdict(spec.suppression),
        "input": {"name": spec.input_name, "size": [size.width, size.height], "batch": spec.batch or "dynamic"},
        "output": spec.output_name,
        "classes": list(spec.labels),
        "strides": list(spec.strides),
        "preprocess": spec.preprocess.as_json(),
        "preprocess_sha256": spec.preprocess.sha256,
        "is_quantized": spec.is_quantized,
        "parameters": report.cost.parameters,
        "macs": report.cost.macs,
        "int8_obstacles": list(report.obstacles),
        "evidence": list(spec.evidence),
    }


def _lines(spec: ModelSpec, report: ModelReport) -> Iterator[tuple[str, str]]:
    settings = spec.preprocess
    shown = ", ".join(spec.labels[:_LABELS_SHOWN]) + (", ..." if len(spec.labels) > _LABELS_SHOWN else "")
    yield "model", f"{spec.name}  sha256 {spec.sha256[:12]}"
    yield "family", spec.family.value
    yield "input", f"{spec.input_name}: {settings.size}, batch {spec.batch or 'dynamic'}"
    yield (
        "preprocess",
        (
            f"letterbox {settings.pad_position.value} on {settings.pad_value}, {settings.colour_order.value.upper()}, "
            f"x {settings.scale:.5g}"
        ),
    )
    yield "labels", f"{len(spec.labels)}: {shown}"
    yield "cost", f"{report.cost.parameters / 1e6:.2f} M parameters, {report.cost.macs / 1e9:.2f} G MACs per frame"
    for sentence in spec.evidence:
        yield "evidence", sentence
    for sentence in report.obstacles:
        yield "INT8", sentence
