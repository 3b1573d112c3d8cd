"""Pictures that carry the number of their camera and of their frame, and a detector that reads them as detections.

A picture is a square of 8 x 8 blocks: 32 pairs of a white and a black one, so that what is smeared or mixed is no
number. The model finds each white block, with a box of its size; it has the tail of YOLOv8.

    write_signed_clip(path, 3, count=60)     reading_model(path)     signature_of(message)  -> (3, 17), or None
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np

from tests.support.models import BINS, Net, yolov8_boxes

SIDE = 8
SIZE = 8 * SIDE  # of the model's input: one cell of stride 8 for each block
BITS = SIDE * SIDE // 2
_LEVELS = ((8, 1.0), (16, 0.0), (32, 0.0))  # stride, and how much of the picture it sees


def word_of(camera: int, number: int) -> int:
    """Return 32 bits: camera, number, and a sum over both."""
    return camera << 24 | number << 8 | (camera * 7 + number * 13 + (number >> 8) * 5 + 0x5A) % 256


def signed(camera: int, number: int, *, size: int) -> np.ndarray:
    """Return an RGB picture, uint8 (size, size, 3)."""
    word = word_of(camera, number)
    bits = [word >> (BITS - 1 - i) & 1 for i in range(BITS)]
    blocks = np.array([[bit, 1 - bit] for bit in bits], np.uint8).reshape(SIDE, SIDE) * 255
    grey = np.kron(blocks, np.ones((size // SIDE, size // SIDE), np.uint8))
    return np.repeat(grey[:, :, None], 3, axis=2)


def write_signed_clip(
    path: Path, camera: int, *, count: int, size: int = 128, codec: str = "libx264", gop: int = 10, first: int = 0
) -> Path:
    """Encode the pictures `first` to `first + count` - 1 of a camera; the container follows from the suffix."""
    options = {"preset": "ultrafast", "crf": "23", "g": str(gop), "bf": "0"}
    if codec == "libx265":
        options = {"preset": "ultrafast", "crf": "23", "x265-params": f"log-level=error:keyint={gop}:bframes=0"}
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30, options=options)
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        for number in range(first, first + count):
            frame = av.VideoFrame.from_ndarray(signed(camera, number, size=size), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def signature_of(message: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return camera and number of the picture that a detections message is about; None where they are no signature."""
    width, height = message["size"]
    found = set()
    for one in message["detections"]:
        x, y, w, h = one["bbox"]
        found.add((int((y + h / 2) / height * SIDE), int((x + w / 2) / width * SIDE)))
    if len(found) != len(message["detections"]):
        return None
    return _signature([(row, column) in found for row in range(SIDE) for column in range(SIDE)])


def signature_in(image: np.ndarray) -> tuple[int, int] | None:
    """Return the same of the pixels of a square picture, as they were decoded and scaled."""
    grey = image.mean(axis=2)
    edges = [(i + 0.3, i + 0.7) for i in range(SIDE)]
    scale = grey.shape[0] / SIDE
    cuts = [slice(int(first * scale), int(last * scale)) for first, last in edges]
    return _signature([bool(grey[row, column].mean() > 128) for row in cuts for column in cuts])


def _signature(blocks: list[bool]) -> tuple[int, int] | None:
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
    if any(first == second for first, second in pairs):
        return None
    word = int("".join("1" if first else "0" for first, _ in pairs), 2)
    camera, number = word >> 24, word >> 8 & 0xFFFF
    return (camera, number) if word == word_of(camera, number) else None


def reading_model(path: Path) -> Path:
    """Write the detector: the score of a cell is how white the middle of its block is."""
    net = Net(SIZE)
    maps = []
    for stride, sight in _LEVELS:
        side = SIZE // stride
        inner = np.zeros((1, 3, stride, stride), np.float32)
        inner[:, :, stride // 4 : -(stride // 4), stride // 4 : -(stride // 4)] = 1 / (3 * (stride // 2) ** 2)
        logits = _conv(net, 40 * sight * inner, np.full(1, -20.0 if sight else -30.0), stride)
        bins = np.full((4, BINS), -30.0)
        bins[:, :2] = 0.0  # half a cell to each side
        distances = _conv(net, np.zeros((4 * BINS, 3, stride, stride)), bins.reshape(-1), stride)
        maps.append(net.reshape(net.op("Concat", distances, logits, axis=1), 4 * BINS + 1, side * side))
    both = net.op("Concat", *maps, axis=2)
    distances, logits = net.ops("Split", both, net.ints(4 * BINS, 1), count=2, axis=1)
    net.op("Concat", yolov8_boxes(net, distances), net.op("Sigmoid", logits), name="output0", axis=1)
    return net.save(path, {"output0": (5, net.cells())})


def _conv(net: Net, weight: np.ndarray, bias: np.ndarray, stride: int) -> str:
    size = weight.shape[-1]
    return net.op("Conv", net.image, net.const(weight), net.const(bias), kernel_shape=[size] * 2, strides=[stride] * 2)
