"""The input that takes the canvases: one float32 (B, 3, H, W), and how large H and W are."""

from __future__ import annotations

from edge.model.families import NotThisFamily
from edge.model.graph import Dim, Graph, TensorInfo
from edge.types import ImageSize

__all__ = ["picture_input", "picture_size"]


def picture_input(graph: Graph) -> TensorInfo:
    """Return the one input.

    Raises:
        NotThisFamily: if there are more, or it is not float32 (B, 3, H, W).
    """
    if len(graph.inputs) != 1:
        raise NotThisFamily(f"expected one input, got {len(graph.inputs)}")
    picture = graph.inputs[0]
    if picture.dtype == "float16":
        raise NotThisFamily(
            f"the input is {picture}, expected float32; export it without half: the engine chooses fp16"
        )
    if picture.dtype != "float32":
        raise NotThisFamily(f"the input is {picture}, expected float32")
    if len(picture.shape) != 4:
        raise NotThisFamily(f"the input is {picture}, expected (B, 3, H, W)")
    if picture.shape[3] == 3 and picture.shape[1] != 3:
        raise NotThisFamily(f"the input is {picture}, channels last, as TensorFlow has it; expected (B, 3, H, W)")
    if isinstance(picture.shape[1], int) and picture.shape[1] != 3:
        raise NotThisFamily(f"the input {picture} has {picture.shape[1]} channels, expected 3")
    return picture


def picture_size(picture: TensorInfo, *, stated: ImageSize | None, exported: ImageSize | None) -> ImageSize:
    """Return the size of the canvas: what the graph fixes, else what is stated, else what the exporter noted.

    Raises:
        NotThisFamily: if the graph fixes another size than stated, or nobody says how large it is.
    """
    height, width = picture.shape[2:]
    chosen = stated or exported
    if isinstance(height, int) and isinstance(width, int):
        fixed = ImageSize(width=width, height=height)
        if stated not in (None, fixed):
            raise NotThisFamily(f"the input {picture} is fixed to {fixed}, the stated input size is {stated}")
        return fixed
    if chosen is None:
        raise NotThisFamily(
            f"the input {picture} takes any size and the file does not note one; state the input size, e.g. 640x640"
        )
    if not (_agrees(height, chosen.height) and _agrees(width, chosen.width)):
        raise NotThisFamily(f"the input {picture} does not take {chosen}")
    return chosen


def _agrees(dim: Dim, size: int) -> bool:
    return not isinstance(dim, int) or dim == size
