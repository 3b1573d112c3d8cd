"""Where a path of a release belongs: to which device, and to which release. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

from edge.device.layout import Layout
from edge.device.releases import check_release
from edge.errors import DeployError

__all__ = ["locate_release"]


def locate_release(folder: Path) -> tuple[Layout, str] | None:
    """Return the device and the release that `.../current` or `.../releases/NAME` stands for; None: for none.

    The device is told by the path alone: whoever may move `current` may choose among the releases of this device, and
    lead nobody to another folder, where another list of signers lies.
    """
    path = Path(os.path.abspath(folder))
    above = path.parents
    try:
        if path.name == "current" and len(above) > 3:
            layout, name = Layout(above[3]), os.path.basename(os.readlink(path))
            return (layout, check_release(name)) if layout.current == path else None
        if len(above) > 4:
            layout = Layout(above[4])
            return (layout, check_release(path.name)) if layout.releases == above[0] else None
    except (OSError, DeployError):
        pass
    return None
