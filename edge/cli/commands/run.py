"""`edge-runtime run`, and its log as JSON lines."""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table

from edge.cli.output import stderr_console
from edge.cli.paths import FOLDER, RELEASE, SECONDS, STREAMED, WRITTEN, command, pipeline_argument
from edge.cli.run_command import INTERRUPTED, tell
from edge.errors import ConfigError
from edge.log_events import EVENTS, phrase_of
from edge.runtime.pipeline.counters import RunReport
from edge.untrusted import cleaned
from edge.writing import remedy, write_whole

if TYPE_CHECKING:
    from edge.runtime.serve.service import PipelineParts

__all__ = [
    "JsonFormatter",
    "Repeats",
    "limit_arenas",
    "live_table",
    "log_json",
    "report_lines",
    "run",
    "run_table",
    "stats_writer",
    "stop_on_signals",
]

_FIELD = re.compile(r"(?:(\w+)=\"?)?%[-#0 +]*[\d.]*[a-zA-Z]")
_OTHER = "other"
_MOST_EQUAL = 5
_WINDOW_S = 60.0


class Repeats(logging.Filter):
    """Leaves out, for a minute, what equals the last five lines of its stream; the next one says how many."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._said: dict[str, tuple[str, float, int]] = {}  # the last line, since when, how often

    def filter(self, record: logging.LogRecord) -> bool:
        stream = str(fields_of(record).get("stream", ""))  # "": the device itself
        text, now_s = record.getMessage(), self._clock_s()
        last, since_s, times = self._said.get(stream, (text, now_s, 0))
        if text != last or now_s - since_s >= _WINDOW_S:
            record.repeated = max(0, times - _MOST_EQUAL)
            since_s, times = now_s, 0
        self._said[stream] = (text, since_s, times + 1)
        return times < _MOST_EQUAL


class JsonFormatter(logging.Formatter):
    """One line for each record, whatever it holds."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        content: dict[str, Any] = {
            "ts": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "event": event_of(record),
            "text": cleaned(record.getMessage()),
            **{name: _plain(value) for name, value in fields_of(record).items()},
        }
        if getattr(record, "repeated", 0):
            content["repeated"] = record.__dict__["repeated"]
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, ensure_ascii=True)


def event_of(record: logging.LogRecord) -> str:
    """Return the id of what is logged; `other` for lines of libraries."""
    event = EVENTS.get(phrase_of(str(record.msg)))
    return _OTHER if event is None or not record.name.startswith("edge.") else event.id


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return what the line says as `key=value`, and what has no key as `detail`."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    names = [match[1] or "detail" for match in _FIELD.finditer(str(record.msg))]
    reserved = {"ts", "level", "event", "text", "repeated", "traceback"}
    return {f"{name}_" if name in reserved else name: value for name, value in zip(names, arguments, strict=False)}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {cleaned(str(name)): _plain(one) for name, one in value.items()}
    if value is None or isinstance(value, int):
        return value
    return float(value) if isinstance(value, Real) and math.isfinite(value) else cleaned(str(value))


def log_json() -> None:
    """Log from now on as JSON, from INFO on: every change of state."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    handler.addFilter(Repeats())
    root = logging.getLogger()
    for one in list(root.handlers):
        root.removeHandler(one)
    root.addHandler(handler)
    logging.getLogger("edge").setLevel(logging.INFO)


_UNREACHABLE = 3
_M_ARENA_MAX = -8  # of glibc's <malloc.h>
_ARENAS = 2  # docs/adr/0011: GStreamer's threads come and go with each connection to a camera


@command("""
  edge-runtime run gates.yaml
  edge-runtime run gates.yaml --duration 60 --stats stats.json
  edge-runtime run gates.yaml --duration 20 --annotate look/
  edge-runtime run gates.yaml --duration 600 --frames gates-frames/
  edge-runtime run --release /var/lib/edge-deploy/current""")
@pipeline_argument("The pipeline file.")
@click.option("--release", "release_dir", type=RELEASE, metavar="DIR", help="A release on this device.")
@click.option("--duration", "duration_s", type=SECONDS, metavar="S", help="Stop after S seconds.")
@click.option("--stats", "stats_path", type=STREAMED, metavar="FILE", help="Write the account as JSON; - is stdout.")
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

    A terminal shows a live table, and no JSON lines (publish.jsonl: "-"): these go into a pipe or a file. Frames in
    flight are inferred and published before it ends. Exits with 130 after Ctrl-C, with 3 when a stream was down at the
    end or an output has delivered nothing, with 1 when the counts do not balance; as a service that is stopped, with 0.
    """
    from edge.runtime.serve.publishing import is_on_terminal
    from edge.runtime.serve.serve import Serving, alone, open_serving, serve_pipeline

    limit_arenas()
    say = tell
    if log_format == "json":
        log_json()
        say = _to_nobody
    if (path is None) == (release_dir is None):
        raise click.UsageError("give PIPELINE or --release DIR")
    write_stats = stats_writer(stats_path)
    with stop_on_signals(reload := threading.Event()) as stop, alone():
        opened: Serving = open_serving(path=path, release_dir=release_dir, health=health)
        before = {folder: _pictures_in(folder) for folder in (annotate_dir, frames_dir) if folder is not None}
        parts = opened.build(annotate_dir=annotate_dir, annotate_every_s=annotate_every, frames_dir=frames_dir)
        say(_running(parts))
        if is_on_terminal(opened.pipeline.config.publish.jsonl):
            say("JSON lines are not written to a terminal: pipe them, or name a file in publish.jsonl")

        with live_table(is_wanted=log_format != "json") as (show, remove):

            def account(report: RunReport) -> None:
                remove()
                for line in (*report_lines(report), *_places(annotate_dir, frames_dir, before)):
                    say(line)
                write_stats(json.dumps(report.as_json(), indent=2) + "\n")

            report = serve_pipeline(
                parts, opened.heartbeat, stop, duration_s=duration_s, reload=reload, on_tick=show, on_end=account
            )
        is_stopped = stop.is_set()
    if is_stopped and release_dir is not None:
        # Systemd takes any other code for a failure, and a failure of a release for a reason to leave it.
        return 0
    if stop.is_interrupted:
        say("interrupted")
        return INTERRUPTED
    return _code_of(report, before)


def _code_of(report: RunReport, pictures_before: Mapping[Path, int]) -> int:
    if not report.is_balanced:
        return 1
    is_empty = report.inferred > 0 and any(_pictures_in(one) == count for one, count in pictures_before.items())
    return _UNREACHABLE if report.has_failed_streams or report.silent_outputs or is_empty else 0


def limit_arenas() -> None:
    """Have glibc's malloc share two arenas between all threads; before threads are started.

    Each thread gets one of its own otherwise, eight per core at most, and what is freed stays there in pieces. Does
    nothing where `MALLOC_ARENA_MAX` says how many, and where the allocator is another one.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def _running(parts: PipelineParts) -> str:
    streams = "1 stream" if len(parts.sources) == 1 else f"{len(parts.sources)} streams"
    return f"running {parts.name} with {parts.inference.engine.name} in {parts.precision.value}, {streams}"


def _places(annotate_dir: Path | None, frames_dir: Path | None, before: Mapping[Path, int]) -> Iterator[str]:
    for folder, content in ((annotate_dir, "frames with boxes"), (frames_dir, "frames as they are")):
        if folder is not None:
            yield f"{content}: {folder} ({_pictures_in(folder) - before[folder]} pictures)"


def _pictures_in(folder: Path) -> int:
    return len(list(folder.glob("*.jpg")))


def _to_nobody(text: str) -> None:
    """Prose for a person, where each line is read by a program."""


def stats_writer(path: Path | None) -> Callable[[str], None]:
    if path is None:
        return lambda text: None
    if str(path) == "-":
        return lambda text: click.echo(text, nl=False)

    def write(text: str) -> None:
        try:
            if path.is_symlink() or (path.exists() and not path.is_file()):  # a pipe, a device, /dev/stdout
                path.write_text(text, encoding="utf-8")
            else:
                write_whole(path, text.encode())
        except OSError as error:
            raise ConfigError(f"--stats {path}: cannot be written: {error.strerror}", hint=remedy(error)) from None

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


@contextmanager
def live_table(*, is_wanted: bool) -> Iterator[tuple[Callable[[RunReport], None], Callable[[], None]]]:
    """Give what shows an account on stderr, in place of the one before, and removes it; none without a terminal.

    Remove it before anything is written below it, or its rows are taken back from that.
    """
    console = stderr_console()
    if not (is_wanted and console.is_terminal):
        yield lambda report: None, lambda: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda report: live.update(run_table(report), refresh=live.is_started), live.stop


def run_table(report: RunReport) -> Group:
    content = report.as_json()
    total = content["stages_ms"]["total"]
    rows = [
        (stream["id"], stream["state"], f"{stream['fps']:.1f}", str(stream["inferred"]), str(stream["detections"]))
        for stream in content["streams"]
    ]
    delivered = sum(output["delivered"] for output in content["published"].values())
    title = (
        f"{content['seconds']:.0f} s   {content['fps']:.1f} fps   latency p50 {total['p50']:.0f} ms, "
        f"p95 {total['p95']:.0f} ms   {delivered} messages"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("camera")
    for column in ("state", "fps", "frames", "detections"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return Group(title, table)


def report_lines(report: RunReport) -> Iterator[str]:
    content = report.as_json()
    for stream in content["streams"]:
        drops = ", ".join(f"{count} {reason}" for reason, count in stream["dropped"].items() if count) or "none"
        reason = f" ({stream['reason']})" if stream["reason"] else ""
        errors = f", decode errors {stream['decode_errors']}" if stream["decode_errors"] else ""
        yield (
            f"{stream['id']}: {stream['state']}{reason}: decoded {stream['decoded']}, inferred {stream['inferred']}, "
            f"dropped {drops}{errors}, {stream['detections']} detections, {stream['fps']} fps"
        )
    total, of_frames = content["stages_ms"]["total"], ""
    if content["inferred"]:
        of_frames = (
            f": {content['fps']} fps, latency p50 {total['p50']} ms, p95 {total['p95']} ms, "
            f"CPU {content['cpu_ms_per_frame']} ms per frame"
        )
    yield f"{content['inferred']} frames in {content['seconds']} s{of_frames}"
    for name, one in content["published"].items():
        yield f"{name}: {one['delivered']} messages delivered, {one['dropped']} dropped, {one['waiting']} undelivered"
    yield "the counts balance" if content["balanced"] else "THE COUNTS DO NOT BALANCE"
