"""`edge-runtime bench`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.paths import SECONDS, command, engine_option, pipeline_argument

__all__ = ["bench"]


@command("""
  edge-runtime bench gates.yaml
  edge-runtime bench gates.yaml --duration 30 --json
  edge-runtime bench --peaks""")
@pipeline_argument("The pipeline file.")
@click.option(
    "--peaks", "wants_peaks", is_flag=True, help="What the machine reaches at most: arithmetic, and its memory."
)
@engine_option
@click.option(
    "--duration", "duration_s", type=SECONDS, default=10.0, show_default=True, metavar="S", help="Per measurement."
)
def bench(path: Path | None, wants_peaks: bool, engine: str, duration_s: float, as_json: bool) -> None:
    """Measure engine alone, decode alone, and the whole pipeline.

    Each after two seconds of warming up. Files need `loop: true`, or they end before the measurement does. Messages are
    made and go nowhere: neither the broker of the pipeline file nor its `jsonl` hears of it.

    With --peaks instead what the machine reaches at most, without any model: operations (INT8, FP16 and FP32 of a GPU,
    INT8 and FP32 of a convolution on the CPU) and the rate of its memory, beside the datasheet's of a known Jetson.
    """
    if wants_peaks == (path is not None):
        raise click.UsageError("give PIPELINE or --peaks")
    if path is not None and engine != "auto":
        raise click.UsageError("--engine is for --peaks: a pipeline file names its own, engine.kind")
    if path is None:
        _show_peaks(engine, as_json=as_json)
    else:
        _show_costs(path, duration_s, as_json=as_json)


def _show_peaks(kind: str, *, as_json: bool) -> None:
    from edge.cli.output import echo_json, echo_pairs
    from edge.runtime.serve.bench import measured_peaks

    if as_json:
        echo_json({"peaks": [peak.as_json() for peak in measured_peaks(kind)]})
        return
    for peak in measured_peaks(kind):
        found = peak.as_json()
        share = "" if found["share"] is None else f", {found['share']:.0%} of the datasheet's {peak.ceiling:g}"
        reached = "-" if peak.value is None else f"{peak.value:g} {peak.unit}{share}"
        echo_pairs([(peak.name, f"{reached} ({peak.detail})")])


def _show_costs(path: Path, duration_s: float, *, as_json: bool) -> None:
    from edge.cli.commands.run import report_lines
    from edge.cli.output import echo_json, echo_pairs
    from edge.config.pipeline import load_pipeline
    from edge.runtime.serve.bench import bench as measure

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
