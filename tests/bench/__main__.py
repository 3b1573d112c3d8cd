"""Measures what DESIGN's budgets ask for, as ratios within one run, and writes out/benchmarks.md.

make bench
make bench ARGS="--model yolov5n.onnx --clip a.mp4 --clip b.mp4 --out /tmp/b.md"
make bench ARGS="--int8 yolov5n.onnx --data images labels val val-labels"
make bench-stages        interpreter time per frame alone; the other figures of the page stay
"""

import argparse
import tempfile
from pathlib import Path

from tests.bench import calibration, measure, page
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
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "benchmarks.md")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.int8 and not options.data:
        parser.error("--int8 needs --data")
    if options.only_stages:
        _write_stages(options)
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


def _write_stages(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stages = measure_stages(Path(folder), seconds=options.seconds)
    before = options.out.read_text() if options.out.exists() else ""
    options.out.write_text(with_section(before, STAGES_TITLE, render_stages(stages)))
    print(options.out.read_text())


if __name__ == "__main__":
    main()
