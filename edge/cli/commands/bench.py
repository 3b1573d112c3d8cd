"""`edge-runtime bench`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.lazy import verbosity_option
from edge.cli.options import SECONDS

__all__ = ["bench"]


@click.command(
    epilog="""\b
Examples:
  edge-runtime bench --pipeline gates.yaml
  edge-runtime bench --pipeline gates.yaml --duration 30 --json"""
)
@click.option("--pipeline", "path", type=click.Path(path_type=Path), required=True, help="The pipeline file.")
@click.option(
    "--duration",
    "duration_s",
    type=SECONDS,
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds per measurement.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def bench(path: Path, duration_s: float, as_json: bool) -> None:
    """Measure engine alone, decode alone, and the whole pipeline.

    Each after two seconds of warming up. Files need `loop: true`, or they end before the measurement does.
    """
    from edge.cli.commands.run import report_lines
    from edge.cli.output import echo_json, echo_pairs
    from edge.config.load import load_pipeline
    from edge.runtime.bench import bench as measure

    report = measure(load_pipeline(path), duration_s=duration_s)
    if as_json:
        echo_json(report.as_json())
        return
    content = report.as_json()
    whole = content["pipeline"]
    echo_pairs([("engine", f"{whole['engine']}, {whole['precision']}")])
    titles = {"engine": "engine alone", "decode": "decode alone", "running": "whole pipeline"}
    for name in ("engine", "decode", "running"):
        echo_pairs(
            [(titles[name], f"{content[name]['fps']} fps, CPU {content[name]['cpu_ms_per_frame']} ms per frame")]
        )
    for line in report_lines(report.whole):
        click.echo(line)
    for stage, times in whole["stages_ms"].items():
        echo_pairs([(f"  {stage}", f"p50 {times['p50']} ms, p95 {times['p95']} ms, p99 {times['p99']} ms")])
    click.echo(f"CPU per frame is {content['overhead']} x (decode alone + engine alone)")
