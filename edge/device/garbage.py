"""What nobody needs any more: the only place where anything is deleted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from edge.device.device import Device
from edge.device.disk import typed

__all__ = ["Collected", "collect"]

_MAX_AGE_S = 7 * 86400.0
_QUOTA_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed, by name."""

    releases: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    partials: tuple[str, ...] = ()
    temporaries: tuple[str, ...] = ()


@typed
def collect(
    device: Device,
    *,
    now_s: float,
    keep: Collection[str] = (),
    max_age_s: float = _MAX_AGE_S,
    quota_bytes: int = _QUOTA_BYTES,
) -> Collected:
    """Remove what is not needed; keeps current, target, fallback and the releases in `keep`.

    Call with the push lock held, and with no blob on its way to a release that is not staged yet.
    A release goes before its engine and its blobs, so that a power cut leaves whole releases and some garbage.
    `now_s` is seconds since 1970 by this machine's clock; partial blobs that are older than `max_age_s` go, and the
    oldest ones as long as all together are larger than `quota_bytes`.
    """
    with device.locked():
        temporaries = _temporaries(device)
        releases = _releases(device, keep)
        engines = _engines(device)
        blobs = _blobs(device)
        partials = _partials(device, now_s, max_age_s, quota_bytes)
    return Collected(releases=releases, engines=engines, blobs=blobs, partials=partials, temporaries=temporaries)


def _releases(device: Device, keep: Collection[str]) -> tuple[str, ...]:
    state = device.state()
    needed = {device.releases.current(), state.target, state.fallback, *keep}
    unneeded = [name for name in device.releases.names() if name not in needed]
    for name in unneeded:
        device.durable.remove_tree(device.layout.release(name))
    return tuple(unneeded)


def _engines(device: Device) -> tuple[str, ...]:
    needed = {device.releases.engine_key(name) for name in device.releases.names()}
    unneeded = [key for key in device.engines.names() if key not in needed]
    for key in unneeded:
        device.durable.remove_tree(device.layout.engine(key))
    return tuple(unneeded)


def _blobs(device: Device) -> tuple[str, ...]:
    needed = {sha256 for name in device.releases.names() for sha256 in device.releases.blobs(name).values()}
    files, removed = device.durable.files, []
    for folder in _paths(device, device.layout.store):
        for blob in _paths(device, folder):
            if blob.name not in needed:
                files.remove(blob)
                removed.append(blob.name)
    return tuple(removed)


def _partials(device: Device, now_s: float, max_age_s: float, quota_bytes: int) -> tuple[str, ...]:
    files = device.durable.files
    found = sorted((files.modified_s(path), path) for path in _paths(device, device.layout.incoming))
    total = sum(files.length(path) or 0 for _, path in found)
    removed = []
    for modified_s, path in found:
        if now_s - modified_s > max_age_s or total > quota_bytes:
            total -= files.length(path) or 0
            files.remove(path)
            removed.append(path.name)
    return tuple(removed)


def _temporaries(device: Device) -> tuple[str, ...]:
    layout, files = device.layout, device.durable.files
    removed = []
    for folder in (layout.var, layout.releases, layout.engines, layout.incoming):
        for path in _paths(device, folder):
            if path.name.startswith(".") and path.name.endswith(".tmp"):
                if files.link_target(path) is None and files.is_dir(path):
                    device.durable.remove_tree(path)
                else:
                    files.remove(path)
                removed.append(path.name)
    return tuple(removed)


def _paths(device: Device, folder: Path) -> list[Path]:
    files = device.durable.files
    return [folder / name for name in files.names(folder)] if files.is_dir(folder) else []
