"""One device: its paths, its durable writes, and what lies there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from edge.device.audit import Audit
from edge.device.durable import Durable
from edge.device.engines import Engines
from edge.device.layout import Layout
from edge.device.lock import state_lock
from edge.device.releases import Releases
from edge.device.software import InstalledSoftware
from edge.device.state import State, read_state, write_state
from edge.device.store import Store

__all__ = ["Device"]


@dataclass(frozen=True, slots=True)
class Device:
    """The device whose root is `layout.root`; `hold` takes the state lock."""

    layout: Layout = field(default_factory=Layout)
    durable: Durable = field(default_factory=Durable)
    hold: Callable[[Layout], AbstractContextManager[None]] = state_lock

    @property
    def store(self) -> Store:
        """The blobs."""
        return Store(self.layout, self.durable)

    @property
    def releases(self) -> Releases:
        """The releases and the switch."""
        return Releases(self.layout, self.durable)

    @property
    def engines(self) -> Engines:
        """The engines built here."""
        return Engines(self.layout, self.durable)

    @property
    def software(self) -> InstalledSoftware:
        """The software that releases brought."""
        return InstalledSoftware(self.layout, self.durable)

    @property
    def audit(self) -> Audit:
        """The audit log."""
        return Audit(self.layout, self.durable, hold=self.hold)

    def standing(self) -> tuple[str | None, bytes | None, bytes | None]:
        """Return what decides what serves: the switch, the state and the counters, to be compared with a later one."""
        files, layout = self.durable.files, self.layout
        with contextlib.suppress(OSError):
            small = [files.read(path) if files.length(path) else None for path in (layout.state, layout.counters)]
            return files.link_target(layout.current), small[0], small[1]
        return None, None, None

    def locked(self) -> AbstractContextManager[None]:
        """Hold the state lock within the block."""
        return self.hold(self.layout)

    def state(self) -> State:
        """Return the state; DeployError `device.state` if it is damaged."""
        return read_state(self.layout, self.durable.files)

    def write_state(self, state: State) -> None:
        """Make `state` the state; call only with the state lock held."""
        write_state(self.layout, self.durable, state)

    def point(self, release: str | None) -> None:
        """Move the switch; None: nothing serves. Call only with the state lock held.

        The record that was read, and the release with all that it stands on, are on the disk before: whoever wrote
        them may have been killed before the sync.
        """
        self.durable.settle(self.layout.state)
        if release is None:
            self.durable.remove(self.layout.current)
        else:
            self.releases.settle(release)
            self.durable.link(self.layout.current, f"releases/{release}")
