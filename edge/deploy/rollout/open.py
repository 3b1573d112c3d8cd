"""Makes a rollout of what a person names: repository, channel, login."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge.deploy.publish.binding import RegistryWriter
from edge.deploy.publish.kept_login import kept_login
from edge.deploy.rollout.kept import KeptRollout
from edge.deploy.rollout.rings import RingTags
from edge.deploy.rollout.rollout import ChannelRollout, who_am_i
from edge.registry.client import RegistryClient
from edge.registry.login import Login
from edge.registry.reference import Reference

__all__ = ["RolloutDesk", "open_rollouts"]


@dataclass(frozen=True, slots=True)
class RolloutDesk:
    """Where releases and rollouts of one repository are; `repository` as devices have it in their settings."""

    repository: str
    tags: RingTags
    _client: RegistryClient
    _writer: RegistryWriter

    def rollout(self, channel: str) -> ChannelRollout:
        """Return the rollout of a channel."""
        return ChannelRollout(KeptRollout(self._client, self._writer, channel), self.tags, who=who_am_i())


@contextmanager
def open_rollouts(
    reference: Reference, *, login: Login | None, ca: Path | None, known_as: Reference | None = None
) -> Iterator[RolloutDesk]:
    """Give what reads and writes rollouts in the repository of `reference`.

    Args:
        reference: its tag does not count.
        login: None: what docker or podman keep for this registry.
        ca: a file of certificates that count for this registry, beside those of the system.
        known_as: the same repository, as devices have it in their settings; None: as `reference` has it.

    Raises:
        DeployError: `registry.*`, if the registry does not let us in.
        MissingDependencyError: without oras.
    """
    login = login or kept_login(reference)
    client = RegistryClient(reference, login=login, ca=ca)
    try:
        client.check()
        writer = RegistryWriter(reference, login=login, ca=ca, is_basic=client.is_basic)
        with closing(writer):
            named = known_as or reference
            yield RolloutDesk(f"{named.host}/{named.repository}", RingTags(client, writer), client, writer)
    finally:
        client.close()
