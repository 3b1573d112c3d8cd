"""The only importer of `cv2`: still images in and out, resizing, and boxes drawn on a picture.

All pictures are uint8 (H, W, 3) RGB. An image file is read as YOLO tools read it: 16 bits become 8, grey becomes three
equal channels, CMYK becomes RGB, an alpha channel is dropped without blending, and the EXIF orientation is applied:
labels were drawn on the upright picture.
"""

from __future__ import annotations

import colorsys
import contextlib
import itertools
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.errors import DatasetError, MissingDependencyError
from edge.mistaken import mistaken
from edge.reading import read_file
from edge.types import ImageSize, Polygon
from edge.writing import remedy

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_FILE_BYTES",
    "MAX_PIXELS",
    "blacken",
    "colour_of",
    "decode_image",
    "draw_boxes",
    "encode_jpeg",
    "image_bytes",
    "ink_on",
    "list_images",
    "passed_over",
    "paste_without_alpha",
    "read_image",
    "resize",
    "shrunk",
    "write_image",
]

MAX_PIXELS = 64 << 20
"""Of one image: 8192 x 8192, twice an 8K camera's; decoded and turned to RGB it takes 6 bytes a pixel, 384 MiB."""

MAX_FILE_BYTES = 512 << 20
"""Of one image file: twice what so many pixels take uncompressed."""

_GOLDEN_RATIO = 0.618033988749895


def _load() -> Any:
    # OpenCV looks for it when it is loaded, and then at each image's header before it spends memory on the rest.
    os.environ["OPENCV_IO_MAX_IMAGE_PIXELS"] = str(MAX_PIXELS)
    try:
        import cv2
    except ImportError as error:
        raise MissingDependencyError(
            f"OpenCV is not importable: {error}", hint="pip install opencv-python-headless"
        ) from error
    return cv2


def read_image(path: Path) -> NDArray[np.uint8]:
    """Return an image file as uint8 (H, W, 3) RGB, contiguous. Raises `DatasetError` if it cannot be read, is no whole
    image, or states more than `MAX_PIXELS`, whatever its length.
    """
    return decode_image(path, image_bytes(path))  # imread cannot tell a missing file from a damaged one


def image_bytes(path: Path) -> bytes:
    """Raise `DatasetError` if it cannot be read."""
    try:
        return read_file(path, most_bytes=MAX_FILE_BYTES, follows_links=True)
    except OSError as error:
        is_dangling = isinstance(error, FileNotFoundError) and path.is_symlink()
        why = f"it is a link to {path.readlink()}, which is not there" if is_dangling else error.strerror
        raise DatasetError(f"{path}: cannot be read: {why}", hint="mend or remove it") from error


def decode_image(path: Path, content: bytes) -> NDArray[np.uint8]:
    """As `read_image`. Raises `DatasetError` if it is no whole image, or states more than `MAX_PIXELS`."""
    cv2 = _load()
    data = np.frombuffer(content, np.uint8)
    try:
        with caught_damage() as damage:
            decoded = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    except cv2.error as error:
        if "CV_IO_MAX_IMAGE_PIXELS" in str(error):
            problem = f"{path}: expected at most {MAX_PIXELS} pixels, its {len(content)} bytes state more"
            raise DatasetError(problem, hint="scale it down, or remove it") from error
        raise DatasetError(
            f"{path}: is not an image that OpenCV can decode: {error}", hint="mend or remove it"
        ) from error
    if decoded is None and (found := mistaken(content)) is not None and not found.is_picture:
        raise DatasetError(f"{path}: expected an image, these {len(data)} bytes are {found.what}", hint=found.todo)
    if decoded is None:
        raise DatasetError(
            f"{path}: expected an image, got {len(data)} bytes that OpenCV cannot decode"
            + (f" ({'; '.join(damage)})" if damage else ""),
            hint="mend or remove it",
        )
    if damage or is_cut_short(content):
        what = "; ".join(damage) or "it ends before its data does"
        raise DatasetError(f"{path}: the picture is damaged: {what}", hint="mend or remove it")
    rgb: NDArray[np.uint8] = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
    return rgb


def write_image(path: Path, image: NDArray[np.uint8]) -> None:
    """Write uint8 (H, W, 3) RGB. Raises `DatasetError` if the suffix is unknown or the file cannot be written."""
    cv2 = _load()
    try:
        _, data = cv2.imencode(path.suffix, cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR))
    except cv2.error as error:
        raise DatasetError(f"{path}: expected a suffix like .jpg or .png, got {path.suffix!r}") from error
    try:
        path.write_bytes(data.tobytes())
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}", hint=remedy(error)) from error


def encode_jpeg(image: NDArray[np.uint8], *, quality: int) -> bytes:
    """Return uint8 (H, W, 3) RGB as a JPEG file; `quality` is 1 to 100."""
    cv2 = _load()
    bgr = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return bytes(data.tobytes())


def paste_without_alpha(image: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """Copy the colours of a picture whose pixels take four bytes, uint8 (h, w, 3), to `target`, as large.

    numpy copies single bytes there, twenty times as long.
    """
    height, width, _ = image.shape
    # A view keeps the picture's memory alive, and what stands behind the last colour is its pixel's fourth byte.
    pixels = np.lib.stride_tricks.as_strided(image, (height, width, 4), image.strides, writeable=False)
    _load().cvtColor(pixels, _load().COLOR_RGBA2RGB, dst=target)


def resize(image: NDArray[np.uint8], size: ImageSize) -> NDArray[np.uint8]:
    """Return `image` scaled to `size`, bilinear as the decoders do it; the image itself if it has that size."""
    if image.shape[:2] == (size.height, size.width):
        return image
    cv2 = _load()
    scaled: NDArray[np.uint8] = cv2.resize(image, (size.width, size.height), interpolation=cv2.INTER_LINEAR)
    return scaled


def shrunk(image: NDArray[np.uint8], *, side: int) -> NDArray[np.uint8]:
    """Return the mean colours of `side` x `side` parts of `image`."""
    cells: NDArray[np.uint8] = _load().resize(image, (side, side), interpolation=_load().INTER_AREA)
    return cells


def blacken(image: NDArray[np.uint8], polygons: Sequence[Polygon]) -> None:
    """Make what lies in the polygons black, in place, and one pixel more around it: scaling mixes neighbours.

    Args:
        image: uint8 (H, W, 3), writable; rows may be padded.
        polygons: corners, shares of width and height.
    """
    cv2 = _load()
    height, width = image.shape[:2]
    for polygon in polygons:
        corners = np.floor(np.multiply(polygon, (width, height))).astype(np.int32)
        np.minimum(corners, (width - 1, height - 1), out=corners)
        cv2.fillPoly(image, [corners], (0, 0, 0))
        cv2.polylines(image, [corners], True, (0, 0, 0), 3)


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
    """Above the box, or inside it where the picture ends; shifted to the left where it would run over the side."""
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, max(0.4, min(image.shape[:2]) / 1000)
    thickness = max(1, round(1.5 * scale))
    (width, height), baseline = cv2.getTextSize(text, font, scale, thickness)
    bottom = top if top >= height + baseline else top + height + baseline
    left = max(0, min(left, image.shape[1] - width - 1))
    cv2.rectangle(image, (left, bottom - height - baseline), (left + width, bottom), colour, cv2.FILLED)
    cv2.putText(image, text, (left, bottom - baseline), font, scale, ink_on(colour), thickness, cv2.LINE_AA)


def ink_on(colour: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return black or white, RGB: that of the higher contrast, which is at least 4.58 : 1 on every colour.

    Source: relative luminance and contrast ratio of WCAG 2.1.
    """
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in np.divide(colour, 255)]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return (0, 0, 0) if (luminance + 0.05) ** 2 > 1.05 * 0.05 else (255, 255, 255)


def colour_of(class_id: int) -> tuple[int, int, int]:
    """Return a vivid RGB colour; neighbouring class ids get far-apart hues."""
    red, green, blue = colorsys.hsv_to_rgb((class_id * _GOLDEN_RATIO) % 1.0, 1.0, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


_SOS, _EOI = 0xDA, b"\xff\xd9"
_MAX_MARKERS = 10_000


def is_cut_short(content: bytes) -> bool:
    """Return whether a JPEG has data without an end (EOI). What follows the end does not matter: phones add clips."""
    if not content.startswith(b"\xff\xd8"):
        return False
    with contextlib.suppress(struct.error, IndexError):
        return any(marker == _SOS and _EOI not in content[at:] for marker, at in _jpeg_segments(content))
    return True


def _jpeg_segments(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield each marker in front of the data, and where it stands; the last is that of the data (SOS)."""
    at = 2
    for _ in range(_MAX_MARKERS):
        if content[at] != 0xFF:
            return
        marker = content[at + 1]
        if marker == 0xFF:  # a byte to fill up
            at += 1
            continue
        yield marker, at
        if marker == _SOS:
            return
        at += 2 + struct.unpack_from(">H", content, at + 2)[0]


# What the libraries behind a picture's decoder say of damage. They say it on stderr only, and give a picture anyway:
# libjpeg-turbo paints grey, or goes on with torn blocks, where data is missing or makes no sense; OpenCV does not pass
# its warnings on. So stderr is caught while a file is decoded, and what is not about damage is written there later.
_STDERR = 2
_ONE_AT_A_TIME = threading.Lock()
_DAMAGE = re.compile(r"(Corrupt JPEG data|Premature end of JPEG|Inconsistent progression|libpng error).*")
# A profile that is none, and some bytes too many before the end: the picture is whole.
_HARMLESS = re.compile(r".*bad ICC marker|.*: \d extraneous bytes before marker 0xd9")


@contextlib.contextmanager
def caught_damage() -> Iterator[list[str]]:
    """Catch what is said while one picture is decoded, by one thread at a time; gives what is said of damage, later."""
    damage: list[str] = []
    with _ONE_AT_A_TIME, contextlib.ExitStack() as stack:
        try:
            real = os.dup(_STDERR)
        except OSError:  # closed: nothing can be said there
            yield damage
            return
        stack.callback(os.close, real)
        memory = os.memfd_create("stderr")
        stack.callback(os.close, memory)
        os.dup2(memory, _STDERR)
        try:
            yield damage
        finally:
            os.dup2(real, _STDERR)
            lines = os.pread(memory, os.fstat(memory).st_size, 0).decode(errors="replace").splitlines(keepends=True)
            damage += [line.strip() for line in lines if _DAMAGE.match(line) and not _HARMLESS.match(line)]
            if others := [line for line in lines if not _DAMAGE.match(line)]:
                os.write(real, "".join(others).encode())


_MOST_LOOKED_AT = 100_000
_FOLDERS_TOLD = 4
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")


def list_images(folder: Path) -> list[Path]:
    """Directly in `folder`, by name, without folders and hidden files, which macOS leaves beside images (`._a.jpg`).
    Raises `DatasetError` if there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        found = "found a file" if folder.exists() else "there is no such folder"
        is_yaml = folder.suffix.lower() in (".yaml", ".yml")
        hint = "a data.yaml is for --labels; name the folder of the images" if is_yaml else None
        raise DatasetError(f"{folder}: expected a folder of images, {found}", hint=hint)
    paths = sorted(filter(_is_image, folder.iterdir()))
    if not paths:
        raise DatasetError(
            f"{folder}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none", hint=_other_images(folder)
        )
    return paths


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def _other_images(folder: Path) -> str | None:
    """Return the folders in it that have images (as those of an export), else what kinds of files it has."""
    below = itertools.islice(itertools.chain(folder.glob("*/*"), folder.glob("*/*/*")), _MOST_LOOKED_AT)
    if folders := sorted({str(path.parent) for path in below if _is_image(path)}):
        return f"name the folder of the images: {', '.join(folders[:_FOLDERS_TOLD])}"
    others = sorted({path.suffix for path in folder.glob("*.*") if not path.name.startswith(".")})
    return f"it has {', '.join(others)}: convert or rename what are images" if others else None


def passed_over(folder: Path) -> list[Path]:
    """Return what is directly in `folder`, by name, that `list_images` passes over; hidden files aside."""
    images = set(list_images(folder))
    return sorted(path for path in folder.iterdir() if path not in images and not path.name.startswith("."))
