"""A device that is a folder, and pulls; and what puts a release where it does and states what rings run."""

from __future__ import annotations

import base64
import threading
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.folder import Bundle
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.link import Link
from edge.deploy.publish import Published, RegistryWriter, publish
from edge.deploy.rings.desk import PublishedRelease, RingDesk
from edge.deploy.rings.promote import Promoter
from edge.registry.artifact import statement_in
from edge.registry.client import RegistryClient
from edge.registry.login import Login
from edge.registry.reference import Reference
from edge.runtime.pull.pull import Pulled, pull
from edge.runtime.pull.record import PullRecord
from edge.transport.channel import ChildChannel
from edge.wire.peer import Nothing
from edge.wire.verbs import STATUS, StatusAnswer
from tests.support.device_root import DeviceRoot
from tests.support.manifests import allow


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
        with closing(Link(self.root.connect(), threading.Event())) as link:
            return link.ask(STATUS, Nothing())

    @property
    def current(self) -> str | None:
        return self.root.device.releases.current()


class StatingClock:
    def __init__(self) -> None:
        self.now = datetime.now(timezone.utc).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class StatingDesk:
    """A workstation with its own connections to `registry`, whose statements `key` signs."""

    def __init__(self, registry, key, clock, *, valid_s: float = 86_400.0) -> None:
        reference, ca = registry.reference(), registry.certificates.ca
        self.registry = RegistryWriter(reference, login=registry.login, ca=ca)
        self.desk = RingDesk(self.registry, f"{reference.host}/{reference.repository}")
        self.promoter = Promoter(self.desk, key, valid_s=valid_s, clock=clock)

    def close(self) -> None:
        self.registry.close()

    def stated(self, tag: str) -> tuple[int, str | None] | None:
        """Return serial and release of what the tag of a ring has beside it."""
        found = self.desk.named_by(tag)
        return None if found is None else (found.statement.serial, found.statement.release)


def published(registry, desk: StatingDesk, bundle) -> PublishedRelease:
    """Publish a bundle under its own name; return it as a promoter takes it."""
    put(registry, bundle, None)
    return desk.desk.release(bundle.manifest.release)


def beside(content: bytes) -> list[bytes]:
    """Return statement and signature that lie beside a release."""
    return [base64.b64decode(one) for one in statement_in(content)]


def into_ring(root, registry, key, ring: str) -> None:
    """Make a device one of a ring that follows statements of `key` alone."""
    allow(root.layout.allowed_signers, key, 'namespaces="edge-ring"', "promoter@desk")
    root.layout.pull_toml.write_text(f'repository = "{registry.host}/farms/gates"\nring = "{ring}"\n')
