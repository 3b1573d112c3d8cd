"""`edge-deploy demo`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress, TaskID

from edge.cli.commands.run import run_table, stop_on_signals
from edge.cli.output import aligned, echo_json, echo_lines, shown_width, stderr_console
from edge.cli.paths import FOLDER, SECONDS, command
from edge.cli.run_command import INTERRUPTED
from edge.demo.show import MAX_DROP, DemoHooks, DemoOptions, DemoReport, run_demo
from edge.runtime.pipeline.counters import RunReport
from edge.types import Precision

__all__ = ["demo"]

_FAILED = 1
_NEXT = """\
Where to go next:
  {folder}edge-deploy new your-model.onnx rtsp://your-camera                your pipeline file, from your cameras
  {folder}edge-deploy inspect your-model.onnx                               what your model is
  {folder}edge-deploy evaluate your-model.onnx --images DIR --labels DIR    how good it is
  {folder}edge-runtime run --pipeline your-pipeline.yaml                    pipelines/reference.yaml has every key
  {folder}edge-deploy listen --host your-broker                             what a subscriber sees"""


@command("""
  edge-deploy demo
  edge-deploy demo --cameras 8 --seconds 60 --precision fp32
  edge-deploy demo --keep out/demo""")
@click.option("--cameras", type=click.IntRange(1, 64), metavar="N", default=4, show_default=True, help="How many.")
@click.option(
    "--duration",
    "--seconds",
    "seconds",
    type=SECONDS,
    metavar="S",
    default=20.0,
    show_default=True,
    help="How long the cameras run.",
)
@click.option(
    "--precision",
    type=click.Choice(("int8", "fp32")),
    default="int8",
    show_default=True,
    help="INT8 is calibrated on frames of the cameras first, and proven.",
)
@click.option(
    "--keep", "folder", type=FOLDER, metavar="DIR", help="Keep clips, labelled images, table and pipeline here."
)
def demo(cameras: int, seconds: float, precision: str, folder: Path | None, as_json: bool) -> int:
    """Show the whole product on synthetic cameras, on this machine.

    The cameras are clips of synthetic traffic in H.264. A YOLO detector is calibrated for INT8 on some of their frames
    and proven on others: were it to lose more than 1.0 mAP50-95 points, it would run in FP32, and say so. Then the
    cameras are decoded by GStreamer, inferred in batches and published over MQTT to an independent subscriber, which
    compares its messages with the exact ground truth. Fails when nothing was received or the counts do not balance.
    """
    console = stderr_console()
    options = DemoOptions(cameras=cameras, duration_s=seconds, folder=folder, precision=Precision(precision))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("calibrating", total=None)
        live = Live(console=console, transient=True, auto_refresh=False)
        with stop_on_signals() as stop:
            hooks = _hooks(console, progress, bar, live, stop)
            try:
                result = run_demo(options, stop, hooks)
            finally:
                live.stop()
    if as_json:
        echo_json(result.as_json())
    else:
        _print_account(result)
        if folder is not None:
            click.echo(f"kept in {folder}: clips, labelled images, demo.yaml")
    for problem in result.problems:
        click.echo(f"error: {problem}", err=True)
    if stop.is_set():
        click.echo("interrupted", err=True)
        return INTERRUPTED
    return _FAILED if result.problems else 0


def _hooks(console: Console, progress: Progress, bar: TaskID, live: Live, stop: threading.Event) -> DemoHooks:
    """Return what shows how far the demo is, and ends its preparations when `stop` is set."""

    def on_stage(text: str) -> None:
        _require_wanted(stop)
        console.print(f"[bold]demo[/] {escape(text)}", soft_wrap=True)

    def on_step() -> None:
        _require_wanted(stop)
        progress.advance(bar)

    def on_tick(report: RunReport) -> None:
        if progress.live.is_started:
            progress.stop()
            live.start()
        if console.is_terminal:
            live.update(run_table(report), refresh=True)

    return DemoHooks(
        on_stage=on_stage,
        on_work=lambda name, steps: progress.reset(bar, description=name, total=steps),
        on_step=on_step,
        on_tick=on_tick,
    )


def _require_wanted(stop: threading.Event) -> None:
    """End the preparations where they are; once the cameras run, the service itself stops, and drains."""
    if stop.is_set():
        raise KeyboardInterrupt


def _print_account(result: DemoReport) -> None:
    content = result.run.as_json()
    names = max(len(stream["id"]) for stream in content["streams"])
    rows = [
        (
            stream["id"].ljust(names),
            f"{stream['fps']:.2f}",
            str(stream["decoded"]),
            str(stream["inferred"]),
            str(sum(stream["dropped"].values()) - stream["dropped"].get("stopped", 0)),
            str(stream["dropped"].get("stopped", 0)),
            f"{result.scores[stream['id']].precision:.3f}",
            f"{result.scores[stream['id']].recall:.3f}",
        )
        for stream in content["streams"]
    ]
    head = ("camera".ljust(names), "fps", "decoded", "inferred", "dropped", "at stop", "precision", "recall")
    spare = ("at stop", "decoded", "dropped", "recall", "precision")
    echo_lines(aligned([head, *rows], texts=0, width=shown_width(), spare=spare))
    total = content["stages_ms"]["total"]
    click.echo(
        f"\n{_precision_line(result)}\n"
        f"latency         p50 {total['p50']:.1f} ms, p95 {total['p95']:.1f} ms (decoder to result)\n"
        f"precision       {result.score.precision:.3f} and recall {result.score.recall:.3f} at IoU 0.5, "
        f"{result.score.labelled} objects of the exact ground truth\n"
        f"messages        {result.sent} sent, {result.received} received, {result.duplicates} twice\n"
        f"counts          {'balance' if not result.problems else 'DO NOT BALANCE'}: "
        "decoded = inferred + dropped + at stop, sent = received\n"
    )
    click.echo(_NEXT.format(folder=_folder_of_commands()))


def _folder_of_commands() -> str:
    """Return what has to stand before our commands, as this one was called; nothing where they are on the PATH."""
    found, called = shutil.which("edge-deploy"), sys.argv[0]
    if found is not None and os.path.realpath(found) == os.path.realpath(called):
        return ""
    return shlex.quote(called.removesuffix("edge-deploy")) if called.endswith("/edge-deploy") else ""


def _precision_line(result: DemoReport) -> str:
    name, done = result.run.precision.value.upper(), result.calibration
    if done is None:
        return f"{name:<15} as asked for, nothing was calibrated"
    if done.evidence is None:
        return f"{name:<15} because INT8 failed after {done.seconds:.1f} s: {done.problem}"
    proof = done.evidence
    return (
        f"{name:<15} mAP50-95 {proof.int8:.3f}, float {proof.float_:.3f}, on {proof.images} frames that no range comes "
        f"from; promised: at most {MAX_DROP} points less\n"
        f"{'calibration':<15} {done.seconds:.1f} s, ranges from {done.images} frames; "
        f"{proof.int8_mac_share:.1%} of the MACs in INT8, the last {done.float_layers} layers in float"
    )
