"""The state of a rollout, kept as an artifact beside the releases, and changed by one workstation at a time.

A registry has no compare-and-swap. What holds instead is Fischer's: who writes waits for longer than anybody takes from
reading to having written, reads again, and goes on only if its own is still there. A writer that took longer than
that gives up. (L. Lamport, "A fast mutual exclusion algorithm", 1987, describes it.)
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from edge.deploy.publish.binding import RegistryWriter
from edge.errors import DeployError
from edge.registry.artifact import EMPTY_CONTENT, EMPTY_LAYER, ArtifactLayer
from edge.registry.client import RegistryClient
from edge.registry.note import encode_note, layer_of_note
from edge.rollout.state import RolloutState, decode_rollout, encode_rollout
from edge.untrusted import cleaned

__all__ = ["ROLLOUT", "KeptRollout", "put_blob"]

ROLLOUT = "application/vnd.edge-deploy.rollout.v1"
_DOCUMENT = "application/vnd.edge-deploy.rollout.v1+json"
_MOST_BYTES = 64 * 1024**2
_SETTLE_S = 5.0


class KeptRollout:
    """The rollout of `channel` in the repository of `client`; every method raises DeployError `registry.*`.

    Args:
        client: reads.
        writer: writes, to the same repository.
        channel: of the releases.
        settle_s: what no writer exceeds from reading to having written.
        pause: waits for so many seconds.
    """

    def __init__(
        self,
        client: RegistryClient,
        writer: RegistryWriter,
        channel: str,
        *,
        settle_s: float = _SETTLE_S,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._writer = client, writer
        self._settle_s, self._pause = settle_s, pause
        # With a dot, which no channel has, it is the tag of no ring.
        self.tag = f"rollout.{channel}"

    def read(self) -> RolloutState | None:
        """Return the state as it is now; None: there never was a rollout."""
        where = self._client.name_of(self.tag)
        try:
            content, _ = self._client.manifest(self.tag)
        except DeployError as error:
            if error.code == "registry.missing":
                return None
            raise
        document = self._client.blob(layer_of_note(content, ROLLOUT, where=where), most_bytes=_MOST_BYTES)
        try:
            return decode_rollout(document)
        except ValueError as error:
            raise DeployError(
                "registry.artifact",
                f"{where}: the state of a rollout cannot be used: {error}",
                hint="all who work on a rollout need the same version",
            ) from None

    def write(self, state: RolloutState) -> None:
        """Write what comes after the state that was read; whoever reads it from now on goes on from here.

        Raises:
            DeployError: `lock.rings`, if somebody else has changed it meanwhile, or does so now.
        """
        content = encode_rollout(state)
        layer = ArtifactLayer(_DOCUMENT, hashlib.sha256(content).hexdigest(), len(content), "rollout.json")
        put_blob(self._writer, layer, content)
        put_blob(self._writer, EMPTY_LAYER, EMPTY_CONTENT)
        began_s = time.monotonic()
        before = self.read()
        if (0 if before is None else before.serial) != state.serial - 1:
            raise _overtaken(self._client.name_of(self.tag), before)
        self._writer.put_manifest(encode_note(ROLLOUT, layer), self.tag)
        took_s = time.monotonic() - began_s
        if took_s > self._settle_s:
            raise DeployError(
                "lock.rings",
                f"{self._client.name_of(self.tag)}: the registry took {took_s:.1f} s to read and write, "
                f"more than {self._settle_s:g} s: nobody can tell who came first",
                hint="the same command again goes on from what is there now",
            )
        self._pause(self._settle_s)
        after = self.read()
        if after is None or (after.serial, after.claim) != (state.serial, state.claim):
            raise _overtaken(self._client.name_of(self.tag), after)


def put_blob(writer: RegistryWriter, layer: ArtifactLayer, content: bytes) -> None:
    """Send a small blob, unless it is there."""
    if writer.has(layer):
        return
    with tempfile.TemporaryDirectory(prefix="edge-rollout.") as folder:
        path = Path(folder) / "blob"
        path.write_bytes(content)
        writer.put(layer, path)


def _overtaken(where: str, now: RolloutState | None) -> DeployError:
    last = now.steps[-1] if now is not None and now.steps else None
    who = "somebody" if last is None else f"{cleaned(last.by)} ({cleaned(last.what)}, {last.at:%Y-%m-%dT%H:%M:%SZ})"
    return DeployError(
        "lock.rings",
        f"{where}: {who} has changed it at the same time",
        hint="the same command again goes on from what is there now",
    )
