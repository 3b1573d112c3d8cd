"""The only importer of `cv2`: still images in and out, resizing, and boxes drawn on a picture.

All pictures are uint8 (H, W, 3) RGB. An image file is read as YOLO tools read it: 16 bits become 8, grey becomes three
equal channels, CMYK becomes RGB, an alpha channel is dropped without blending, and the EXIF orientation is applied:
labels were drawn on the upright picture.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError, MissingDependencyError
from edge.media.picture_header import stated_size
from edge.mistaken import mistaken
from edge.reading import read_file
from edge.types import ImageSize

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_PIXELS",
    "colour_of",
    "decode_image",
    "draw_boxes",
    "encode_jpeg",
    "read_image",
    "resize",
    "write_image",
]

MAX_PIXELS = 64 << 20
"""Of one image: 8192 x 8192, twice an 8K camera's; decoded and turned to RGB it takes 6 bytes a pixel, 384 MiB."""

MAX_FILE_BYTES = 512 << 20
"""Of one image file: twice what so many pixels take uncompressed."""

_GOLDEN_RATIO = 0.618033988749895


def _load() -> Any:
    # Of the formats whose header we do not read; OpenCV looks for it when it is loaded.
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))
    try:
        import cv2
    except ImportError as error:
        raise MissingDependencyError(
            f"OpenCV is not importable: {error}", hint="pip install opencv-python-headless"
        ) from error
    return cv2


def read_image(path: Path) -> NDArray[np.uint8]:
    """Return an image file as uint8 (H, W, 3) RGB, contiguous.

    Raises:
        DatasetError: if it cannot be read, is not an image, or states more than `MAX_PIXELS`, whatever its length.
    """
    try:
        # imread cannot tell a missing file from a damaged one.
        content = read_file(path, most_bytes=MAX_FILE_BYTES, follows_links=True)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from error
    return decode_image(path, content)


def decode_image(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Return the content of the image file at `path` as `read_image` does.

    Raises:
        DatasetError: if it is not an image, or states more than `MAX_PIXELS`, whatever its length.
    """
    cv2 = _load()
    _check_size(path, content)
    data = np.frombuffer(content, np.uint8)
    try:
        decoded = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    except cv2.error as error:
        raise DatasetError(f"{path}: is not an image that OpenCV can decode: {error}") from error
    if decoded is None and (found := mistaken(content)) is not None and not found.is_picture:
        raise DatasetError(f"{path}: expected an image, these {len(data)} bytes are {found.what}", hint=found.todo)
    if decoded is None:
        raise DatasetError(
            f"{path}: expected an image, got {len(data)} bytes that OpenCV cannot decode",
            hint="mend or remove it",
        )
    rgb: NDArray[np.uint8] = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
    return rgb


def _check_size(path: Path, content: bytes) -> None:
    size = stated_size(content)
    if size is not None and size[0] * size[1] > MAX_PIXELS:
        raise DatasetError(
            f"{path}: expected at most {MAX_PIXELS} pixels, its {len(content)} bytes state {size[0]} x {size[1]}, "
            f"which take {size[0] * size[1] * 6 >> 20} MiB to decode",
            hint="scale it down, or remove it",
        )


def write_image(path: Path, image: NDArray[np.uint8]) -> None:
    """Write uint8 (H, W, 3) RGB in the format of the file name's suffix.

    Raises:
        DatasetError: if the format is unknown or the file cannot be written.
    """
    cv2 = _load()
    try:
        _, data = cv2.imencode(path.suffix, cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR))
    except cv2.error as error:
        raise DatasetError(f"{path}: expected a suffix like .jpg or .png, got {path.suffix!r}") from error
    try:
        path.write_bytes(data.tobytes())
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}") from error


def encode_jpeg(image: NDArray[np.uint8], *, quality: int) -> bytes:
    """Return uint8 (H, W, 3) RGB as a JPEG file; `quality` is 1 to 100."""
    cv2 = _load()
    bgr = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return bytes(data.tobytes())


def resize(image: NDArray[np.uint8], size: ImageSize) -> NDArray[np.uint8]:
    """Return `image` scaled to `size`, bilinear as the decoders do it; the image itself if it has that size."""
    if image.shape[:2] == (size.height, size.width):
        return image
    cv2 = _load()
    scaled: NDArray[np.uint8] = cv2.resize(image, (size.width, size.height), interpolation=cv2.INTER_LINEAR)
    return scaled


def draw_boxes(
    image: NDArray[np.uint8], xyxy: NDArray[np.float32], texts: Sequence[str], class_ids: Sequence[int]
) -> None:
    """Draw boxes with their texts onto `image`, in place.

    Args:
        image: uint8 (H, W, 3) RGB, writable and contiguous.
        xyxy: float32 (N, 4), pixels of the image.
        texts: N labels; an empty one draws none.
        class_ids: N numbers that choose the colours.
    """
    cv2 = _load()
    thickness = max(1, round(min(image.shape[:2]) / 300))
    for box, text, class_id in zip(xyxy, texts, class_ids, strict=True):
        left, top, right, bottom = (round(float(value)) for value in box)
        colour = colour_of(class_id)
        cv2.rectangle(image, (left, top), (right, bottom), colour, thickness)
        if text:
            _draw_text(cv2, image, text, left=left, top=top, colour=colour)


def _draw_text(
    cv2: Any, image: NDArray[np.uint8], text: str, *, left: int, top: int, colour: tuple[int, int, int]
) -> None:
    """Above the box, or inside it where the picture ends."""
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, max(0.4, min(image.shape[:2]) / 1000)
    (width, height), baseline = cv2.getTextSize(text, font, scale, 1)
    bottom = top if top >= height + baseline else top + height + baseline
    cv2.rectangle(image, (left, bottom - height - baseline), (left + width, bottom), colour, cv2.FILLED)
    is_bright = sum(colour) > 3 * 128
    ink = (0, 0, 0) if is_bright else (255, 255, 255)
    cv2.putText(image, text, (left, bottom - baseline), font, scale, ink, 1, cv2.LINE_AA)


def colour_of(class_id: int) -> tuple[int, int, int]:
    """Return a vivid RGB colour; neighbouring class ids get far-apart hues."""
    hue = (class_id * _GOLDEN_RATIO) % 1.0 * 6
    rising = round(255 * (hue % 1))
    falling = 255 - rising
    ramps = [
        (255, rising, 0),
        (falling, 255, 0),
        (0, 255, rising),
        (0, falling, 255),
        (rising, 0, 255),
        (255, 0, falling),
    ]
    return ramps[int(hue)]
