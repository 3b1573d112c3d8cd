"""A workstation that states what rings run, at a real registry, with a clock of its own."""

import base64
from datetime import datetime, timedelta, timezone

from edge.deploy.publish import RegistryWriter
from edge.deploy.rings.desk import PublishedRelease, RingDesk
from edge.deploy.rings.promote import Promoter
from edge.registry.artifact import statement_in
from tests.support.manifests import allow
from tests.support.pulling import put


class StatingClock:
    """Time that passes when it is told to."""

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
