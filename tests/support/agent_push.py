"""A push by the real client and the real agent, over files in memory whose power can be cut.

The agent's own files (settings, allowed signers, health, locks) are real; all that is durable lies in memory. Client
and agent are two threads with pipes between them, and the units are functions: nothing else is left out.
"""

import contextlib
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from edge.bundle.folder import Bundle
from edge.bundle.manifest import Role, decode_manifest
from edge.delivery.link import Link
from edge.delivery.outcome import Outcome
from edge.device.device import Device
from edge.device.durable import Durable, Files
from edge.device.facts import this_moment
from edge.device.layout import Layout
from edge.device.switch import commit, refuse, roll_back
from edge.device.units import BUILD_UNIT, TRIAL_UNIT
from edge.reports import Moment
from edge.runtime.agent.serve import serve
from edge.transport.channel import Channel
from edge.wire.release import LockRequest, RollbackRequest
from edge.wire.verbs import LOCK, ROLLBACK
from tests.support.agent_session import piped
from tests.support.crash import Killed, Report, nobody, spared
from tests.support.device_releases import leave_engine, record_of, request_of
from tests.support.device_root import DeviceRoot, as_permission, bounds_from
from tests.support.process_units import ServingUnits, serve_now
from tests.support.pushes import Release

MODEL = b"the model of all"


@dataclass(frozen=True)
class SignedRelease(Release):
    """A release that the real agent takes, with a manifest and a signature of its own."""

    manifest_bytes: bytes
    signature_bytes: bytes
    stated_at: str

    @property
    def manifest(self) -> bytes:
        return self.manifest_bytes

    @property
    def signature(self) -> bytes:
        return self.signature_bytes

    @property
    def key(self) -> str:
        return record_of(decode_manifest(self.manifest_bytes), self.plan).inputs.key

    @property
    def created_at(self) -> str:
        return self.stated_at


class Rooted:
    """`Files` that knows the paths below `root` by what follows it: `root/var` is `/var`."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files, self._root = files, root

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._files, name)

        def mapped(*arguments: object, **options: object) -> object:
            return call(*(self._below(one) if isinstance(one, Path) else one for one in arguments), **options)

        return mapped

    def _below(self, path: Path) -> Path:
        return Path("/") / path.relative_to(self._root)


class FunctionUnits(ServingUnits):
    """Units that do their work while they are started; `is_healthy` is what the trial finds."""

    def __init__(self, device: Device, *, is_healthy: bool, report: Report) -> None:
        self._device, self._is_healthy, self._report = device, is_healthy, report

    def start(self, unit: str, *, wait: bool, timeout_s: float) -> None:
        with spared():
            {BUILD_UNIT: self._build, TRIAL_UNIT: self._trial}[unit]()

    def restart(self, unit: str) -> None:
        serve_now(self._device)

    def _build(self) -> None:
        device = self._device
        leave_engine(device, plan=b"plan of " + request_of(device).release.encode())

    def _trial(self) -> None:
        if self._is_healthy:
            commit(self._device, moment=this_moment())
        else:
            refuse(self._device, "no frames")
            roll_back(self._device, "unit-failed", moment=this_moment())
            serve_now(self._device)
        self._report()


class AgentPush:
    """A device, and the two releases that are pushed to it; `directory` holds its real files."""

    def __init__(self, directory: Path) -> None:
        self._root = DeviceRoot(directory)
        self._bundles: dict[str, Bundle] = {}
        self.old = self._release("old", 1)
        self.new = self._release("new", 2)
        self.back = self._release("back", 1, spends=2)
        self.again = self._release("old", 3)

    @property
    def layout(self) -> Layout:
        return self._root.layout

    def _release(self, name: str, sequence: int, *, spends: int | None = None) -> SignedRelease:
        parts = {"model.onnx": (Role.MODEL, MODEL), "pipeline.yaml": (Role.PIPELINE, b"name: " + name.encode())}
        bundle = self._root.bundle_of(parts, name, sequence=sequence, channel="main", **bounds_from(spends))
        if spends is not None:
            bundle = as_permission(bundle, self._root.key)
        self._bundles.setdefault(bundle.manifest.release, bundle)
        return SignedRelease(
            name=bundle.manifest.release,
            sequence=sequence,
            files={path: content for path, (_, content) in parts.items()},
            manifest_bytes=bundle.manifest_bytes,
            signature_bytes=bundle.signature,
            stated_at=bundle.manifest.created_at,
            spends=spends,
        )

    def push(self, device: Device, report: Report, release: Release, *, is_healthy: bool = True) -> None:
        """Push to the device whose files are those of `device`, until its verdict; raise what was not expected."""
        outcome = self.try_push(device, release, report, is_healthy=is_healthy)
        assert outcome.result == ("committed" if is_healthy else "rolled-back"), outcome

    def push_or_end(self, device: Device, report: Report, release: Release) -> None:
        """Push a minute after an agent was killed: it may have left a trial that nobody judges, or nothing to do."""
        with patch("edge.runtime.agent.serve.this_moment", in_a_minute):
            outcome = self.try_push(device, release, report, build_id="2" * 16)
            if outcome.code == "lock.trial":  # whom the agent has given its judge now
                outcome = self.try_push(device, release, report, build_id="3" * 16)
        assert outcome.result in ("committed", "unchanged"), outcome

    def try_push(
        self,
        device: Device,
        release: Release,
        report: Report = nobody,
        *,
        is_healthy: bool = True,
        build_id: str = "1" * 16,
    ) -> Outcome:
        """Push, and return how it ended; a client whose agent was killed does not come back."""
        killed = threading.Event()
        connected = self.connected(device, report, is_healthy=is_healthy, killed=killed, build_id=build_id)
        with connected as connect:
            return self._root.push(self._bundles[release.name], connect, stop=killed)

    def roll_back(self, device: Device, report: Report) -> None:
        with (
            self.connected(device, report, is_healthy=True, killed=threading.Event()) as connect,
            contextlib.closing(Link(connect(), threading.Event())) as link,
        ):
            link.ask(LOCK, LockRequest(who="tester", why="test"))
            link.ask(ROLLBACK, RollbackRequest())
            report()

    @contextlib.contextmanager
    def connected(
        self,
        device: Device,
        report: Report,
        *,
        is_healthy: bool,
        killed: threading.Event,
        build_id: str = "1" * 16,
        is_for_pull: bool = False,
    ) -> Any:
        """Give what opens a connection to an agent; after the block no agent is left. `killed` is set by one's end.

        The device's clock stands, so that what differs in its time alone is one state of the disk, and builds have the
        name `build_id`.
        """
        rooted = Durable(Rooted(device.durable.files, self._root.root))
        served = Device(Layout(self._root.root), rooted, is_for_pull=is_for_pull)
        units = FunctionUnits(served, is_healthy=is_healthy, report=report)
        threads: list[threading.Thread] = []

        def be_an_agent(channel: Channel) -> None:
            try:
                serve(channel, served, units, origin="test")
            except Killed:
                killed.set()

        def connect() -> Channel:
            agent, client = piped()
            threads.append(threading.Thread(target=be_an_agent, args=(agent,)))
            threads[-1].start()
            return client

        named = patch("edge.runtime.build.request.secrets", SimpleNamespace(token_hex=lambda _: build_id))
        with named, patch.multiple("edge.device.facts", time=_StandingTime, datetime=StandingDate):
            serve_now(served)
            try:
                yield connect
            finally:
                for thread in threads:
                    thread.join(60)
                    assert not thread.is_alive(), "an agent does not end"


class _StandingTime:
    """What `edge.device.facts` needs of `time`."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    @staticmethod
    def clock_gettime_ns(_clock: int) -> int:
        return 1000 * 10**9


class StandingDate(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime(2026, 11, 20, 13, 0, tzinfo=tz)


def in_a_minute() -> Moment:
    moment = this_moment()
    return replace(moment, boottime_ns=moment.boottime_ns + 60 * 10**9)
