"""Release to deliver, its options, and the order of its blobs, small ones first.

Each goes on from where it stopped.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from edge.bundle.manifest import BundledFile, Manifest
from edge.delivery.link import Link, OnProgress
from edge.delivery.outcome import UPLOAD, Report
from edge.errors import DeployError
from edge.wire.peer import PROVISION
from edge.wire.release import Golden, HaveRequest, PlanAnswer, PlannedEngine
from edge.wire.verbs import HAVE, StatusAnswer

__all__ = ["Deliverable", "DeliveryOptions", "golden_words", "plan_words", "silent_words", "upload"]


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """How to push.

    `is_plan`: say what would be done, and do nothing. `detach`: leave once everything is on the device.
    `confirm`: the release stays only if this workstation can reach the device after the switch and says so.
    `retry_bad`: also a release that has failed there before, or a device that has stopped trying.
    `lock_wait_s`: for another push to end. `is_fetched`: from a slow place: brought before the lock is taken, which is
    held for stage, build and switch alone.
    `reconnect_s`: how long, from its last progress on, to try to reach a device that was lost before the switch.
    `deadline_s`: for all of it, whatever the device says meanwhile; None: see `edge.delivery.deliver`.
    `who`: for the device's audit log.
    """

    is_plan: bool = False
    detach: bool = False
    confirm: bool = False
    retry_bad: bool = False
    lock_wait_s: float = 0.0
    is_fetched: bool = False
    reconnect_s: float = 60.0
    deadline_s: float | None = None
    who: str = field(default_factory=_me)


class Deliverable(Protocol):
    """A release that can be read here; `edge.bundle.folder.Bundle` is one, a release in a registry another."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest as it was signed."""
        ...

    @property
    def signature(self) -> bytes:
        """The signature over these bytes."""
        ...

    def opened(self, file: BundledFile) -> AbstractContextManager[BinaryIO]:
        """Give a file open for `seek` and `read`; DeployError if it cannot be read or has changed."""
        ...


def upload(link: Link, bundle: Deliverable, report: Report) -> None:
    """Send what is missing after an offer over `link`; DeployError `bundle.file`, `transfer.*`, `device.disk.*`."""
    files = {one.sha256: one for one in bundle.manifest.files}
    missing = link.ask(HAVE, HaveRequest(sha256=tuple(sorted(files)))).missing
    _check_asked_for(missing, files)
    total = sum(files[sha256].length_bytes - offset for sha256, offset in missing.items())
    done = 0
    with report.phase(UPLOAD, total=total):
        for sha256, offset in sorted(missing.items(), key=lambda item: files[item[0]].length_bytes):
            taker = report.taker(UPLOAD, before=done - offset, total=total)
            _send(link, bundle, files[sha256], offset, taker, report)
            done += files[sha256].length_bytes - offset


def _check_asked_for(missing: Mapping[str, int], files: Mapping[str, BundledFile]) -> None:
    for sha256, offset in missing.items():
        if sha256 not in files or offset > files[sha256].length_bytes:
            raise DeployError(
                "transfer.protocol",
                f"the device goes on at byte {offset} of blob {sha256[:12]}, which this release has not",
                hint=PROVISION,
            )


def _send(
    link: Link, bundle: Deliverable, file: BundledFile, offset: int, on_progress: OnProgress, report: Report
) -> None:
    with bundle.opened(file) as content:
        try:
            link.send_blob(file.sha256, content, offset=offset, length=file.length_bytes, on_progress=on_progress)
        except DeployError as error:
            if error.code != "transfer.hash":
                raise
            # What an earlier push left there was damaged; the device has forgotten it. A second time is no chance.
            report.note(UPLOAD, f"{error.problem}; sending it once more", code=error.code)
            link.send_blob(file.sha256, content, offset=0, length=file.length_bytes, on_progress=on_progress)


def plan_words(plan: PlanAnswer, manifest: Manifest) -> str:
    here = f"{plan.current} serves" if plan.current else "nothing serves"
    if plan.is_unchanged:
        return f"{here}, which is this release"
    whole = sum({file.sha256: file.length_bytes for file in manifest.files}.values())
    digests = len({file.sha256 for file in manifest.files})
    sent = f"{len(plan.missing)} of {digests} files to send, {plan.bytes} of {whole} bytes"
    told = "" if plan.software is None else f"; {plan.software}"
    return f"{here}; {sent}; {_engine_words(plan.engine)}{told}"


def golden_words(key: str | None, golden: Golden) -> str:
    return (
        f"engine {(key or '')[:12]} finds {golden.found} of {golden.expected} sure detections of the float "
        f"model, {golden.extra} others, scores differ by {golden.score_error:.3f}"
    )


def silent_words(status: StatusAnswer) -> list[str]:
    """Return a sentence for each stream without frames: a trial does not count those silent before, or new."""
    streams = {} if status.health is None else status.health.streams
    return [
        f"stream {name} gives no frames ({one.state}); it is new or gave none before, so the release is not blamed"
        for name, one in sorted(streams.items())
        if one.state in ("connecting", "down") or not one.inferred
    ]


def _engine_words(engine: PlannedEngine) -> str:
    if not engine.build:
        return f"engine {(engine.key or '')[:12]} is there"
    took = "" if engine.last_build_s is None else f"; the last one took {engine.last_build_s:.0f} s"
    return f"the engine will be built{f', because {engine.why}' if engine.why else ''}{took}"
