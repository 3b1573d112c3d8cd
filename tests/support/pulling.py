"""A device that is a folder, and pulls."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from edge.delivery.event import Event
from edge.delivery.options import DeliveryOptions
from edge.registry.client import RegistryClient
from edge.registry.login import Login
from edge.registry.reference import Reference
from edge.runtime.pull.pull import Pulled, pull
from edge.runtime.pull.record import PullRecord
from tests.support.device_root import DeviceRoot


@dataclass
class PullingDevice:
    """Pulls from `reference` to `root`; remembers what the unit would."""

    root: DeviceRoot
    reference: Reference
    ca: Path
    login: Login | None = None
    record: PullRecord | None = None
    within_s: float = 60.0
    events: list[Event] = field(default_factory=list)
    remembered: list[PullRecord] = field(default_factory=list)

    def pull(self, *, is_forced: bool = False, stop: threading.Event | None = None, **options: object) -> Pulled:
        is_basic = self.record is not None and self.record.is_basic
        client = RegistryClient(self.reference, login=self.login, ca=self.ca, within_s=self.within_s, is_basic=is_basic)
        try:
            pulled = pull(
                client,
                self.root.connect,
                last=self.record,
                options=DeliveryOptions(who="pull", **options),
                on_event=self.events.append,
                stop=stop or threading.Event(),
                remember=self.remembered.append,
                is_forced=is_forced,
            )
        finally:
            client.close()
        self.record = pulled.record
        return pulled

    @property
    def current(self) -> str | None:
        return self.root.device.releases.current()
