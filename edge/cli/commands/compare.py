"""`edge-deploy compare`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from edge.calibrate.files import write_bytes
from edge.cli.commands.table import undecodable_line
from edge.cli.comparison import SHOWN_WORST, comparison_page, comparison_summary, figures, sum_ms
from edge.cli.crew_options import crew_options, crew_that
from edge.cli.output import (
    aligned,
    echo_json,
    echo_lines,
    echo_parts,
    echo_passed_over,
    echo_warnings,
    progress_bar,
    shown_width,
)
from edge.cli.paths import IMAGES, MODEL, READ, WRITTEN, command, engine_option, skip_option
from edge.engine.kind import usable_kind
from edge.evaluate.layers import LayerError, LayerVerdict, worst_layers
from edge.quantize.comparison import TIMED_RUNS, Comparison, ComparisonOptions, compare_model, images_to_compare

__all__ = ["compare", "layer_error_lines"]

_HEAD = (
    "", "in", "SQNR dB", "input dB", "added", "clipped", "become 0", "MACs", "float ms", "INT8 ms",
    "verdict", "operator", "layer",
)  # fmt: skip
_SPARE = ("become 0", "clipped", "input dB", "operator", "MACs")


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
@skip_option
@click.option("--html", "page", type=WRITTEN, metavar="FILE", help="Also write a page with plots.")
def compare(
    model: Path,
    table: Path,
    images: Path,
    limit: int | None,
    engine: str,
    is_skipping_undecodable: bool,
    page: Path | None,
    as_json: bool,
    **spread: Any,
) -> None:
    """Compare INT8 with float, layer by layer: signal lost, time saved.

    SQNR is the signal to quantization noise of a layer's output, with everything in front of it in INT8 as well; what
    it adds itself is measured against the same layer in float on the same input. Times are medians for one frame on one
    thread of this machine, not of a Jetson, also where --workers or a --cluster measure what is lost.
    """
    options = ComparisonOptions(
        model=model, table=table, images=images, limit=limit, is_skipping_undecodable=is_skipping_undecodable
    )
    kind, count = usable_kind(engine), len(images_to_compare(options)) + TIMED_RUNS
    echo_passed_over(images)
    with crew_that(kind=kind, **spread) as crew, progress_bar("compare", total=count) as step:
        found = compare_model(options, kind, on_step=step, crew=crew)
    if found.undecodable:
        echo_warnings([undecodable_line(found.undecodable)])
    if found.untimed is not None:
        echo_warnings([f"no times: {found.untimed}"])
    if as_json:
        echo_json(found.as_json())
    else:
        _echo(found)
    if page is not None:
        write_bytes(page, comparison_page(found).encode())
        click.echo(f"{page} written", err=True)


def _echo(found: Comparison) -> None:
    worst = worst_layers(found.layers, count=SHOWN_WORST)
    echo_lines(layer_error_lines(found, worst))
    click.echo(f"* the {len(worst)} layers that add most noise; all layers in the order of the model")
    click.echo()
    echo_parts([[comparison_summary(found), _verdict(found)]])


def layer_error_lines(found: Comparison, worst: tuple[LayerError, ...]) -> Iterator[str]:
    """Yield a head, and one line for each layer in the order of the model; a star marks the worst."""
    starred = {id(error) for error in worst}
    rows = [
        ("*" if id(error) in starred else "", *figures(error), error.layer.op_type, error.layer.name)
        for error in found.layers
    ]
    yield from aligned([_HEAD, *rows], texts=3, width=shown_width(), spare=_SPARE, is_named=True)


def _verdict(found: Comparison) -> str:
    """Return one line: whether INT8 is worth it, as far as this machine tells, and which layers to look at."""
    costly = [error.layer.name for error in found.layers if error.verdict is LayerVerdict.COSTS_ACCURACY]
    float_ms, int8_ms = sum_ms(found)
    times = f"INT8 takes {int8_ms / float_ms:.0%} of float's time on this machine" if float_ms else "no times are known"
    if not costly:
        return f"Verdict: no layer costs accuracy; {times}."
    return (
        f"Verdict: {len(costly)} of {len(found.layers)} layers cost accuracy, first {costly[0]}: --keep-float of "
        f"calibrate leaves them in float; {times}."
    )
