"""The figures as a page."""

import datetime
import os
import platform
from pathlib import Path

from edge.version import __version__
from tests.bench.calibration_page import render_int8

OVERHEAD_BUDGET = 1.15
PUBLISH_BUDGET_US = 50


def render(results, int8, publishing, *, seconds):
    lines = [
        "# Benchmarks",
        "",
        f"edge-deploy {__version__}, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}. {_machine()}",
        f"Written by `make bench`; each figure is measured for {seconds:g} s, ratios are within one run. Absolute",
        "figures are of this machine only. Nothing here has run on a Jetson.",
        "",
    ]
    for result in results:
        lines += [f"## {result['model']}", "", *_files(result), *_live(result), *_batch(result)]
    lines += render_int8(int8)
    lines += [
        "## Publish call in the loop",
        "",
        "20 objects, selection, numbering, encoding and queueing, in the inference thread.",
        "",
        "| p50 | p95 | p99 | budget (p99) |",
        "|---|---|---|---|",
        "| " + " | ".join(f"{publishing[p]:.0f} us" for p in ("p50", "p95", "p99")) + f" | {PUBLISH_BUDGET_US} us |",
        "",
    ]
    return "\n".join(lines)


def _machine():
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = names[0].partition(":")[2].strip() if names else platform.processor()
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}, no GPU."


def _files(result):
    yield from (
        "### Files, as fast as possible",
        "",
        "Every frame is inferred. Overhead = CPU time per frame of the whole pipeline / (decode alone + engine alone);",
        f"its budget is {OVERHEAD_BUDGET}. Batches of up to 8; each part is warm before it is measured.",
        "",
        "| streams | decode alone fps | engine alone fps | pipeline fps | CPU ms per frame | overhead "
        "| infer p50 / p95 ms | post p50 / p95 ms | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    for count, one in result["files"].items():
        whole = one["pipeline"]
        stages = whole["stages_ms"]
        yield (
            f"| {count} | {one['decode']['fps']:.0f} | {one['engine']['fps']:.1f} | {one['running']['fps']:.1f} "
            f"| {one['running']['cpu_ms_per_frame']:.2f} | **{one['overhead']:.2f}** "
            f"| {stages['infer']['p50']:.1f} / {stages['infer']['p95']:.1f} "
            f"| {stages['post']['p50']:.2f} / {stages['post']['p95']:.2f} | {whole['peak_memory_bytes'] / 2**20:.0f} |"
        )
    yield ""


def _live(result):
    yield from (
        "### Live streams",
        "",
        "Clips played at their own pace; the newest frame wins. Latency is from decoder to result.",
        "",
        "| streams | fps per stream (slowest) | dropped | latency p50 / p95 / p99 ms | CPU cores | peak MiB |",
        "|---|---|---|---|---|---|",
    )
    for count, one in result["live"].items():
        streams, total = one["streams"], one["stages_ms"]["total"]
        decoded = sum(stream["decoded"] for stream in streams)
        dropped = sum(sum(stream["dropped"].values()) - stream["dropped"].get("stopped", 0) for stream in streams)
        fps = [stream["fps"] for stream in streams]
        yield (
            f"| {count} | {sum(fps) / len(fps):.2f} ({min(fps):.2f}) | {100 * dropped / max(decoded, 1):.1f} % "
            f"| {total['p50']:.0f} / {total['p95']:.0f} / {total['p99']:.0f} "
            f"| {one['cpu_seconds'] / one['seconds']:.2f} | {one['peak_memory_bytes'] / 2**20:.0f} |"
        )
    yield ""


def _batch(result):
    yield from (
        "### Batch on a CPU",
        "",
        "Four rows as requests of 1, 2 or 4 rows each (`engine.rows_per_request`), engine alone.",
        "",
        "| rows per request | ms per frame | against one row each |",
        "|---|---|---|",
    )
    alone = result["batch"][1]
    for rows, ms in result["batch"].items():
        yield f"| {rows} | {ms:.2f} | {ms / alone:.2f} |"
    yield ""
