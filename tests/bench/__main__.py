"""Measures what DESIGN's budgets ask for, as ratios within one run, and writes docs/benchmarks.md.

make bench
make bench ARGS="--model yolov5n.onnx --clip a.mp4 --clip b.mp4 --out /tmp/b.md"
make bench ARGS="--int8 yolov5n.onnx --data images labels val val-labels"
make bench-stages        interpreter time per frame alone; the other figures of the page stay
make bench-rooflines     bounds and measured times alone, likewise; ARGS="--roofline yolov5n.onnx yolov5n.calib.json"
make bench-capacity      live streams, predicted and found, likewise; ARGS="--capacity yolov5n.onnx yolov5n.calib.json"
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.bench import calibration, measure, page
from tests.bench.capacity import measure_capacity
from tests.bench.capacity_page import CAPACITY_TITLE, render_capacity
from tests.bench.rooflines import DEMO, measure_rooflines
from tests.bench.rooflines_page import ROOFLINES_TITLE, render_rooflines
from tests.bench.stages import measure_stages
from tests.bench.stages_page import STAGES_TITLE, render_stages, with_section

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", help="ONNX models; default: the demo's own")
    parser.add_argument("--clip", type=Path, action="append", help="clips; default: the demo's own cameras")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=8.0, help="per measurement")
    parser.add_argument(
        "--int8", type=Path, action="append", default=[], help="models to calibrate and measure in INT8"
    )
    parser.add_argument("--data", type=Path, nargs=4, metavar="DIR", help="images, labels, val images, val labels")
    parser.add_argument("--only-int8", action="store_true")
    parser.add_argument(
        "--only-stages", action="store_true", help="interpreter time per frame; the rest of --out stays"
    )
    parser.add_argument("--only-rooflines", action="store_true", help="bounds and measured times; the rest stays")
    parser.add_argument(
        "--roofline", type=Path, nargs=2, action="append", metavar=("MODEL", "TABLE"), help="beside the demo's own"
    )
    parser.add_argument("--only-capacity", action="store_true", help="live streams without drops; the rest stays")
    parser.add_argument(
        "--capacity", type=Path, nargs=2, action="append", metavar=("MODEL", "TABLE"), help="beside the demo's own"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    if options.int8 and not options.data:
        parser.error("--int8 needs --data")
    if options.only_stages:
        _write_stages(options)
        return
    if options.only_rooflines:
        _write_rooflines(options)
        return
    if options.only_capacity:
        _write_capacity(options)
        return
    models = [] if options.only_int8 else options.model or [ROOT / "edge" / "demo" / "model" / "traffic.onnx"]
    with tempfile.TemporaryDirectory() as folder:
        clips = options.clip or (measure.demo_clips(Path(folder)) if models else [])
        results = [
            measure.measure_model(
                model.resolve(), clips, folder=Path(folder), streams=options.streams, seconds=options.seconds
            )
            for model in models
        ]
        int8 = [
            calibration.measure_int8(
                model.resolve(), calibration.Data(*options.data), folder=Path(folder), seconds=options.seconds
            )
            for model in options.int8
        ]
        publishing = measure.publish_call()
    options.out.write_text(page.render(results, int8, publishing, seconds=options.seconds))
    _write_stages(options)
    _write_rooflines(options)
    _write_capacity(options)


def _write_rooflines(options: argparse.Namespace) -> None:
    lines = render_rooflines(*measure_rooflines(_with_tables(options.roofline)))
    options.out.write_text(with_section(options.out.read_text(), ROOFLINES_TITLE, lines))


def _write_capacity(options: argparse.Namespace) -> None:
    models, seconds = _with_tables(options.capacity), 2 * options.seconds
    with tempfile.TemporaryDirectory() as folder:
        clips = options.clip or measure.demo_clips(Path(folder))
        rows = measure_capacity(models, clips, folder=Path(folder), seconds=seconds)
    lines = render_capacity(rows, seconds=seconds)
    options.out.write_text(with_section(options.out.read_text(), CAPACITY_TITLE, lines))


def _with_tables(given: list[list[Path]] | None) -> list[tuple[Path, Path]]:
    """Return the demo's model and those that were given, each with its table."""
    return [DEMO, *((model.resolve(), table.resolve()) for model, table in given or ())]


def _write_stages(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stages = measure_stages(Path(folder), seconds=options.seconds)
    options.out.write_text(with_section(options.out.read_text(), STAGES_TITLE, render_stages(stages)))
    print(options.out.read_text())


if __name__ == "__main__":
    main()
