"""Clips made on the spot, whose frames carry their number as black and white blocks that survive coding and scaling."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from edge.types import ImageSize, Preprocess
from tests.support.models import BINS, Net, yolov8_boxes

CANVAS = Preprocess(size=ImageSize(width=320, height=320))
BITS = 8
UNDECLARED, BT709, BT601 = None, 1, 6


def numbered(number: int, *, width: int, height: int) -> np.ndarray:
    """A picture with `number` in its upper half, most significant bit left, and colours in its lower half."""
    image = np.full((height, width, 3), 128, np.uint8)
    edges = [round(i * width / BITS) for i in range(BITS + 1)]
    for bit in range(BITS):
        image[: height // 2, edges[bit] : edges[bit + 1]] = 255 if number >> (BITS - 1 - bit) & 1 else 0
    colours = [(200, 40, 40), (40, 180, 60), (50, 70, 210), (220, 200, 60)]
    for i, colour in enumerate(colours):
        image[height // 2 :, i * width // 4 : (i + 1) * width // 4] = colour
    return image


def number_of(image: np.ndarray) -> int:
    """Read the number back out of a decoded and scaled picture."""
    height, width = image.shape[:2]
    middle = image[height // 8 : height * 3 // 8]
    centres = [middle[:, round((i + 0.3) * width / BITS) : round((i + 0.7) * width / BITS)] for i in range(BITS)]
    bits = [block.mean() > 128 for block in centres]
    return int("".join("1" if bit else "0" for bit in bits), 2)


def numbered_pictures(count: int, *, width: int, height: int) -> Iterator[np.ndarray]:
    return (numbered(i, width=width, height=height) for i in range(count))


def turn_clip(path: Path, turn_deg: int) -> Path:
    """Make an MP4 ask to be turned clockwise, by the matrix of its track header (ISO/IEC 14496-12, 8.3.2)."""
    one = 1 << 16
    a, b, c, d = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}[turn_deg]
    content = bytearray(path.read_bytes())
    begin = content.index(b"tkhd") + 4
    assert content[begin] == 0, "expected version 0, whose times have 32 bits"
    struct.pack_into(">9i", content, begin + 40, a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    path.write_bytes(content)
    return path


def write_clip(
    path: Path,
    *,
    count: int = 30,
    width: int = 320,
    height: int = 180,
    codec: str = "libx264",
    fps: int = 30,
    colour: int | None = UNDECLARED,
    first: int = 0,
    gop: int = 15,
    b_frames: int = 0,
    x265: str = "",
    is_full_range: bool = False,
    is_colour_in_container: bool = False,
) -> Path:
    """Encode `count` numbered pictures as 4:2:0 (I420); the container follows from the suffix."""
    options = {
        "libx264": {"preset": "ultrafast", "crf": "18", "bf": str(b_frames), "g": str(gop)},
        "libx265": {
            "preset": "ultrafast",
            "crf": "18",
            "g": str(gop),
            "x265-params": f"log-level=error:{x265}".rstrip(":"),
        },
    }.get(codec, {})
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps, options=options)
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        if codec not in ("libx264", "libx265"):
            stream.bit_rate = 4_000_000
        if colour is not None:
            if is_colour_in_container:  # the muxer writes them only with these
                primaries = 1 if colour == BT709 else 6
                stream.codec_context.color_primaries = stream.codec_context.color_trc = primaries
            stream.codec_context.colorspace, stream.codec_context.color_range = colour, 2 if is_full_range else 1
        for i in range(first, first + count):
            frame = av.VideoFrame.from_ndarray(numbered(i, width=width, height=height), "rgb24")
            # The encoder converts; it must use the matrix that the clip then declares, or that readers assume.
            matrix = 1 if colour == BT709 else 5
            range_ = 2 if is_full_range else 1
            frame = frame.reformat(
                format=stream.pix_fmt, dst_colorspace=matrix, src_color_range=2, dst_color_range=range_
            )
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def cut_packet(path: Path, number: int, cut_bytes: int) -> None:
    """Let a picture of an elementary stream lack its end, as a camera sends it whose buffer was too small."""
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    packets[number] = packets[number][:-cut_bytes]
    path.write_bytes(b"".join(packets))


def spoil_packets(path: Path, numbers: set[int]) -> None:
    """Overwrite the second half of some pictures of an elementary stream with noise that starts no new unit."""
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    noise = np.random.default_rng(7).integers(1, 255, max(map(len, packets)), np.uint8).tobytes()
    for number in numbers:
        half = len(packets[number]) // 2
        packets[number] = packets[number][:half] + noise[: len(packets[number]) - half]
    path.write_bytes(b"".join(packets))


SIDE = 8
SIZE = 8 * SIDE  # of the model's input: one cell of stride 8 for each block
SIGNED_BITS = SIDE * SIDE // 2
_LEVELS = ((8, 1.0), (16, 0.0), (32, 0.0))  # stride, and how much of the picture it sees


def word_of(camera: int, number: int) -> int:
    """Return 32 bits: camera, number, and a sum over both."""
    return camera << 24 | number << 8 | (camera * 7 + number * 13 + (number >> 8) * 5 + 0x5A) % 256


def signed(camera: int, number: int, *, size: int) -> np.ndarray:
    """Return an RGB picture, uint8 (size, size, 3)."""
    word = word_of(camera, number)
    bits = [word >> (SIGNED_BITS - 1 - i) & 1 for i in range(SIGNED_BITS)]
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


def draw(folder: Path, count: int, *, seed: int = 0, prefix: str = "") -> list[Path]:
    """Write `count` different PNG files of coloured rectangles, 80 x 60 pixels, and return their paths."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    paths = []
    for index in range(count):
        picture = np.full((60, 80, 3), random.integers(0, 256, 3), np.uint8)
        for left, top in random.integers(0, 50, (4, 2)).tolist():
            picture[top : top + 15, left : left + 20] = random.integers(0, 256, 3)
        paths.append(folder / f"{prefix}{index}.png")
        cv2.imwrite(str(paths[-1]), picture)
    return paths


def cmyk_jpeg(path: Path, cmyk: tuple[int, int, int, int]) -> Path:
    """Write a baseline JPEG of one colour in four components as Adobe's programs do, that is inverted.

    Source: ITU-T T.81, annexes B and F; only DC coefficients, all in codes of four bits.
    """
    side, blocks = 8 * 6, 6 * 6
    parts = b"".join(bytes((number, 0x11, 0)) for number in range(1, 5))
    bits = "".join(_first_block(8 * (255 - value - 128)) for value in cmyk) + "00000" * 4 * (blocks - 1)
    bits += "1" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
    path.write_bytes(
        b"\xff\xd8"
        + _segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))
        + _segment(0xDB, b"\0" + bytes([1] * 64))
        + _segment(0xC0, struct.pack(">BHHB", 8, side, side, 4) + parts)
        + _segment(0xC4, b"\x00" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12)))
        + _segment(0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0")
        + _segment(0xDA, b"\x04" + b"".join(bytes((number, 0)) for number in range(1, 5)) + b"\0\x3f\0")
        + data
        + b"\xff\xd9"
    )
    return path


def _first_block(dc: int) -> str:
    """Return the code of a block whose DC differs by `dc` from 0, and of no AC; where it differs by 0, it is 00000."""
    size = abs(dc).bit_length()
    value = dc if dc >= 0 else dc + (1 << size) - 1
    return f"{size:04b}" + (f"{value:0{size}b}" if size else "") + "0"


def _segment(marker: int, content: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(content) + 2) + content
