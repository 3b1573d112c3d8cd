"""Train the demo model, export it, judge it: `python -m tools.train --out DIR`. Needs torch."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from tools.street.scene import CLASSES
from tools.train.data import CANVAS_PX, render_pool
from tools.train.evaluate import evaluate
from tools.train.export import export_onnx
from tools.train.fit import Budget, Fitted, fit

__all__ = ["main"]

TRAIN_SEEDS_FROM = 10_000
HELD_OUT_SEEDS_FROM = 900_000
_BATCH_SIZE = 16


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.train",
        description="Train the demo model on synthetic scenes, write traffic.onnx and traffic.json.",
        epilog="example: python -m tools.train --out edge/demo/model --seed 0 --minutes 20",
    )
    parser.add_argument("--out", type=Path, required=True, help="directory for traffic.onnx and traffic.json")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and variation (default 0)")
    parser.add_argument("--minutes", type=float, default=20.0, help="time for the training loop (default 20)")
    parser.add_argument("--steps", type=int, help="train for exactly this many steps instead of by the clock")
    parser.add_argument("--scenes", type=int, default=1000, help="scenes to train on (default 1000)")
    parser.add_argument("--frames", type=int, default=12, help="frames of each scene (default 12)")
    parser.add_argument("--held-out", type=int, default=60, help="scenes to judge on (default 60)")
    parser.add_argument("--threads", type=int, default=2, help="threads and render processes (default 2)")
    return parser


def main() -> None:
    arguments = _parser().parse_args()
    torch.set_num_threads(arguments.threads)
    seeds = range(TRAIN_SEEDS_FROM, TRAIN_SEEDS_FROM + arguments.scenes)
    started_at = time.monotonic()
    pool = render_pool(seeds, frames_per_scene=arguments.frames, workers=arguments.threads)
    render_minutes = (time.monotonic() - started_at) / 60
    _say(f"rendered {len(pool.images)} frames in {render_minutes:.1f} min")
    budget = Budget(steps=arguments.steps, minutes=arguments.minutes)
    fitted = fit(pool, budget=budget, batch_size=_BATCH_SIZE, seed=arguments.seed, report=_say)
    model_path = arguments.out / "traffic.onnx"
    export_onnx(fitted.detector, model_path)
    record = _record(arguments, fitted, render_minutes) | _judge(model_path, arguments.held_out)
    (arguments.out / "traffic.json").write_text(json.dumps(record, indent=2) + "\n")
    _say(f"wrote {model_path}: mAP50 {record['held_out'][0]['map50']:.3f}, steps {fitted.steps}")


def _record(arguments: argparse.Namespace, fitted: Fitted, render_minutes: float) -> dict[str, Any]:
    images = arguments.scenes * arguments.frames
    return {
        "classes": list(CLASSES),
        "input": [CANVAS_PX, CANVAS_PX],
        "parameters": sum(weight.numel() for weight in fitted.detector.parameters()),
        "training": {
            "seed": arguments.seed,
            "scene_seeds": [TRAIN_SEEDS_FROM, TRAIN_SEEDS_FROM + arguments.scenes - 1],
            "images": images,
            "batch": _BATCH_SIZE,
            "steps": fitted.steps,
            "epochs": round(fitted.steps * _BATCH_SIZE / images, 2),
            "render_minutes": round(render_minutes, 1),
            "minutes": round(fitted.minutes, 1),
            "threads": arguments.threads,
            "torch": torch.__version__,
        },
    }


def _judge(model_path: Path, scene_count: int) -> dict[str, Any]:
    """Return the figures of the written file on held-out scenes, at the encoder's default quality and at a poor one."""
    seeds = range(HELD_OUT_SEEDS_FROM, HELD_OUT_SEEDS_FROM + scene_count)
    held_out = []
    for crf in (23, 32):
        figures = evaluate(model_path, seeds=seeds, clip_frames=30, keep_every=10, crf=crf)
        _say(f"H.264 crf {crf}: {figures}")
        rounded = json.loads(json.dumps(dataclasses.asdict(figures)), parse_float=lambda text: round(float(text), 4))
        held_out.append({"encoder": f"libx264 veryfast crf {crf}", "scene_seeds": [seeds[0], seeds[-1]], **rounded})
    content = model_path.read_bytes()
    return {"held_out": held_out, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
