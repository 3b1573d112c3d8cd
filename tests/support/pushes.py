"""A push as the agent does it, step by step and in its order, over any `Files`."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edge.device.device import Device, collect
from edge.device.durable import Durable, Files, typed
from edge.device.layout import Layout
from edge.device.state import Counters
from edge.device.switch import arm, commit, refuse, roll_back, switch_to
from edge.errors import DeployError
from edge.reports import Moment

CHUNK_BYTES = 6  # so that a blob comes in more than one piece


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class Release:
    """A release as small as it can be.

    `spends` is the counter that it was given for as a permission to go back; None: it is none.
    """

    name: str
    sequence: int
    files: dict[str, bytes] = field(hash=False)
    spends: int | None = field(default=None, kw_only=True)

    @property
    def counted(self) -> int:
        """What a device counts once it is on trial."""
        return self.sequence if self.spends is None else self.spends + 1

    @property
    def manifest(self) -> bytes:
        return json.dumps({"release": self.name, "sequence": self.sequence}).encode()

    @property
    def signature(self) -> bytes:
        return b"signed " + self.name.encode()

    @property
    def key(self) -> str:
        return sha256_of(self.name.encode())[:16]

    @property
    def plan(self) -> bytes:
        return b"plan of " + self.name.encode()

    @property
    def digests(self) -> dict[str, str]:
        return {path: sha256_of(content) for path, content in self.files.items()}

    @property
    def created_at(self) -> str:
        return f"2026-01-{self.sequence:02d}T00:00:00Z"


def moment(boot: str, *, seconds: int = 100) -> Moment:
    return Moment(at="2026-02-01T00:00:00Z", boottime_ns=seconds * 1_000_000_000, boot_id=boot)


def device_over(files: Files) -> Device:
    return Device(Layout(Path("/")), Durable(files), hold=lambda layout: contextlib.nullcontext())


def receive(device: Device, release: Release) -> None:
    for content in release.files.values():
        for sha256 in device.store.missing({sha256_of(content): len(content)}):
            offset = device.store.begin(sha256, len(content))
            for start in range(offset, len(content), CHUNK_BYTES):
                device.store.write(sha256, start, content[start : start + CHUNK_BYTES])
            device.store.finish(sha256, len(content))


def receive_again_if_needed(device: Device, release: Release) -> None:
    """As the client does: a blob whose hash is wrong starts once more at its beginning."""
    try:
        receive(device, release)
    except DeployError as error:
        if error.code != "transfer.hash":
            raise
        receive(device, release)


@typed
def build(device: Device, release: Release) -> None:
    device.engines.take(release.key, {"model.plan": release.plan}, replaces=False)
    if device.releases.engine_key(release.name) != release.key:
        device.releases.attach_engine(release.name, release.key)


def prepare(device: Device, release: Release) -> None:
    """Everything before the switch: the old release serves."""
    receive_again_if_needed(device, release)
    device.releases.stage(release.name, manifest=release.manifest, signature=release.signature, files=release.digests)
    build(device, release)


def switch(device: Device, release: Release, *, now: Moment) -> None:
    seen = Counters(sequences={"main": release.counted}, newest_created_at=release.created_at)
    arm(device, release.name, moment=now, seen=seen)
    switch_to(device, release.name)


def push(
    device: Device, release: Release, *, now: Moment, is_healthy: bool = True, report: Callable[[], None] = lambda: None
) -> None:
    prepare(device, release)
    switch(device, release, now=now)
    if is_healthy:
        commit(device, moment=now)
        report()
    else:
        refuse(device, "no frames")
        roll_back(device, "unit-failed", moment=now)
        report()
    collect(device, now_s=0.0)
