"""`edge-deploy compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edge.cli.comparison import comparison_page, echo_comparison
from edge.cli.crew_options import crew_options, crew_that
from edge.cli.options import engine_option
from edge.cli.output import echo_json, echo_passed_over, echo_warnings, progress_bar
from edge.cli.page import write_page
from edge.cli.paths import IMAGES, MODEL, READ, WRITTEN, command
from edge.engine.kind import usable_kind
from edge.quantize.comparison import TIMED_RUNS, ComparisonOptions, compare_model, images_to_compare

__all__ = ["compare"]


@command("""
  edge-deploy compare yolo11s.onnx --table gates.calib.json --images val/images
  edge-deploy compare yolo11s.onnx --table gates.calib.json --images val/images --limit 32 --html layers.html

\b
Verdicts, of which the first that is true counts:
  float           it stays in float
  costs accuracy  it adds noise of more than 1% of the power of its output
  unknown         it has no signal, or the engine does not tell its time alone
  pays            3/4 of its runs in INT8 were faster than 3/4 of those in float
  saves no time   none of these""")
@click.argument("model", type=MODEL)
@click.option("--table", type=READ, required=True, metavar="TABLE", help="Calibration table (*.calib.json).")
@click.option("--images", type=IMAGES, required=True, metavar="DIR", help="Folder of images.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N images, by name.")
@engine_option
@crew_options
@click.option("--html", "page", type=WRITTEN, metavar="FILE", help="Also write a page with plots.")
def compare(
    model: Path,
    table: Path,
    images: Path,
    limit: int | None,
    engine: str,
    page: Path | None,
    as_json: bool,
    **spread: Any,
) -> None:
    """Compare INT8 with float, layer by layer: signal lost, time saved.

    SQNR is the signal to quantization noise of a layer's output, with everything in front of it in INT8 as well; what
    it adds itself is measured against the same layer in float on the same input. Times are medians for one frame on one
    thread of this machine, not of a Jetson, also where --workers or a --cluster measure what is lost.
    """
    options = ComparisonOptions(model=model, table=table, images=images, limit=limit)
    kind, count = usable_kind(engine), len(images_to_compare(options)) + TIMED_RUNS
    echo_passed_over(images)
    with crew_that(kind=kind, **spread) as crew, progress_bar("compare", total=count) as step:
        found = compare_model(options, kind, on_step=step, crew=crew)
    if found.untimed is not None:
        echo_warnings([f"no times: {found.untimed}"])
    if as_json:
        echo_json(found.as_json())
    else:
        echo_comparison(found)
    if page is not None:
        write_page(page, comparison_page(found))
