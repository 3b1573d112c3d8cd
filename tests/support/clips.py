"""Clips made on the spot, whose frames carry their number as black and white blocks that survive coding and scaling."""

import struct
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

from edge.types import ImageSize, Preprocess

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
