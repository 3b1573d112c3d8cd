"""Makes the clips of colour bars that `prove` decodes: `python -m tools.bars`.

Luma and chroma are computed here from the colours, by the matrices of ITU-R BT.601 and BT.709, so that what a decoder
makes of them is held against colours that no decoder has given.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from edge.runtime.prove.child import COLOURS
from edge.runtime.prove.kit import BARS

WIDTH, HEIGHT, FRAMES = 320, 192, 10
# Kr and Kb of each matrix, and its number in ITU-T H.273.
MATRICES = {"601": (0.299, 0.114, 6), "709": (0.2126, 0.0722, 1)}
CODECS = {"h264": ("libx264", "mp4"), "h265": ("libx265", "mp4"), "jpeg": ("mjpeg", "avi")}


def main() -> None:
    BARS.mkdir(exist_ok=True)
    for codec, (encoder, suffix) in CODECS.items():
        for matrix in MATRICES:
            for is_full in (False, True):
                if codec == "jpeg" and (matrix, is_full) != ("601", True):
                    continue  # JFIF knows no other
                name = f"{codec}-{matrix}-{'full' if is_full else 'limited'}.{suffix}"
                write(BARS / name, encoder, matrix, is_full=is_full)


def planes(matrix: str, *, is_full: bool) -> NDArray[np.uint8]:
    """Return the bars as one yuv420p picture, uint8 (height * 3 / 2, width)."""
    kr, kb, _ = MATRICES[matrix]
    rgb = np.repeat(np.array(COLOURS, np.float64) / 255, WIDTH // len(COLOURS), axis=0)
    luma = rgb @ (kr, 1 - kr - kb, kb)
    blue, red = (rgb[:, 2] - luma) / (2 - 2 * kb), (rgb[:, 0] - luma) / (2 - 2 * kr)
    scales = (0.0, 255.0, 255.0) if is_full else (16.0, 219.0, 224.0)
    y = np.tile(scales[0] + scales[1] * luma, (HEIGHT, 1))
    u, v = (np.tile(128 + scales[2] * one[::2], (HEIGHT // 2, 1)) for one in (blue, red))
    whole = np.concatenate([y.ravel(), u.ravel(), v.ravel()]).round().clip(0, 255)
    picture: NDArray[np.uint8] = whole.astype(np.uint8).reshape(HEIGHT * 3 // 2, WIDTH)
    return picture


def write(path: Path, encoder: str, matrix: str, *, is_full: bool) -> None:
    number = MATRICES[matrix][2]
    with av.open(str(path), "w") as made:
        stream = made.add_stream(encoder, rate=Fraction(15))
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height = WIDTH, HEIGHT
        stream.pix_fmt = "yuvj420p" if encoder == "mjpeg" else "yuv420p"
        context = stream.codec_context
        context.color_range = 2 if is_full else 1
        context.colorspace = context.color_primaries = context.color_trc = number
        context.options = {"qmin": "1", "qmax": "2"} if encoder == "mjpeg" else {"qp": "4", "preset": "veryslow"}
        for index in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(planes(matrix, is_full=is_full), format=stream.pix_fmt)
            frame.color_range, frame.colorspace = context.color_range, number
            frame.pts = index
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))


if __name__ == "__main__":
    main()
