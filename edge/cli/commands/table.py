"""`edge-deploy table`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from edge.calibrate.diff import TableDiff, diff_tables
from edge.calibrate.findings import Finding, Severity, lint_ranges
from edge.calibrate.table import CalibrationTable, Evidence, Objects, Variety, read_table, table_text
from edge.cli.lazy import HintingGroup, verbosity_option
from edge.cli.output import echo_json, echo_pairs, echo_result, echo_warnings
from edge.cli.paths import MODEL, READ, WRITTEN, command
from edge.engine.kind import QdqForm
from edge.evaluate.class_names import listed
from edge.quantize.tables import export_ranges, export_table, import_cache, import_qdq, lint_file, write_qdq

__all__ = ["margin", "table", "undecodable_line", "unlabelled_line"]

_VERIFICATION_FAILED = 4
_CLASSES_SHOWN = 8
_CALIBRATORS = ("EntropyCalibration2", "MinMaxCalibration")

_out_option = click.option("-o", "--out", type=WRITTEN, required=True, metavar="FILE", help="File to write.")


@click.group(
    cls=HintingGroup,
    epilog="""\b
Examples:
  edge-deploy table import trt.cache -o gates.calib.json --model yolo11s.onnx
  edge-deploy table lint gates.calib.json --model yolo11s.onnx""",
)
@verbosity_option
def table() -> None:
    """Show, check and convert calibration tables.

    A table (*.calib.json) has the largest absolute activation of each tensor of one ONNX file, and where it comes
    from. TensorRT's calibration caches and ONNX files with Q/DQ pairs are read into tables and written from them.
    """


@command(
    """
  edge-deploy table show gates.calib.json""",
    group=table,
    short_help="What a table holds and where it comes from.",
)
@click.argument("path", type=READ, metavar="TABLE")
def show(path: Path, as_json: bool) -> None:
    """Print where a table comes from, then range, scale, method and name of each tensor."""
    content = read_table(path)
    if as_json:
        echo_json(json.loads(table_text(content)))
        return
    echo_pairs(_provenance(content))
    click.echo()
    for name, tensor in sorted(content.tensors.items()):
        click.echo(f"{tensor.amax:>12.6g}  {tensor.scale.value:>12.6g}  {tensor.method:<10}  {name}")


@command(
    """
  edge-deploy table lint gates.calib.json --model yolo11s.onnx
  edge-deploy table lint gates.calib.json --json""",
    group=table,
    short_help="What is wrong with a table, and what to do about it.",
)
@click.argument("path", type=READ, metavar="TABLE")
@click.option("--model", type=MODEL, metavar="ONNX", help="Model that the table is to be used with.")
def lint(path: Path, model: Path | None, as_json: bool) -> int:
    """Say what is wrong with a table, and what to do about it; exits with 4 when there is an error.

    With a model also: is the table of this very file and preprocess, and does it have all tensors.
    """
    findings = lint_file(path, model=model)
    errors = _count_errors(findings)
    if as_json:
        echo_json({"table": str(path), "errors": errors, "findings": [finding.as_json() for finding in findings]})
    else:
        for finding in findings:
            click.echo(str(finding))
        click.echo(f"{path}: errors: {errors}, warnings: {len(findings) - errors}", err=True)
    return _VERIFICATION_FAILED if errors else 0


@command(
    """
  edge-deploy table diff before.calib.json after.calib.json""",
    group=table,
    short_help="How two tables differ.",
)
@click.argument("first", type=READ, metavar="TABLE")
@click.argument("second", type=READ, metavar="TABLE")
def diff(first: Path, second: Path, as_json: bool) -> None:
    """Say how the second table differs from the first, largest change of a range first."""
    found = diff_tables(read_table(first), read_table(second))
    echo_result(found.as_json(), _diff_lines(found), as_json=as_json)


@command(
    """
  edge-deploy table import trt.cache -o gates.calib.json
  edge-deploy table import trt.cache -o gates.calib.json --model yolo11s.onnx
  edge-deploy table import yolo11s-qat.onnx -o gates.calib.json --float-model yolo11s.onnx""",
    group=table,
    name="import",
    short_help="A table from a TensorRT calibration cache, or from a Q/DQ ONNX.",
)
@click.argument("source", type=MODEL, metavar="SOURCE")
@_out_option
@click.option("--model", type=MODEL, metavar="ONNX", help="Model that a cache is of; binds the table to it.")
@click.option(
    "--float-model",
    type=WRITTEN,
    metavar="FILE",
    help="Where to write an ONNX's float model; the table is bound to it.",
)
def import_(source: Path, out: Path, model: Path | None, float_model: Path | None, as_json: bool) -> int:
    """Make a table of a TensorRT calibration cache, or of an ONNX with Q/DQ pairs.

    A SOURCE named .onnx is read as an ONNX: of quantization-aware training (QAT), or of a tool that quantizes. Its
    ranges become the table, and the model without its pairs is written to --float-model; `edge-deploy table qdq` makes
    a Q/DQ model of the two again. Weights may be stored in int8, in float, or as whole numbers in float whose DQ alone
    has the scale; pairs that contradict themselves are refused.

    The findings of lint are printed, and nothing is repaired: a table with errors is written as it came, to be
    looked at, and the command exits with 4.
    """
    is_onnx = source.suffix.lower() == ".onnx"
    if is_onnx and model is not None:
        raise click.UsageError("--model belongs to a cache: the table of an ONNX is bound to its --float-model")
    if is_onnx and float_model is None:
        raise click.UsageError(f"{source} is an ONNX: say with --float-model where its float model is to be written")
    if not is_onnx and float_model is not None:
        raise click.UsageError(
            f"--float-model belongs to an ONNX, {source} is read as a TensorRT calibration cache: leave it out, or "
            "give a file named .onnx"
        )
    files = {"table": str(out)}
    if float_model is None:
        done = import_cache(source, out=out, model=model)
        more = _origin(done.table)
    else:
        done = import_qdq(source, out=out, float_model=float_model)
        files["float_model"] = str(float_model)
        more = f"{len(done.table.keep_float)} nodes kept in float, of {float_model}"
    tensors = len(done.table.tensors)
    content = {**files, "tensors": tensors, "findings": [finding.as_json() for finding in done.findings]}
    echo_result(content, [f"{out}: {tensors} tensors, {more}"], as_json=as_json)
    return _told(done.findings, out)


@command(
    """
  edge-deploy table export gates.calib.json -o trt.cache
  edge-deploy table export gates.calib.json -o trt.cache --tensorrt 8.6.2 --calibrator MinMaxCalibration
  edge-deploy table export gates.calib.json -o gates.ranges.json --format ranges""",
    group=table,
    short_help="A TensorRT calibration cache, or dynamic ranges, from a table.",
)
@click.argument("path", type=READ, metavar="TABLE")
@_out_option
@click.option(
    "--format",
    "format_",
    type=click.Choice(("cache", "ranges")),
    default="cache",
    show_default=True,
    help="A calibration cache, or each tensor's dynamic range as JSON.",
)
@click.option(
    "--tensorrt",
    metavar="VERSION",
    help="Version that is to read the cache; TensorRT refuses one of another major version.  [default: that of the "
    "cache which was imported, else 10.3.0]",
)
@click.option(
    "--calibrator",
    type=click.Choice(_CALIBRATORS),
    help="Calibrator that is to read the cache; any other one refuses it.  [default: likewise, else "
    "EntropyCalibration2]",
)
def export(path: Path, out: Path, format_: str, tensorrt: str | None, calibrator: str | None, as_json: bool) -> int:
    """Write a table as a TensorRT calibration cache, for TensorRT 10.x and older, or as dynamic ranges.

    Ranges are for what sets them tensor by tensor (ITensor.set_dynamic_range, TensorRT 10.x and older). A table with a
    scale that cannot be used is refused there. A cache has the errors of its table: they are printed, and the command
    exits with 4.
    """
    if format_ == "ranges":
        if tensorrt is not None or calibrator is not None:
            raise click.UsageError("--tensorrt and --calibrator belong to a cache: leave them out with --format ranges")
        content = export_ranges(path, out=out)
        tensors, kept = len(content.tensors), len(content.keep_float)
        written: dict[str, Any] = {"ranges": str(out), "tensors": tensors, "keep_float": kept}
        told = f"ranges of {tensors} tensors, {kept} nodes kept in float"
    else:
        content, cache = export_table(path, out=out, tensorrt=tensorrt, calibrator=calibrator)
        echo_warnings(_lost_in_a_cache(content))
        facts = {"cache": str(out), "tensorrt": cache.tensorrt, "calibrator": cache.calibrator}
        written = {**facts, "tensors": len(cache.scales)}
        told = f"{len(cache.scales)} tensors, TensorRT {cache.tensorrt}, {cache.calibrator}"
    echo_result(written, [f"{out}: {told}"], as_json=as_json)
    return _told(lint_ranges(content, None), out)


@command(
    """
  edge-deploy table qdq gates.calib.json --model yolo11s.onnx -o yolo11s-int8.onnx
  edge-deploy table qdq gates.calib.json --model yolo11s.onnx -o yolo11s-int8.onnx --float16
  edge-deploy table qdq gates.calib.json --model yolo11s.onnx -o yolo11s-int8.onnx --weights float""",
    group=table,
    short_help="An ONNX with explicit Q/DQ pairs from a table.",
)
@click.argument("path", type=READ, metavar="TABLE")
@click.option("--model", type=MODEL, required=True, metavar="ONNX", help="The float model that the table is of.")
@_out_option
@click.option("--float16", "is_float16", is_flag=True, help="The rest in float16, for strongly typed TensorRT.")
@click.option(
    "--weights",
    type=click.Choice(("int8", "float")),
    default="int8",
    show_default=True,
    help="How weights are stored: int8 for TensorRT 10 and newer, float with a Q/DQ pair for TensorRT 8 as well.",
)
def qdq(path: Path, model: Path, out: Path, is_float16: bool, weights: str, as_json: bool) -> None:
    """Write a model that runs in INT8 by the ranges of a table.

    Weights as int8 take a quarter of the bytes; TensorRT 10 and newer, TensorRT for RTX, OpenVINO and ONNX Runtime take
    them. TensorRT 8 (JetPack 6.0) wants --weights float and no --float16. Results are the same to the bit.

    A table with errors is refused. What INT8 costs in accuracy is not known from a table: measure it with
    `edge-deploy evaluate`.
    """
    form = QdqForm(float_type="float16" if is_float16 else "float32", weights="float" if weights == "float" else "int8")
    made = write_qdq(path, model=model, out=out, form=form)
    share, kept = made.mac_share_int8, made.float_nodes
    content = {"model": str(out), "int8_mac_share": round(share, 4), "float_nodes": list(kept)}
    told = f"{out}: {len(made.quantized_nodes)} layers in INT8 ({share:.1%} of the MACs), {len(kept)} in float"
    echo_result(content, [told], as_json=as_json)


def _lost_in_a_cache(content: CalibrationTable) -> Iterator[str]:
    if content.keep_float:
        yield (
            f"keep-float: a cache cannot say that {len(content.keep_float)} nodes are to stay in float; set "
            "their precision when the engine is built"
        )
    if any(tensor.means for tensor in content.tensors.values()):
        yield "means: a cache does not correct biases; the table's evidence is of its Q/DQ model (table qdq)"
    if content.centred:
        yield (
            "centred: a cache has no centres, so that steps are up to twice as large; the table's evidence is "
            "of its Q/DQ model (table qdq)"
        )


def _told(findings: Iterable[Finding], written: Path) -> int:
    """Tell what is wrong with the table that `written` holds."""
    found = tuple(findings)
    for finding in found:
        click.echo(str(finding), err=True)
    errors = _count_errors(found)
    if not errors:
        return 0
    click.echo(f"{written}: written as it came, with errors: {errors}; no pipeline takes such a table", err=True)
    return _VERIFICATION_FAILED


def _count_errors(findings: Iterable[Finding]) -> int:
    return sum(finding.severity is Severity.ERROR for finding in findings)


def _provenance(content: CalibrationTable) -> Iterator[tuple[str, str]]:
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
        yield "imported", _origin(content)
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


def undecodable_line(left_out: Sequence[Path]) -> str:
    names = ", ".join(path.name for path in left_out)
    return f"{len(left_out)} of the files could not be decoded and were left out: {names}"


def _origin(content: CalibrationTable) -> str:
    """Return the cache that a table was imported from, empty where it was not."""
    cache = content.imported
    return "" if cache is None else f"TensorRT {cache.tensorrt}, {cache.calibrator}"


def _diff_lines(found: TableDiff) -> Iterator[str]:
    for name, first, second in found.facts:
        yield f"{name}: {first} -> {second}"
    for name in found.only_first:
        yield f"- {name}"
    for name in found.only_second:
        yield f"+ {name}"
    for change in found.changed:
        yield f"{change.first:>12.6g} -> {change.second:<12.6g} x {change.ratio:<10.4g}  {change.name}"
    yield f"{len(found.changed)} ranges differ, {found.equal} are equal"
