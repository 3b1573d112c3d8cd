"""GStreamer as Debian and Ubuntu, and with them JetPack, package it; and whether it is there, without loading it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["APT", "is_installed"]

APT = (
    "apt-get install python3-gi python3-gst-1.0 gir1.2-gstreamer-1.0 gir1.2-gst-plugins-base-1.0 "
    "gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-libav"
)
_LIBRARIES = (Path("/usr/lib"), Path("/usr/local/lib"))


def is_installed() -> bool:
    """Whether this Python finds the bindings, and they find the library."""
    names = ("girepository-1.0/Gst-1.0.typelib", "*/girepository-1.0/Gst-1.0.typelib")
    has_library = any(True for folder in _LIBRARIES for name in names for _ in folder.glob(name))
    return has_library and importlib.util.find_spec("gi") is not None
