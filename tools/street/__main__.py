"""Renders the demo's cameras into `edge/demo/clips`: H.264 clips of one period, the truth, labelled stills.

python -m tools.street [--out edge/demo/clips]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edge.demo.cameras import CLIPS, FPS, SIZE, Truth
from tools.street.encode import write_h264
from tools.street.samples import write_sample
from tools.street.scene import Scene

SEEDS = (1, 3, 5, 10)
"""Streets with good views; the training's seeds begin at 10,000."""
SAMPLE_EVERY = 11
"""33 stills a camera: 132 are enough to calibrate with, and are looked at within seconds."""
STILL_QUALITY = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=CLIPS)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS, start=1):
        write_camera(folder, f"camera-{number}", seed)


def write_camera(folder: Path, name: str, seed: int) -> None:
    scene = Scene(seed, SIZE)
    rendered = [scene.frame(index) for index in range(scene.period_frames)]
    write_h264(folder / f"{name}.mp4", (np.asarray(picture) for picture, _ in rendered), size=SIZE, fps=FPS)
    write_truths(folder / f"{name}.npz", [truth for _, truth in rendered])
    for index in range(0, len(rendered), SAMPLE_EVERY):
        write_sample(folder, f"{name}-{index:03d}", *rendered[index], quality=STILL_QUALITY)


def write_truths(path: Path, truths: Sequence[Truth]) -> None:
    np.savez_compressed(
        path,
        objects=np.array([len(truth.class_id) for truth in truths], np.int32),
        xyxy=np.concatenate([truth.xyxy for truth in truths]),
        class_id=np.concatenate([truth.class_id for truth in truths]),
        object_id=np.concatenate([truth.object_id for truth in truths]),
    )


if __name__ == "__main__":
    main()
