"""Which of the compiled kernels a GPU gets: the cubin for it, or PTX where it is newer than all cubins."""

from __future__ import annotations

from pathlib import Path

from edge.errors import EngineError

__all__ = ["FOLDER", "INDEX", "SOURCE", "TARGETS", "image_name", "read_kernel_image"]

SOURCE = Path(__file__).with_name("kernels.cu")
FOLDER = Path(__file__).with_name("compiled")
INDEX = FOLDER / "index.json"

_CUBINS = ((7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0))
_PTX = (8, 0)

TARGETS = {
    **{f"sm_{major}{minor}": f"sm_{major}{minor}.cubin" for major, minor in _CUBINS},
    "compute_{}{}".format(*_PTX): "compute_{}{}.ptx".format(*_PTX),
}
"""File in `FOLDER` by the architecture that it is compiled for."""


def image_name(compute_capability: tuple[int, int]) -> str:
    """Return the file for a GPU.

    A cubin runs on its own architecture: that it runs on later ones of the same major number, too, does not hold
    between a discrete GPU and a Jetson's. Raises `EngineError` if there is none.
    """
    major, minor = compute_capability
    if compute_capability in _CUBINS:
        return TARGETS[f"sm_{major}{minor}"]
    if compute_capability >= _PTX:
        return TARGETS["compute_{}{}".format(*_PTX)]
    shipped = ", ".join(f"{one}.{other}" for one, other in _CUBINS)
    raise EngineError(
        f"there are no kernels for a GPU of compute capability {major}.{minor}; there are for {shipped} and newer",
        hint="use engine.kind: auto",
    )


def read_kernel_image(compute_capability: tuple[int, int]) -> bytes:
    """Return the kernels for a GPU, as the driver takes them.

    Raises `EngineError` if there are none, or the installation lacks the file.
    """
    path = FOLDER / image_name(compute_capability)
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"the kernels are not installed: {error}", hint="install edge-deploy again") from error
