"""`edge-deploy compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.cli.crew_options import crew_options, crew_that
from edge.cli.options import engine_option
from edge.cli.paths import IMAGES, MODEL, READ, WRITTEN, command

if TYPE_CHECKING:
    from edge.quantize.comparison import Comparison

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
    from edge.cli.output import echo_json, echo_passed_over, progress_bar
    from edge.engine.kind import usable_kind
    from edge.quantize.comparison import TIMED_RUNS, ComparisonOptions, compare_model, images_to_compare

    options = ComparisonOptions(model=model, table=table, images=images, limit=limit)
    kind, count = usable_kind(engine), len(images_to_compare(options)) + TIMED_RUNS
    echo_passed_over(images)
    with crew_that(kind=kind, **spread) as crew, progress_bar("compare", total=count) as bar:
        found = compare_model(options, kind, on_step=bar.advance, crew=crew)
    if found.untimed is not None:
        click.echo(f"warning: no times: {found.untimed}", err=True)
    if as_json:
        echo_json(found.as_json())
    else:
        _echo_layers(found)
    if page is not None:
        _write_page(page, found)


def _echo_layers(found: Comparison) -> None:
    from edge.cli.compare_lines import SHOWN_WORST, comparison_summary, comparison_verdict, layer_error_lines
    from edge.cli.output import echo_parts
    from edge.evaluate.layers import worst_layers

    worst = worst_layers(found.layers, count=SHOWN_WORST)
    for line in layer_error_lines(found, worst):
        click.echo(line)
    click.echo(f"* the {len(worst)} layers that add most noise; all layers in the order of the model", err=True)
    click.echo()
    echo_parts([[comparison_summary(found), comparison_verdict(found)]])


def _write_page(page: Path, found: Comparison) -> None:
    from edge.calibrate.files import write_bytes
    from edge.cli.compare_page import comparison_page

    write_bytes(page, comparison_page(found).encode())
    click.echo(f"{page} written", err=True)
