"""What was seen of other images before, merged with what was seen now."""

from __future__ import annotations

from collections.abc import Sequence

from edge.calibrate.observations import Observations, merge_observations
from edge.errors import CalibrationError
from edge.quantize.make_table.images import ImageSplit
from edge.types import ModelSpec

__all__ = ["merged", "require_unseen"]


def merged(parts: Sequence[Observations], spec: ModelSpec) -> Observations:
    """Return all observations together.

    Raises:
        CalibrationError: if there are none, or they are of another model than `spec`, or share images.
    """
    if not parts:
        raise CalibrationError("nothing to calibrate with", hint="give a folder of images, or saved histograms")
    together = parts[0]
    for part in parts[1:]:
        together = merge_observations(together, part)
    for what, expected in (("model_sha256", spec.sha256), ("preprocess_sha256", spec.preprocess.sha256)):
        found = getattr(together, what)
        if found != expected:
            raise CalibrationError(
                f"the histograms are of {what} {found[:12]}, {spec.name} is {expected[:12]}",
                hint="observe the images again with this very model",
            )
    return together


def require_unseen(split: ImageSplit, earlier: Sequence[Observations]) -> None:
    """Refuse to prove ranges on images that they come from.

    Raises:
        CalibrationError: if one that is held out was seen.
    """
    seen = {digest for part in earlier for digest in part.image_sha256s}
    again = [image.path.name for image in split.held_out if image.sha256 in seen]
    if again:
        raise CalibrationError(
            f"{len(again)} of the images that are to prove the ranges were seen by the histograms, the first is "
            f"{again[0]}",
            hint="give --images that are not in the --histograms",
        )
