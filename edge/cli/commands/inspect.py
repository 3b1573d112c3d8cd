"""`edge-deploy inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from edge.cli.output import echo_result, pair_lines
from edge.cli.paths import MODEL, READ, command
from edge.cli.roofline_lines import account_lines
from edge.model.inspect import inspect_model
from edge.model.obstacles import ModelReport, report_on_model
from edge.quantize.account import accounts_of
from edge.types import ModelSpec, Precision

__all__ = ["inspect"]

_LABELS_SHOWN = 8


@command("""
  edge-deploy inspect yolo11s.onnx
  edge-deploy inspect yolo11s.onnx --json
  edge-deploy inspect yolo11s.onnx --layers --precision fp16
  edge-deploy inspect yolo11s.onnx --layers --precision int8 --table gates.calib.json --batch 8""")
@click.argument("model", type=MODEL)
@click.option("--layers", is_flag=True, help="Its account: operations and bytes of each layer, as engines fuse them.")
@click.option(
    "--precision",
    type=click.Choice(["int8", "fp16", "fp32"]),
    help="Of the account; what INT8 leaves in float is in FP16. Default: int8 with a table or Q/DQ pairs, else fp16.",
)
@click.option("--table", type=READ, metavar="TABLE", help="Calibration table that says what the account has in INT8.")
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Frames at once in the account.")
def inspect(
    model: Path, layers: bool, precision: str | None, table: Path | None, batch: int | None, as_json: bool
) -> None:
    """Show what an ONNX file is, read from the file itself.

    Family of its head, input, preprocess, labels, cost, and what stands in the way of INT8. A model that cannot be
    shown to be a YOLO detector is refused, with what was seen in it. Of pose, segmentation and OBB models the boxes
    alone are decoded.
    """
    if layers:
        _echo_account(model, precision=precision, table=table, batch=batch, as_json=as_json)
        return
    if any(value is not None for value in (precision, table, batch)):
        raise click.UsageError("--precision, --table and --batch are of the account of the layers: add --layers")
    spec = inspect_model(model)
    report = report_on_model(spec)
    echo_result(_as_json(spec, report), pair_lines(_lines(spec, report)), as_json=as_json)


def _echo_account(model: Path, *, precision: str | None, table: Path | None, batch: int | None, as_json: bool) -> None:
    found = accounts_of(model, table=table, batch=batch)
    account = found.of(None if precision is None else Precision(precision))
    content = {"model": found.spec.name, "sha256": found.spec.sha256, **account.as_json()}
    echo_result(content, account_lines(account), as_json=as_json)
    if account.precision is Precision.INT8 and not as_json:
        click.echo(f"INT8 {found.origin_of_int8}", err=True)


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
