"""Measures speed, as ratios within one run, and writes out/benchmarks.md.

make bench
make bench ARGS="--model yolov5n.onnx --clip a.mp4 --clip b.mp4 --out /tmp/b.md"
make bench ARGS="--int8 yolov5n.onnx --data images labels val val-labels"
make bench-stages        interpreter time per frame alone, on the terminal
"""

import argparse
import tempfile
from pathlib import Path

from tests.bench import calibration, measure
from tests.bench.page import render
from tests.bench.stages import measure_stages

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
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "benchmarks.md")
    options = parser.parse_args()
    if options.int8 and not options.data:
        parser.error("--int8 needs --data")
    models = [] if options.only_int8 else options.model or [ROOT / "edge" / "demo" / "model" / "traffic.onnx"]
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clips = options.clip or (measure.demo_clips(folder) if models else [])
        for model in models:
            found |= measure.measure_model(
                model.resolve(), clips, folder=folder, streams=options.streams, seconds=options.seconds
            )
        for model in options.int8:
            found |= calibration.measure_int8(
                model.resolve(), calibration.Data(*options.data), folder=folder, seconds=options.seconds
            )
        found["Publish call in the loop, 20 objects, us; budget of p99: 50"] = [measure.publish_call()]
        found |= measure_stages(folder, seconds=options.seconds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(render(found))
    print(options.out.read_text())


if __name__ == "__main__":
    main()
