"""`edge-runtime run`."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from edge.cli.json_log import log_json
from edge.cli.lazy import verbosity_option
from edge.cli.memory import limit_arenas
from edge.cli.options import SECONDS
from edge.cli.paths import FOLDER, PIPELINE, RELEASE, STREAMED, WRITTEN, Command
from edge.cli.run_command import INTERRUPTED, tell
from edge.cli.run_progress import ticker
from edge.runtime.pipeline.report import RunReport

__all__ = ["report_lines", "run", "stop_on_signals"]

_UNREACHABLE = 3


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-runtime run --pipeline pipelines/gates.yaml
  edge-runtime run --pipeline gates.yaml --duration 60 --stats stats.json
  edge-runtime run --pipeline gates.yaml --duration 20 --annotate look/
  edge-runtime run --pipeline gates.yaml --duration 600 --frames gates-frames/
  edge-runtime run --release /var/lib/edge-deploy/current""",
)
@click.option("--pipeline", "path", type=PIPELINE, help="The pipeline file.")
@click.option("--release", "release_dir", type=RELEASE, metavar="DIR", help="A release on this device.")
@click.option("--duration", "duration_s", type=SECONDS, metavar="S", help="Stop after S seconds.")
@click.option(
    "--stats",
    "stats_path",
    type=STREAMED,
    metavar="FILE",
    help="Write the account as JSON; - is stdout.",
)
@click.option("--annotate", "annotate_dir", type=FOLDER, metavar="DIR", help="Write frames with boxes.")
@click.option(
    "--frames", "frames_dir", type=FOLDER, metavar="DIR", help="Write frames as they are, to calibrate and prove with."
)
@click.option(
    "--annotate-every", type=SECONDS, default=1.0, show_default=True, metavar="S", help="Seconds of video between them."
)
@click.option(
    "--health",
    type=WRITTEN,
    metavar="FILE",
    help="Write how it stands once a second; under systemd into its RuntimeDirectory by itself.",
)
@click.option(
    "--log",
    "log_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="EDGE_LOG",
    help="json: one object a line, with ids and fields (docs/log-events.md).",
)
@verbosity_option
def run(
    path: Path | None,
    release_dir: Path | None,
    duration_s: float | None,
    stats_path: Path | None,
    annotate_dir: Path | None,
    annotate_every: float,
    frames_dir: Path | None,
    health: Path | None,
    log_format: str,
) -> int:
    """Decode all streams, infer in batches, publish; until SIGTERM, Ctrl-C or the end of all files.

    SIGHUP (systemctl reload) takes over the streams of the pipeline file: added, removed and changed ones;
    the others do not miss a frame. A file that cannot be used is refused in the log, and all goes on.

    At a terminal a line every ten seconds says how it goes on. What is in flight is inferred and published
    before it ends. Exits with 130 after Ctrl-C, with 3 when a
    stream was down at the end, or an output has delivered nothing; as a service that is told to stop, with 0.
    """
    from edge.runtime.serve.serve import Serving, open_serving, serve_pipeline

    limit_arenas()
    say = tell
    if log_format == "json":
        log_json()
        say = _to_nobody
    if (path is None) == (release_dir is None):
        raise click.UsageError("give --pipeline FILE or --release DIR")
    write_stats = _stats_writer(stats_path)
    reload = threading.Event()
    with stop_on_signals(reload) as stop:
        opened: Serving = open_serving(path=path, release_dir=release_dir, health=health)
        parts = opened.build(annotate_dir=annotate_dir, annotate_every_s=annotate_every, frames_dir=frames_dir)
        engine = f"{parts.inference.engine.name} in {parts.precision.value}"
        streams = "1 stream" if len(parts.sources) == 1 else f"{len(parts.sources)} streams"
        say(f"running {parts.name} with {engine}, {streams}{_places(annotate_dir, frames_dir)}")

        def account(report: RunReport) -> None:
            for line in report_lines(report):
                say(line)
            write_stats(json.dumps(report.as_json(), indent=2) + "\n")

        tick = ticker(say, has_messages=opened.pipeline.config.publish.jsonl == "-")
        report = serve_pipeline(
            parts, opened.heartbeat, stop, duration_s=duration_s, reload=reload, on_tick=tick, on_end=account
        )
        is_stopped = stop.is_set()
    if is_stopped and release_dir is not None:
        # Systemd takes any other code for a failure, and a failure of a release for a reason to leave it.
        return 0
    if stop.is_interrupted:
        say("interrupted")
        return INTERRUPTED
    return _UNREACHABLE if report.has_failed_streams or report.silent_outputs else 0


def _places(annotate_dir: Path | None, frames_dir: Path | None) -> str:
    boxed = "" if annotate_dir is None else f"; frames with boxes go to {annotate_dir}"
    return boxed if frames_dir is None else f"{boxed}; frames as they are to {frames_dir}"


def _to_nobody(text: str) -> None:
    """Prose for a person, where each line is read by a program."""


def _stats_writer(path: Path | None) -> Callable[[str], None]:
    """Return what writes the account."""
    if path is None:
        return lambda text: None
    if str(path) == "-":
        return lambda text: click.echo(text, nl=False)

    def write(text: str) -> None:
        path.write_text(text, encoding="utf-8")

    return write


class Stop(threading.Event):
    """Set when the command is to end; `is_interrupted`: somebody has pressed Ctrl-C."""

    is_interrupted = False


@contextmanager
def stop_on_signals(reload: threading.Event | None = None) -> Iterator[Stop]:
    """Give an event that SIGTERM, SIGINT and SIGHUP set; a second SIGINT ends the process at once.

    With `reload`, SIGHUP sets that instead, unless it is that of a terminal which was closed.
    """
    stop = Stop()
    is_service = reload is not None and not _has_terminal()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            # Not by an exception: threads are inside decoders and engines, and must not outlive what they use.
            tell("interrupted")
            os._exit(INTERRUPTED)
        if number == signal.SIGHUP and is_service and reload is not None:
            reload.set()
        else:
            stop.is_interrupted = number == signal.SIGINT
            stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


def report_lines(report: RunReport) -> Iterator[str]:
    """Yield the account of a run for a person."""
    content = report.as_json()
    for stream in content["streams"]:
        drops = ", ".join(f"{count} {reason}" for reason, count in stream["dropped"].items() if count) or "none"
        reason = f" ({stream['reason']})" if stream["reason"] else ""
        errors = f", decode errors {stream['decode_errors']}" if stream["decode_errors"] else ""
        yield (
            f"{stream['id']}: {stream['state']}{reason}: decoded {stream['decoded']}, inferred {stream['inferred']}, "
            f"dropped {drops}{errors}, {stream['detections']} detections, {stream['fps']} fps"
        )
    total = content["stages_ms"]["total"]
    yield (
        f"{content['inferred']} frames in {content['seconds']} s: {content['fps']} fps, "
        f"latency p50 {total['p50']} ms, p95 {total['p95']} ms, CPU {content['cpu_ms_per_frame']} ms per frame"
    )
    for name, one in content["published"].items():
        yield f"{name}: {one['delivered']} messages delivered, {one['dropped']} dropped, {one['waiting']} undelivered"
    yield "the counts balance" if content["balanced"] else "THE COUNTS DO NOT BALANCE"
