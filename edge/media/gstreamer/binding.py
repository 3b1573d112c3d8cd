"""The only importer of `gi`: GStreamer, loaded when first used, and the small helpers that every user of it needs.

The launch texts under `pipelines/launch/` are sections of GStreamer launch descriptions, read and parsed here. A
comment is a whole line that begins with `#`, a section begins with its name in brackets, and everything up to the next
one is a single launch description, on as many lines as it likes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from edge.errors import ConfigError, MissingDependencyError

__all__ = [
    "APT",
    "JETSON_HINT",
    "caps_fields",
    "has_factories",
    "is_available",
    "is_idle",
    "is_installed",
    "joined",
    "load",
    "load_errors",
    "message_fields",
    "on_pad",
    "parse_bin",
    "parse_decoder",
    "read_sections",
    "set_if_present",
    "shorten_tracks",
    "weakly",
]

APT = (
    "apt-get install python3-gi python3-gst-1.0 gir1.2-gstreamer-1.0 gir1.2-gst-plugins-base-1.0 "
    "gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-libav"
)
"""As Debian and Ubuntu, and with them JetPack, package it."""

_LIBRARIES = (Path("/usr/lib"), Path("/usr/local/lib"))
_HINT = f"{APT}, and create the environment with --system-site-packages; or read with PyAV (decoder: pyav)"
JETSON_HINT = (
    "these are NVIDIA's own plugins, which no distribution packages: they come with JetPack, on a Jetson "
    "(nvidia-l4t-gstreamer); elsewhere use decoder: software"
)
_OLDEST = (1, 20)


@dataclass(frozen=True, slots=True)
class GStreamer:
    """The namespaces that we use, initialised."""

    glib: Any
    gst: Any
    sdp: Any
    video: Any


_loading = threading.Lock()


def is_installed() -> bool:
    """Whether this Python finds the bindings, and they find the library; nothing is loaded."""
    names = ("girepository-1.0/Gst-1.0.typelib", "*/girepository-1.0/Gst-1.0.typelib")
    has_library = any(True for folder in _LIBRARIES for name in names for _ in folder.glob(name))
    return has_library and importlib.util.find_spec("gi") is not None


def load() -> GStreamer:
    """Thread-safe. Raises `MissingDependencyError` if GStreamer 1.20 or its Python binding is not installed."""
    # A cache alone lets first calls run side by side, and neither gi's lazy modules nor Gst.init stand that.
    with _loading:
        return _load()


@lru_cache(maxsize=1)
def _load() -> GStreamer:
    # GStreamer brings libunwind, whose _Unwind_Resume would stand before libgcc's for every library that is loaded
    # later: a C++ exception that libgcc has begun then ends the process. OpenVINO catches some while it compiles.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", mode=ctypes.RTLD_GLOBAL)
    # Cameras are reached directly, and souphttpsrc reads http_proxy itself. GIO would ask libproxy, which throws C++
    # exceptions as well: on Ubuntu 22.04 (JetPack 6) these ended the process.
    os.environ.setdefault("GIO_USE_PROXY_RESOLVER", "dummy")
    try:
        import gi

        for namespace in ("Gst", "GstSdp", "GstVideo"):
            gi.require_version(namespace, "1.0")
        with warnings.catch_warnings():
            # PyGObject imports in ways, and makes names of its own, that Python and it call outdated.
            warnings.simplefilter("ignore")
            from gi.repository import GLib, Gst, GstSdp, GstVideo
    except (ImportError, ValueError) as error:
        raise MissingDependencyError(f"GStreamer is not importable: {error}", hint=_HINT) from error
    Gst.init(None)
    version = Gst.version()[:2]
    if version < _OLDEST:
        raise MissingDependencyError(f"expected GStreamer 1.20 or newer, got {version[0]}.{version[1]}", hint=_HINT)
    return GStreamer(GLib, Gst, GstSdp, GstVideo)


def is_available() -> bool:
    try:
        load()
    except MissingDependencyError:
        return False
    return True


def has_factories(names: Iterable[str]) -> bool:
    return all(load().gst.ElementFactory.find(name) is not None for name in names)


def load_errors() -> dict[str, str]:
    """Return why plugins that are installed cannot be loaded, by the names of their files.

    GStreamer passes over such a plugin without a word, as over one that is not there.

    Raises `MissingDependencyError` if GStreamer is not here.
    """
    modules = load()
    gst = modules.gst
    found: dict[str, str] = {}
    for plugin in gst.Registry.get().get_plugin_list():
        if plugin.flags & gst.PluginFlags.BLACKLISTED and plugin.get_filename():
            try:
                gst.Plugin.load_file(plugin.get_filename())
            except modules.glib.Error as error:
                found[os.path.basename(plugin.get_filename())] = error.message
    return found


def parse_bin(description: str, *, has_pads: bool) -> Any:
    """Return a `Gst.Bin` of a launch description.

    Args:
        description: fixed text, e.g. a section of a launch text.
        has_pads: give the bin a ghost pad for each pad that is left open. Not for elements whose pads appear later:
            their first pad would be caught by the parser's own delayed link, and parsebin fails over that.

    Raises `MissingDependencyError` if an element is not installed; `ConfigError` if the description cannot be parsed.
    """
    modules = load()
    gst = modules.gst
    try:
        return gst.parse_bin_from_description(description, has_pads)
    except modules.glib.Error as error:
        if error.matches(gst.ParseError.quark(), gst.ParseError.NO_SUCH_ELEMENT):
            is_jetson = '"nv' in error.message
            raise MissingDependencyError(
                f"GStreamer: {error.message}", hint=JETSON_HINT if is_jetson else _HINT
            ) from error
        raise ConfigError(f"launch description {description!r} cannot be used: {error.message}") from error


def parse_decoder(description: str) -> Any:
    """Return a `Gst.Bin` with pads `sink` and `src`; errors as `parse_bin`.

    `src` is that of its element `converted`, or of `decoder` where there is no such.
    """
    gst = load().gst
    made = parse_bin(description, has_pads=False)
    for name, pad in (
        ("sink", made.find_unlinked_pad(gst.PadDirection.SINK)),
        ("src", (made.get_by_name("converted") or made.get_by_name("decoder")).get_static_pad("src")),
    ):
        made.add_pad(gst.GhostPad.new(name, pad))
    return made


def caps_fields(caps: Any) -> Any:
    """Return the first `Gst.Structure` of caps, to be read."""
    return _owned(caps.get_structure(0))


def message_fields(message: Any) -> Any:
    """Return the `Gst.Structure` of a message or an event, to be read."""
    return _owned(message.get_structure())


def _owned(structure: Any) -> Any:
    """Return a structure that may be kept: from 1.26 on the binding only lends it, as a context."""
    if not hasattr(structure, "__enter__"):
        return structure
    with structure as fields:
        return fields.copy()


def shorten_tracks(source: Any) -> None:
    """Have an `rtspsrc` take whole addresses of tracks as `rtsp:`, by which alone GStreamer 1.20 knows them."""

    def shorten(_source: Any, session: Any) -> None:
        for media in map(session.get_media, range(session.medias_len())):
            for index in range(media.attributes_len()):
                attribute = media.get_attribute(index)
                if attribute.key == "control" and attribute.value.startswith("rtsps:"):
                    plain = load().sdp.SDPAttribute()
                    plain.set("control", "rtsp:" + attribute.value.removeprefix("rtsps:"))
                    media.replace_attribute(index, plain)

    source.connect("on-sdp", shorten)


def set_if_present(element: Any, **values: Any) -> None:
    """Set the properties that this build of the element has; `_` in a name stands for `-`.

    Plugins of other boards and releases lack some: in a launch text an unknown property would be an error.
    """
    for key, value in values.items():
        name = key.replace("_", "-")
        if element is not None and element.find_property(name) is not None:
            element.set_property(name, value)


def weakly(method: Callable[..., Any], *, otherwise: Any = None) -> Callable[..., Any]:
    """Return a callback that does not keep the object of `method` alive; without that it returns `otherwise`.

    A pipeline that held those who hold it would never be freed.
    """
    held = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        alive = held()
        return otherwise if alive is None else alive(*arguments)

    return call


def on_pad(pad: Any, kinds: Any, method: Callable[..., Any]) -> int:
    """Have a method called, weakly, for what passes a pad; return the id of the probe."""
    probe: int = pad.add_probe(kinds, weakly(method, otherwise=load().gst.PadProbeReturn.OK))
    return probe


def is_idle(made: Any) -> bool:
    """Return whether no streaming thread runs on any pad inside a bin; a bin that is just being changed is busy.

    parsebin keeps errors to itself that a demuxer posts while it is being connected. A file without an index then
    leaves neither an error nor an end of stream: only threads that have stopped.
    """
    started = load().gst.TaskState.STARTED
    iterator = made.iterate_recurse()
    while (element := _next(iterator)) is not None:
        if any(pad.get_task_state() == started for pad in element.pads):
            return False
    # A walk that was cut short by a change says RESYNC again and again.
    return bool(iterator.next()[0] == load().gst.IteratorResult.DONE)


def _next(iterator: Any) -> Any:
    result, item = iterator.next()
    return item if result == load().gst.IteratorResult.OK else None


def joined(*descriptions: str) -> str:
    """Return one launch description in which each of `descriptions` is linked to the next; empty ones are left out."""
    return " ! ".join(description for description in descriptions if description)


@cache
def read_sections(name: str) -> dict[str, str]:
    """Return the sections of a launch text, e.g. `software`, each as one launch description on one line."""
    text = (resources.files("edge.pipelines") / "launch" / f"{name}.launch").read_text("utf-8")
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            lines = sections[line[1:-1]] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return {name: " ".join(lines) for name, lines in sections.items()}
