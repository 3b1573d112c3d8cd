"""The wheels of a fleet: those of one kind of device are gathered and proven once."""

from __future__ import annotations

import threading
from pathlib import Path

from edge.deploy.provision.facts import ProvisionFacts
from edge.deploy.provision.wheels import WheelSet, gather_wheels, read_wheels

__all__ = ["Gatherer"]


class Gatherer:
    """Remembers what was gathered, for as long as the command runs; may be asked by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[tuple[object, ...], WheelSet] = {}

    def wheels(self, facts: ProvisionFacts, *, folder: Path | None, extra: str | None) -> WheelSet:
        """Return the wheels for a device, from a folder or as `gather_wheels`.

        Raises:
            DeployError: as `read_wheels` and `gather_wheels`.
        """
        key = (facts.architecture, facts.python, facts.glibc, folder, extra)
        with self._lock:
            if key not in self._sets:
                made = gather_wheels(facts, extra=extra) if folder is None else read_wheels(folder, facts, extra=extra)
                self._sets[key] = made
            return self._sets[key]
