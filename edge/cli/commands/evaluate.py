"""`edge-deploy evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from edge.cli.commands.table import undecodable_line, unlabelled_line
from edge.cli.crew_options import crew_options, crew_that
from edge.cli.output import echo_json, echo_pairs, echo_passed_over, echo_warnings, progress_bar
from edge.cli.paths import IMAGES, LABELS, MODEL, READ, command, engine_option, skip_option
from edge.engine.kind import usable_kind
from edge.media.images import list_images
from edge.quantize.accuracy import Evaluation, EvaluationOptions, evaluate_model
from edge.types import Precision

__all__ = ["evaluate"]


@command("""
  edge-deploy evaluate yolo11s.onnx --images val/images --labels val/labels
  edge-deploy evaluate yolo11s.onnx --images val2017 --labels instances_val2017.json --json
  edge-deploy evaluate yolo11s.onnx --images val/images --labels val/labels --table yolo11s.calib.json""")
@click.argument("model", type=MODEL)
@click.option("--images", type=IMAGES, required=True, metavar="DIR", help="Folder of images.")
@click.option(
    "--labels", type=LABELS, required=True, metavar="DIR|FILE", help="YOLO .txt folder, data.yaml or COCO .json."
)
@click.option(
    "--precision",
    type=click.Choice([one.value for one in Precision]),
    help="Arithmetic of the engine. Default: int8 with --table or Q/DQ pairs, else fp32.",
)
@click.option(
    "--table", type=READ, metavar="TABLE", help="Calibration table: measure INT8 as a pipeline with it would run."
)
@engine_option
@crew_options
@skip_option
def evaluate(
    model: Path,
    images: Path,
    labels: Path,
    precision: str | None,
    table: Path | None,
    engine: str,
    is_skipping_undecodable: bool,
    as_json: bool,
    **spread: Any,
) -> None:
    """Measure COCO mAP on labelled images, through exactly what the device runs.

    Every candidate above a score of 0.001 counts, suppressed at an IoU of 0.65, at most 300 per image (COCO: the
    best 100). Images without labels are taken as empty, and counted.

    A float model runs in INT8 by a calibration table only. A model that carries Q/DQ pairs (QAT) takes no table: it
    runs in INT8 as it is, and with --precision fp32 or fp16 without its pairs, which tells what INT8 costs.
    """
    options = EvaluationOptions(
        model=model,
        images=images,
        labels=labels,
        precision=None if precision is None else Precision(precision),
        table=table,
        is_skipping_undecodable=is_skipping_undecodable,
    )
    kind, count = usable_kind(engine), len(list_images(images))
    echo_passed_over(images)
    with crew_that(kind=kind, **spread) as crew, progress_bar("evaluate", total=count) as step:
        result = evaluate_model(options, kind, on_image=step, crew=crew)
    content = result.as_json()
    echo_warnings(_warnings(result))
    if as_json:
        echo_json(content)
        return
    echo_pairs(_lines(result, content))


def _warnings(result: Evaluation) -> Iterator[str]:
    if result.undecodable:
        yield undecodable_line(result.undecodable)
    if result.unlabelled:
        yield unlabelled_line(result.unlabelled, result.accuracy.images)
    if result.left_out:
        yield f"{result.left_out} boxes of classes that the model does not know were left out"
    yield from result.notes


def _lines(result: Evaluation, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "model", f"{content['model']} ({result.spec.family.value}), {content['precision']}, {content['engine']}"
    if result.int8_mac_share is not None:
        origin = "the model's own Q/DQ pairs" if result.table is None else str(result.table)
        yield "INT8", f"{result.int8_mac_share:.1%} of the multiply-accumulates, by {origin}"
    yield "images", f"{content['images']} with {content['boxes']} boxes, {content['unlabelled']} without labels"
    yield "classes", f"by {content['classes_by']}"
    yield "mAP50-95", f"{content['map50_95']:.4f}"
    yield "mAP50", f"{content['map50']:.4f}"
    yield "time", f"{content['seconds']} s"
