"""A rollout at a real registry, with a clock of its own and no patience."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone

from edge.deploy.publish.binding import RegistryWriter
from edge.deploy.publish.publish import publish
from edge.deploy.rollout.kept import KeptRollout
from edge.deploy.rollout.rings import PublishedRelease, RingTags
from edge.deploy.rollout.rollout import ChannelRollout
from edge.errors import DeployError
from edge.registry.client import RegistryClient
from edge.rollout.device import ReleaseOutcome, RolloutDevice
from tests.support.django_registry import DjangoRegistry
from tests.support.registry import Registry


class RollingClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class RollingDesk:
    """A workstation with its own connections to `registry`; `pause` stands for waiting that others are done."""

    def __init__(
        self,
        registry: Registry | DjangoRegistry,
        clock: RollingClock,
        *,
        who: str = "me@desk",
        settle_s: float = 60.0,
        pause: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        reference, ca = registry.reference(), registry.certificates.ca
        self.client = RegistryClient(reference, login=registry.login, ca=ca)
        self.client.check()
        self.writer = RegistryWriter(reference, login=registry.login, ca=ca, is_basic=self.client.is_basic)
        self.kept = KeptRollout(self.client, self.writer, "stable", settle_s=settle_s, pause=pause)
        self.tags = RingTags(self.client, self.writer)
        self.rollout = ChannelRollout(self.kept, self.tags, who=who, clock=clock)

    def close(self) -> None:
        self.client.close()
        self.writer.close()

    def digests(self, *rings: str) -> list[str | None]:
        return [self.tags.digest_of("stable", ring) for ring in rings]

    def release_of(self, ring: str) -> str | None:
        """Return the release that the devices of a ring take now; None: none."""
        with suppress(DeployError):
            return self.tags.release(f"stable-{ring}").manifest.release
        return None


def published(registry: Registry | DjangoRegistry, desk: RollingDesk, bundle: object, *rings: str) -> PublishedRelease:
    """Publish a bundle, to rings too; return it as a rollout takes it."""
    for tag in [f"stable-{ring}" for ring in rings] or [None]:
        publish(bundle, registry.reference(tag), login=registry.login, ca=registry.certificates.ca)
    return desk.tags.release(bundle.manifest.release)


def devices(ring: str, count: int, *, release: str | None = None, bad: int = 0, away: int = 0) -> list[RolloutDevice]:
    """Return devices of a ring; of `release` the first `bad` were rolled back, all others are committed."""
    return [
        RolloutDevice(
            name=f"north/{ring}-{number:02d}",
            ring=ring,
            is_there=number < count - away,
            switched=None
            if release is None
            else ReleaseOutcome(release, "rolled-back" if number < bad else "committed"),
        )
        for number in range(count)
    ]
