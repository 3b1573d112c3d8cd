"""Measures what DESIGN's budgets ask for, as ratios within one run, and writes docs/benchmarks.md.

make bench
make bench ARGS="--model yolov5n.onnx --clip a.mp4 --clip b.mp4 --out /tmp/b.md"
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.bench import measure, page

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", help="ONNX models; default: the demo's own")
    parser.add_argument("--clip", type=Path, action="append", help="clips; default: the demo's own cameras")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=8.0, help="per measurement")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    models = options.model or [ROOT / "edge" / "demo" / "model" / "traffic.onnx"]
    with tempfile.TemporaryDirectory() as folder:
        clips = options.clip or measure.demo_clips(Path(folder))
        results = [
            measure.measure_model(
                model.resolve(), clips, folder=Path(folder), streams=options.streams, seconds=options.seconds
            )
            for model in models
        ]
        publishing = measure.publish_call()
    options.out.write_text(page.render(results, publishing, seconds=options.seconds))
    print(options.out.read_text())


if __name__ == "__main__":
    main()
