"""`edge-deploy calibrate`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from edge.calibrate.histogram import Method
from edge.calibrate.table import Evidence, write_table
from edge.cli.commands.table import margin, undecodable_line, unlabelled_line
from edge.cli.crew_options import crew_options, crew_that
from edge.cli.output import StageBars, echo_passed_over, echo_result, folded, pair_lines, shown_width
from edge.cli.paths import IMAGES, LABELS, MODEL, WRITTEN, command, engine_option, skip_option
from edge.engine.kind import usable_kind
from edge.quantize.calibrate import FEW_IMAGES, Calibration
from edge.quantize.calibrate import calibrate as run
from edge.quantize.subject import CalibrationOptions, MaxDrop

__all__ = ["calibrate"]

_METHODS = ("auto", "mse", "percentile", "minmax", "entropy")


class _MaxDrop(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`0.5`, mAP points, or `3%` of what the float model reaches."""

    name = "points|percent%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MaxDrop:
        text = str(value).strip()
        try:
            amount = float(text.removesuffix("%"))
        except ValueError:
            amount = math.nan
        if not 0 <= amount <= 100:  # NaN is not
            self.fail(f"expected mAP points from 0 to 100, or a percentage such as 3%, got {value!r}", param, ctx)
        return MaxDrop(amount=amount, is_relative=text.endswith("%"))


@command("""
  edge-deploy calibrate yolo11s.onnx --images gates/ --labels gates-labels/
  edge-deploy calibrate yolo11s.onnx --images gates/ -o yolo11s-gates.calib.json --method mse
  edge-deploy calibrate yolo11s.onnx --images gates/ --engine tensorrt --calibrator entropy2 --batch 8
  edge-deploy calibrate yolo11s.onnx --images /nfs/gates/ --cluster tls://scheduler:8786""")
@click.argument("model", type=MODEL)
@click.option(
    "--images", type=IMAGES, required=True, metavar="DIR", help="100 to 2000 images like those of the cameras."
)
@click.option(
    "-o",
    "--out",
    type=WRITTEN,
    callback=lambda ctx, param, out: out or ctx.params["model"].with_suffix(".calib.json"),
    metavar="FILE",
    help="Table to write.  [default: MODEL.calib.json]",
)
@click.option("--method", type=click.Choice(_METHODS), help="How ranges are chosen.  [default: auto]")
@engine_option
@click.option(
    "--calibrator",
    metavar="NAME",
    help="Ranges by a calibrator of the engine's own library instead. TensorRT 8.6 to 10: entropy2, minmax, entropy, "
    "legacy.",
)
@click.option(
    "--labels", type=LABELS, metavar="DIR|FILE", help="YOLO folder, data.yaml or COCO .json; mAP is measured then."
)
@click.option(
    "--max-drop",
    type=_MaxDrop(),
    metavar="POINTS|PERCENT%",
    help="Promise, with --labels: mAP50-95 points lost at most, or 3% of what float reaches.  [default: 0.5]",
)
@click.option(
    "--symmetric", "is_symmetric", is_flag=True, help="auto without centres (ADR 2): the last resort for speed."
)
@click.option("--keep-float", "keep_float", multiple=True, metavar="NODE", help="A layer to be left in float; repeat.")
@click.option(
    "--batch",
    "max_batch",
    type=click.IntRange(1, 64),
    metavar="N",
    default=1,
    help="Images on one canvas; the result is the same, but for that of some calibrators.",
)
@crew_options
@skip_option
def calibrate(model: Path, out: Path, as_json: bool, **asked: Any) -> None:
    """Make the calibration table with which a model runs in INT8.

    `auto` tries, on images that no range comes from, which method suits each tensor and which layers have to stay in
    float, by what INT8 does to boxes and scores. With labels the result is proven: mAP50-95 of INT8 is measured
    beside float's; where more than --max-drop is lost, more layers go to float, and if that does not help no table is
    written. Half of the images (of more than 128: a third) are kept apart for that.

    With --calibrator the engine's own library chooses the ranges, from the same pixels; its cache becomes the table.

    With --workers or --cluster others look, try and prove: the table is the same, byte for byte (docs/cluster.md).
    """
    _require_sense(asked)
    _require_calibrator_alone(asked)
    kind = usable_kind(asked["engine"])
    echo_passed_over(asked["images"])
    spread = {name: asked.pop(name) for name in ("cluster", "workers", "mixes_cpus")}
    options = _options(model, **asked)
    with crew_that(kind=kind, **spread) as crew, StageBars() as bars:
        done = run(options, kind, on_stage=bars.stage, on_step=bars.advance, crew=crew)
    write_table(out, done.table)
    warnings = list(_warnings(done, has_labels=options.labels is not None))
    for warning in warnings:
        click.echo(folded(f"warning: {warning}", width=shown_width()), err=True)
    echo_result(_as_json(done, out, warnings), pair_lines(_lines(done, out, options)), as_json=as_json)


def _options(
    model: Path,
    *,
    method: str | None,
    max_drop: MaxDrop | None,
    engine: str,
    **same: Any,
) -> CalibrationOptions:
    return CalibrationOptions(
        model=model,
        method=None if method in (None, "auto") else Method(method),
        max_drop=max_drop or MaxDrop(),
        **same,
    )


def _require_sense(asked: Mapping[str, Any]) -> None:
    is_auto = asked["method"] in (None, "auto")
    if asked["is_symmetric"] and (asked["calibrator"] is not None or not is_auto):
        raise click.UsageError("--symmetric is about the search of auto: what single methods give is symmetric already")
    if asked["max_drop"] is not None and asked["labels"] is None:
        raise click.UsageError("--max-drop is a promise about mAP: add --labels, so that mAP can be measured")


def _require_calibrator_alone(asked: Mapping[str, Any]) -> None:
    """A calibrator of a library chooses ranges itself and shows no histogram."""
    calibrator = asked["calibrator"]
    if calibrator is None:
        return
    for name in ("cluster", "workers"):
        if asked[name] is not None:
            raise click.UsageError(f"--calibrator {calibrator} sees all images in one process: leave out --{name}")
    if asked["method"] is not None:
        raise click.UsageError(f"--calibrator {calibrator} chooses ranges itself: leave out --method")


def _warnings(done: Calibration, *, has_labels: bool) -> Iterator[str]:
    seen = done.observations.images
    if done.left_out:
        yield undecodable_line(done.left_out)
    if seen < FEW_IMAGES:
        yield f"ranges come from {seen} images only; with fewer than {FEW_IMAGES} INT8 may clip what cameras see later"
    evidence = done.table.evidence
    if evidence is not None and evidence.unlabelled:
        yield unlabelled_line(evidence.unlabelled, evidence.images)
    yield from done.notes if evidence is None else evidence.notes
    if not has_labels:
        yield "without --labels nothing is promised about mAP; measure it with edge-deploy evaluate --table"
    for finding in done.findings:
        yield f"{finding.code}: {finding.problem}; {finding.fix}"


def _as_json(done: Calibration, path: Path, notes: list[str]) -> dict[str, Any]:
    return {
        "table": str(path),
        "model": done.spec.name,
        "model_sha256": done.spec.sha256,
        "method": done.table.method,
        "images": done.observations.images,
        "tensors": len(done.table.tensors),
        "evidence": msgspec.to_builtins(done.table.evidence),
        "int8_mac_share": round(done.int8_mac_share, 4),
        "float_layers": dict(done.table.float_reasons),
        "errors": {name: round(error, 5) for name, error in done.errors.items()},
        "unlabelled": 0 if done.table.evidence is None else len(done.table.evidence.unlabelled),
        "left_out": [str(one) for one in done.left_out],
        "notes": notes,
        "seconds": {name: round(seconds, 2) for name, seconds in done.seconds.items()},
    }


def _lines(done: Calibration, path: Path, options: CalibrationOptions) -> Iterator[tuple[str, str]]:
    table, evidence = done.table, done.table.evidence
    yield "table", str(path)
    yield "ranges", f"{len(table.tensors)} tensors, {table.method}, from {done.observations.images} images"
    yield "INT8", f"{done.int8_mac_share:.1%} of the MACs"
    for name, why in sorted(table.float_reasons.items()):
        yield "in float", f"{name}  ({why})"
    for step, error in done.errors.items():
        yield "error", f"{error:.4f}  {step}"
    if evidence is not None:
        yield (
            evidence.metric,
            f"INT8 {evidence.int8:.4f}, float {evidence.float_:.4f}{margin(evidence)}, "
            f"on {evidence.images} other images",
        )
    if done.seconds:
        yield "time", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in done.seconds.items())
    yield "verdict", _verdict(evidence, path, options)


def _verdict(evidence: Evidence | None, path: Path, options: CalibrationOptions) -> str:
    measure = f"edge-deploy evaluate MODEL --images DIR --labels DIR --table {shlex.quote(str(path))}"
    if evidence is None:
        return f"not proven: what INT8 loses was not measured; measure it: {measure}"
    if options.labels is None:
        return f"INT8 finds {evidence.int8:.1%} of what float finds; with labels mAP can be measured: {measure}"
    return (
        f"proven: INT8 loses {max(evidence.drop, 0):.2f} mAP50-95 points, at most "
        f"{options.max_drop.points_of(evidence.float_):.2f} were promised"
    )
