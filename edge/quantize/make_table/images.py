"""The images of a calibration: known by their content, so that names and order do not matter, and none counts twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.errors import DatasetError
from edge.media.images import read_image
from edge.media.stills import StillSource, list_images
from edge.quantize.stills import image_digest
from edge.types import Preprocess, StreamId

__all__ = ["CalibrationImage", "ImageSplit", "find_images", "require_decodable", "split_images", "still_source"]

_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationImage:
    """An image file; `sha256` is of its bytes, lower-case hex."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSplit:
    """Images whose activations are looked at, and others that what was found is tried and proven on."""

    observed: tuple[CalibrationImage, ...]
    held_out: tuple[CalibrationImage, ...]


def find_images(folder: Path, *, is_decodable_only: bool = False) -> tuple[tuple[CalibrationImage, ...], list[Path]]:
    """Return the images directly in `folder` by their digest, and those that were left out.

    Args:
        folder: of image files.
        is_decodable_only: leave out those that cannot be decoded, instead of meeting them later.

    Raises:
        DatasetError: if there is no such folder or no image in it, one of them cannot be read, or two are the same.
    """
    paths = list_images(folder)
    left_out = [path for path in paths if _undecodable(path) is not None] if is_decodable_only else []
    by_digest: dict[str, Path] = {}
    twice = []
    for path in paths:
        if path in left_out:
            continue
        first = by_digest.setdefault(image_digest(path), path)
        if first is not path:
            twice.append(f"{path.name} = {first.name}")
    if twice:
        raise DatasetError(
            f"{folder}: {len(twice)} of {len(paths)} images are copies of another one, and would count twice: "
            f"{_listed(twice)}",
            hint="remove the copies",
        )
    if not by_digest:
        raise DatasetError(f"{folder}: none of the {len(paths)} images can be decoded")
    return tuple(CalibrationImage(path=by_digest[digest], sha256=digest) for digest in sorted(by_digest)), left_out


def require_decodable(images: Sequence[CalibrationImage]) -> None:
    """Decode all images, and name those that cannot be.

    Raises:
        DatasetError: if there are any.
    """
    broken = {image.path: problem for image in images if (problem := _undecodable(image.path)) is not None}
    if broken:
        first = next(iter(broken.values()))
        raise DatasetError(
            f"{images[0].path.parent}: {len(broken)} of {len(images)} images cannot be decoded: "
            f"{_listed([path.name for path in broken])}; the first: {first.problem}",
            hint=f"{first.hint or 'mend or remove them'}, or leave them out with --skip-undecodable",
        )


def split_images(images: Sequence[CalibrationImage], *, held_out: int) -> ImageSplit:
    """Return `held_out` images to try on, spread evenly over the digests, and the others to look at."""
    step = len(images) / held_out if held_out else 0.0
    chosen = {int(step * number) for number in range(held_out)}
    return ImageSplit(
        observed=tuple(image for index, image in enumerate(images) if index not in chosen),
        held_out=tuple(image for index, image in enumerate(images) if index in chosen),
    )


def still_source(images: Sequence[CalibrationImage], preprocess: Preprocess) -> StillSource:
    """Return an opened source of `images`, in their order."""
    source = StillSource(StreamId("images"), [image.path for image in images], preprocess=preprocess)
    source.open()
    return source


def _undecodable(path: Path) -> DatasetError | None:
    """Return what is wrong with an image file; None where it can be decoded."""
    try:
        read_image(path)
    except DatasetError as error:
        return error
    return None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
