"""One device: its paths, its durable writes, what lies there, and the only place where anything of it is deleted.

Its audit log has one JSON object per line (who, from where, what, result), of bounded length.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from edge.device.durable import Durable, typed
from edge.device.engines import Engines
from edge.device.layout import Layout
from edge.device.lock import state_lock
from edge.device.releases import Releases, Store
from edge.device.software import InstalledSoftware
from edge.device.state import State, read_state, write_state
from edge.reports import Collected

__all__ = ["Audit", "Device", "Kind", "collect", "reclaimable_bytes"]

_MAX_BYTES = 1024 * 1024
_MAX_TEXT = 500


class Kind(str, enum.Enum):
    """Kind of a line; the value names its file.

    A log for each, so that requests which are refused or change nothing, however often, do not push out what was done.
    """

    CHANGE = "audit.jsonl"  # of what serves, of the state or of the counters
    REQUEST = "audit-requests.jsonl"
    REFUSED = "audit-refused.jsonl"


class Audit:
    """The audit log, that of requests that changed nothing, that of refusals, and one predecessor of each (`.1`).

    From `max_bytes` on a new file is begun, by one process alone: `hold` takes the state lock.
    """

    def __init__(
        self,
        layout: Layout,
        durable: Durable,
        *,
        max_bytes: int = _MAX_BYTES,
        hold: Callable[[Layout], AbstractContextManager[None]] = state_lock,
    ) -> None:
        self._layout = layout
        self._folder = layout.audit.parent
        self._durable = durable
        self._max_bytes = max_bytes
        self._hold = hold

    @typed
    def write(
        self,
        *,
        at: str,
        who: str,
        origin: str,
        what: str,
        result: str,
        release: str | None = None,
        kind: Kind = Kind.CHANGE,
        times: int = 1,
    ) -> None:
        """Add a line; it is on the disk when this returns. Texts are cut at 500 characters.

        `times`: so often, the last time `at`. Call without the state lock held.
        """
        path = self._folder / kind.value
        if self._is_full(path):
            with self._hold(self._layout):
                if self._is_full(path):
                    self._durable.files.rename(path, path.with_name(f"{path.name}.1"))
                    self._durable.files.sync_dir(path.parent)
        values: dict[str, object] = {"at": at, "who": who, "from": origin, "what": what}
        values |= {"release": release, "result": result} | ({"times": times} if times > 1 else {})
        short = {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in values.items()}
        self._durable.append_line(path, json.dumps(short).encode())

    def _is_full(self, path: Path) -> bool:
        return (self._durable.files.length(path) or 0) >= self._max_bytes


_MAX_AGE_S = 7 * 86400.0
_QUOTA_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Device:
    """The device whose root is `layout.root`; `hold` takes the state lock; `is_for_pull`: a pull asks for it."""

    layout: Layout = field(default_factory=Layout)
    durable: Durable = field(default_factory=Durable)
    hold: Callable[[Layout], AbstractContextManager[None]] = state_lock
    is_for_pull: bool = False

    @property
    def store(self) -> Store:
        return Store(self.layout, self.durable, is_fetched=self.is_for_pull)

    @property
    def releases(self) -> Releases:
        return Releases(self.layout, self.durable)

    @property
    def engines(self) -> Engines:
        return Engines(self.layout, self.durable)

    @property
    def software(self) -> InstalledSoftware:
        return InstalledSoftware(self.layout, self.durable)

    @property
    def audit(self) -> Audit:
        return Audit(self.layout, self.durable, hold=self.hold)

    def standing(self) -> tuple[str | None, bytes | None, bytes | None]:
        """Return what decides what serves: the switch, the state and the counters, to be compared with a later one."""
        files, layout = self.durable.files, self.layout
        with contextlib.suppress(OSError):
            small = [files.read(path) if files.length(path) else None for path in (layout.state, layout.counters)]
            return files.link_target(layout.current), small[0], small[1]
        return None, None, None

    def locked(self) -> AbstractContextManager[None]:
        return self.hold(self.layout)

    def state(self) -> State:
        """DeployError `device.state` if it is damaged."""
        return read_state(self.layout, self.durable.files)

    def write_state(self, state: State) -> None:
        """Call only with the state lock held."""
        write_state(self.layout, self.durable, state)

    def point(self, release: str | None) -> None:
        """Move the switch (None: nothing serves), with the state lock held.

        The record that was read, and the release with all that it stands on, are synced before: their writer may have
        been killed before its sync.
        """
        self.durable.settle(self.layout.state)
        if release is None:
            self.durable.remove(self.layout.current)
        else:
            self.releases.settle(release)
            self.durable.link(self.layout.current, f"releases/{release}")


@typed
def collect(device: Device, *, now_s: float, keep: Collection[str] = ()) -> Collected:
    """Remove what is not needed; keeps current, target, fallback and the releases in `keep`.

    Call with the push lock held, and with no blob on its way to a release that is not staged yet; a pull without that
    lock fetches missing blobs anew. A release goes before its engine and its blobs, so that a power cut leaves whole
    releases and some garbage. `now_s` is seconds since 1970 by this machine's clock; partial blobs of more than a
    week go, and the oldest ones as long as all together are larger than 2 GiB.
    """
    with device.locked():
        temporaries = _temporaries(device)
        releases = _releases(device, keep)
        engines = _engines(device)
        blobs = _blobs(device)
        partials = _partials(device, now_s)
    return Collected(releases=releases, engines=engines, blobs=blobs, partials=partials, temporaries=temporaries)


@typed
def reclaimable_bytes(device: Device, *, keep: Collection[str] = ()) -> int:
    """Return how many bytes of engines and blobs `collect` would remove; changes nothing and needs no lock."""
    releases = [name for name in device.releases.names() if name in _needed(device, keep)]
    engines = (_paths(device, device.layout.engine(key)) for key in _unneeded_engines(device, releases))
    unneeded = [*itertools.chain.from_iterable(engines), *_unneeded_blobs(device, releases)]
    return sum(device.durable.files.length(path) or 0 for path in unneeded)


def _needed(device: Device, keep: Collection[str]) -> set[str | None]:
    state = device.state()
    return {device.releases.current(), state.target, state.fallback, *keep}


def _releases(device: Device, keep: Collection[str]) -> tuple[str, ...]:
    needed = _needed(device, keep)
    unneeded = [name for name in device.releases.names() if name not in needed]
    for name in unneeded:
        device.durable.remove_tree(device.layout.release(name))
    return tuple(unneeded)


def _engines(device: Device) -> tuple[str, ...]:
    unneeded = _unneeded_engines(device, device.releases.names())
    for key in unneeded:
        device.durable.remove_tree(device.layout.engine(key))
    return tuple(unneeded)


def _unneeded_engines(device: Device, releases: Collection[str]) -> list[str]:
    needed = {device.releases.engine_key(name) for name in releases}
    return [key for key in device.engines.names() if key not in needed]


def _blobs(device: Device) -> tuple[str, ...]:
    unneeded = list(_unneeded_blobs(device, device.releases.names()))
    for blob in unneeded:
        device.durable.files.remove(blob)
    return tuple(blob.name for blob in unneeded)


def _unneeded_blobs(device: Device, releases: Collection[str]) -> Iterator[Path]:
    needed = {sha256 for name in releases for sha256 in device.releases.blobs(name).values()}
    for folder in _paths(device, device.layout.store):
        yield from (blob for blob in _paths(device, folder) if blob.name not in needed)


def _partials(device: Device, now_s: float) -> tuple[str, ...]:
    files = device.durable.files
    found = sorted((files.modified_s(path), path) for path in _paths(device, device.layout.incoming))
    total = sum(files.length(path) or 0 for _, path in found)
    removed = []
    for modified_s, path in found:
        if now_s - modified_s > _MAX_AGE_S or total > _QUOTA_BYTES:
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
