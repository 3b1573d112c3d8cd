"""A device that is a folder, and pulls; and what puts a release where it does."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edge.bundle.folder import Bundle
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.link import Link
from edge.deploy.publish import Published, publish
from edge.registry.client import RegistryClient
from edge.registry.login import Login
from edge.registry.reference import Reference
from edge.runtime.pull.pull import Pulled, pull
from edge.runtime.pull.record import PullRecord
from edge.transport.channel import ChildChannel
from edge.wire.peer import Nothing
from edge.wire.verbs import STATUS, StatusAnswer
from tests.support.device_root import DeviceRoot


def put(registry, bundle: Bundle, tag: str | None = "stable-all") -> Published:
    return publish(bundle, registry.reference(tag), login=registry.login, ca=registry.certificates.ca)


def pulling_from(registry, root: DeviceRoot) -> PullingDevice:
    return PullingDevice(root, registry.reference("stable-all"), registry.certificates.ca, registry.login)


@dataclass
class PullingDevice:
    """Pulls from `reference` to `root`; remembers what the unit would."""

    root: DeviceRoot
    reference: Reference
    ca: Path
    login: Login | None = None
    record: PullRecord | None = None
    within_s: float = 60.0

    def pull(self, *, is_forced: bool = False, stop: threading.Event | None = None, **options: object) -> Pulled:
        is_basic = self.record is not None and self.record.is_basic
        client = RegistryClient(self.reference, login=self.login, ca=self.ca, within_s=self.within_s, is_basic=is_basic)
        try:
            pulled = pull(
                client,
                lambda: ChildChannel([*self.root.command, "for-pull"]),
                last=self.record,
                options=DeliveryOptions(who="pull", **options),
                on_event=lambda event: None,
                stop=stop or threading.Event(),
                is_forced=is_forced,
                has_root=self.root.layout.trust_root.exists(),
            )
        finally:
            client.close()
        self.record = pulled.record
        return pulled

    def status(self) -> StatusAnswer:
        """Return what it says to a person."""
        with closing(Link(self.root.connect(), threading.Event())) as link:
            return link.ask(STATUS, Nothing())

    @property
    def current(self) -> str | None:
        return self.root.device.releases.current()
