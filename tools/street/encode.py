"""Writes H.264 clips, for the demo and the benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge.media.ffmpeg.binding import load
from edge.types import ImageSize

__all__ = ["write_h264"]

_CRF = "23"  # x264's own default: visibly compressed, as cameras do


def write_h264(path: Path, frames: Iterable[NDArray[np.uint8]], *, size: ImageSize, fps: int) -> None:
    """Write `frames`, each uint8 (H, W, 3) RGB, to an MP4 file as H.264 4:2:0 without B-frames.
    Raises MissingDependencyError if PyAV is not installed.
    """
    av = load()
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = size.width, size.height, "yuv420p"
        stream.options = {"crf": _CRF, "preset": "veryfast", "bf": "0", "g": str(fps)}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
