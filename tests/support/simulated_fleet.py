"""Thousands of devices that pull, in one process, on a clock that jumps.

Each runs the real pull and the real delivery, against a registry in memory and an agent that keeps the counters of the
trust model and judges as it was told to. The rollout is the real one. Time passes from event to event: a look at the
registry, the end of a trial, a device that comes back, a look of the workstation.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from edge.bundle.manifest import Manifest, Role, decode_manifest, encode_manifest
from edge.delivery.options import DeliveryOptions
from edge.deploy.rollout.kept import KeptRollout
from edge.deploy.rollout.rings import PublishedRelease, RingTags
from edge.deploy.rollout.rollout import ChannelRollout
from edge.registry.artifact import encode_artifact
from edge.rollout.device import ReleaseOutcome, RolloutDevice
from edge.rollout.rules import Rules
from edge.runtime.pull.pull import pull
from edge.runtime.pull.record import PullRecord
from edge.transport.frames import Blob, Frame, Message
from edge.wire.codec import encode
from edge.wire.ending import Nothing, Problem
from edge.wire.facts import FactsAnswer
from edge.wire.hello import DeviceHello
from edge.wire.offering import PlanAnswer, PlannedEngine, PutManifestAnswer
from edge.wire.release import BuildAnswer, CollectedAnswer, ReleaseAnswer, SwitchAnswer
from edge.wire.sending import HaveAnswer
from edge.wire.status import HealthReport, LastSwitch, MomentReport, StateReport, StatusAnswer, UnitReport
from tests.support.manifests import bundled, manifest
from tests.support.memory_registry import MemoryRegistry

SHORTEST_S, LONGEST_S = 300.0, 600.0  # between two looks, as edge-pull.timer has it
TRIAL_S = 60.0
LOOK_S = 30.0  # of the workstation
_BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)
_AT = "2026-11-23T12:00:00Z"


@dataclass
class FieldDevice:
    """One device: what it has, what it says. `is_bad_for` are releases that its trial refuses."""

    name: str
    ring: str
    registry: MemoryRegistry
    lie: str | None = None
    is_bad_for: frozenset[str] = frozenset()
    bytes_per_s: float = 2e6
    is_there: bool = True
    current: str | None = None
    sequence: int = 0
    last: LastSwitch | None = None
    store: set[str] = field(default_factory=set)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    record: PullRecord | None = None
    received_bytes: int = 0

    def look(self) -> float:
        """Pull once; return how long that took, seconds."""
        before = self.received_bytes
        pulled = pull(
            self.registry.client(f"stable-{self.ring}"),
            lambda: _Agent(self),
            last=self.record,
            options=DeliveryOptions(who="pull"),
            on_event=lambda event: None,
            stop=threading.Event(),
            remember=lambda record: None,
        )
        self.record = pulled.record
        is_new = pulled.outcome.result in ("committed", "rolled-back")
        return (self.received_bytes - before) / self.bytes_per_s + (TRIAL_S if is_new else 1.0)

    def words(self) -> RolloutDevice:
        """Return what the broker keeps of it; a liar says of every switch what it was told to say."""
        last, record = self.last, self.record
        switched = None if last is None else ReleaseOutcome(last.release, self.lie or last.result, reason=last.reason)
        pulled = None if record is None else ReleaseOutcome(record.release, record.result, record.code, record.problem)
        return RolloutDevice(name=self.name, ring=self.ring, is_there=self.is_there, switched=switched, pulled=pulled)


class _Agent:
    """A connection to the agent of a device."""

    def __init__(self, device: FieldDevice) -> None:
        self._device = device
        self._said: deque[Frame] = deque([_frame("hello", DeviceHello(facts=_FACTS, current=device.current), None)])
        self._offered: Manifest | None = None
        self._blob: tuple[object, int, str] | None = None

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        if isinstance(frame, Blob):
            assert self._blob is not None
            number, left, sha256 = self._blob
            self._device.received_bytes += len(frame.content)
            self._blob = (number, left - len(frame.content), sha256)
            if self._blob[1] == 0:
                self._device.store.add(sha256)
                self._said.append(_frame("ok", Nothing(), number))
        elif frame.verb == "blob":
            self._blob = (frame.values["id"], frame.values["length"], frame.values["sha256"])
        elif frame.verb != "hello":
            answer = getattr(self, f"_{frame.verb.replace('-', '_')}")(frame.values)
            self._said.append(_frame("ok", answer, frame.values["id"]))

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        return self._said.popleft()

    def close(self) -> None:
        pass

    def _plan(self, values: Mapping[str, Any]) -> PlanAnswer:
        import base64

        device, found = self._device, decode_manifest(base64.b64decode(values["manifest"]))
        self._offered = found
        missing = {one.sha256: one.length_bytes for one in found.files if one.sha256 not in device.store}
        is_older = found.sequence < device.sequence
        return PlanAnswer(
            release=found.release,
            current=device.current,
            phase="idle",
            last=device.last,
            is_unchanged=device.current == found.release,
            missing=missing,
            bytes=sum(missing.values()),
            engine=PlannedEngine(key=None, build=True),
            refusals=(Problem(code="verify.downgrade", problem="older than what was taken"),) if is_older else (),
        )

    def _lock(self, values: Mapping[str, Any]) -> Nothing:
        return Nothing()

    def _put_manifest(self, values: Mapping[str, Any]) -> PutManifestAnswer:
        assert self._offered is not None
        self._device.manifests[self._offered.release] = self._offered
        return PutManifestAnswer(release=self._offered.release, signer="ops")

    def _have(self, values: Mapping[str, Any]) -> HaveAnswer:
        return HaveAnswer(missing={one: 0 for one in values["sha256"] if one not in self._device.store})

    def _stage(self, values: Mapping[str, Any]) -> ReleaseAnswer:
        taken = self._device.manifests[values["release"]]
        assert all(one.sha256 in self._device.store for one in taken.files)
        return ReleaseAnswer(release=values["release"])

    def _build(self, values: Mapping[str, Any]) -> BuildAnswer:
        return BuildAnswer(key="0" * 64)

    def _switch(self, values: Mapping[str, Any]) -> SwitchAnswer:
        device, release = self._device, values["release"]
        device.tried.append(release)
        device.sequence = max(device.sequence, device.manifests[release].sequence)
        is_bad = release in device.is_bad_for
        device.last = LastSwitch(
            release=release,
            result="rolled-back" if is_bad else "committed",
            reason="p95 doubled" if is_bad else None,
            at=_AT,
            before=device.current,
        )
        device.current = device.current if is_bad else release
        return SwitchAnswer(release=release, confirm=False, note="")

    def _status(self, values: Mapping[str, Any]) -> StatusAnswer:
        device = self._device
        return StatusAnswer(
            at=MomentReport(at=_AT, boottime_ns=0, boot_id="b"),
            current=device.current,
            state=StateReport(**{**_IDLE, "last": device.last}),
            releases=(),
            health=None if device.current is None else HealthReport(**{**_HEALTHY, "release": device.current}),
            unit=UnitReport(
                active="active",
                sub="running",
                result="success",
                invocation="i",
                restarts=0,
                exit_status=0,
                was_stopped=False,
            ),
            lock=None,
            takes=None,
        )

    def _gc(self, values: Mapping[str, Any]) -> CollectedAnswer:
        return CollectedAnswer(releases=(), engines=(), blobs=(), partials=(), temporaries=())


_FACTS = FactsAnswer(
    name="gate",
    compatible=("any",),
    architecture="aarch64",
    python="3.10",
    l4t=None,
    jetpack=None,
    tensorrt=None,
    memory_bytes=8 << 30,
    memory_available_bytes=4 << 30,
    disk_bytes=64 << 30,
    disk_free_bytes=32 << 30,
    inodes_free=10**6,
    is_one_file_system=True,
    clock_floor=None,
)
_IDLE: dict[str, Any] = {
    "phase": "idle",
    "target": None,
    "fallback": None,
    "boots": 0,
    "attempts": 0,
    "attempts_this_boot": 0,
    "boot_id": "b",
    "started_at": _AT,
    "started_boottime_ns": 0,
    "confirm": False,
    "baseline": {},
    "reason": None,
    "last": None,
}
_HEALTHY: dict[str, Any] = {
    "release": "",
    "invocation": "i",
    "at_boottime_ns": 0,
    "is_ready": True,
    "batches": 1,
    "infer_p95_ms": 10.0,
    "age_p95_ms": 50.0,
    "mqtt_connected": True,
    "mqtt_acknowledged": 1,
    "streams": {},
    "age_s": 0.5,
}


def _frame(verb: str, values: object, number: object) -> Message:
    told = encode(values)  # type: ignore[arg-type]
    return Message(verb, told if number is None else {**told, "id": number})


class SimulatedFleet:
    """Devices in rings, and a rollout over them.

    Args:
        rings: how many devices each has, in the order of the rollout.
        seed: of all that is left to chance.
        bad: share of the devices whose trial refuses every release but the first.
        off: share that is away at the start; half of them come back within two hours.
        lying: share that says of each switch the contrary of what came of it.
    """

    def __init__(self, rings: Mapping[str, int], *, seed: int, bad: float, off: float, lying: float) -> None:
        self._random = random.Random(seed)
        self.now_s = 0.0
        self.registry = MemoryRegistry(lambda: self.now_s)
        self.old = self._published("old", 1)
        self.new = self._published("new", 2)
        self.devices = [
            self._device(f"north/{ring}-{number:04d}", ring, bad, lying)
            for ring, count in rings.items()
            for number in range(count)
        ]
        self._turns: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._said: dict[str, RolloutDevice] = {}
        for ring in rings:
            self.registry.tag(self.registry.manifests[self.old.digest], f"stable-{ring}")
        self._settle(off)
        client: Any = self.registry.client()
        writer: Any = self.registry
        kept = KeptRollout(client, writer, "stable", pause=lambda seconds: None)
        self.rollout = ChannelRollout(kept, RingTags(client, writer), who="me@desk", clock=self.clock)

    def clock(self) -> datetime:
        return _BEGAN + timedelta(seconds=int(self.now_s))

    def start(self, rules: Rules) -> None:
        rings = list(dict.fromkeys(device.ring for device in self.devices))
        self.rollout.start(self.new, rings, rules, self.words())
        self._after(LOOK_S, self._go_on)

    def run_until(self, end_s: float) -> None:
        """Let time pass until then, or until a while after the rollout is over."""
        while self._turns and self._turns[0][0] <= end_s:
            self.now_s, _, turn = heapq.heappop(self._turns)
            turn()

    def words(self) -> list[RolloutDevice]:
        """Return what the broker keeps of all: what each said when its last look was over."""
        return list(self._said.values())

    def of(self, *rings: str) -> list[FieldDevice]:
        return [device for device in self.devices if device.ring in rings]

    def _published(self, name: str, sequence: int) -> PublishedRelease:
        model, pipeline = f"model of {name}".encode() * 100, f"name: {name}\n".encode()
        files = (bundled("model.onnx", Role.MODEL, model), bundled("pipeline.yaml", Role.PIPELINE, pipeline))
        made = manifest(sequence=sequence, files=files)
        contents = {"model.onnx": model, "pipeline.yaml": pipeline}
        return PublishedRelease(
            made, self.registry.put_bundle(encode_manifest(made), b"sig", contents, encode_artifact)
        )

    def _device(self, name: str, ring: str, bad: float, lying: float) -> FieldDevice:
        is_bad, is_lying = self._random.random() < bad, self._random.random() < lying
        return FieldDevice(
            name=name,
            ring=ring,
            registry=self.registry,
            lie=("committed" if is_bad else "rolled-back") if is_lying else None,
            is_bad_for=frozenset({self.new.manifest.release}) if is_bad else frozenset(),
        )

    def _settle(self, off: float) -> None:
        """Have all of them serve the old release, and some be away since."""
        for device in self.devices:
            device.look()
            assert device.current == self.old.manifest.release
            device.is_there = self._random.random() >= off
            if device.is_there:
                self._after(self._random.uniform(0, LONGEST_S), lambda device=device: self._look(device))
            elif self._random.random() < 0.5:
                self._after(self._random.uniform(0, 7200), lambda device=device: self._return(device))
            self._say(device)
        self.registry.asked.clear()

    def _return(self, device: FieldDevice) -> None:
        device.is_there = True
        self._say(device)
        self._look(device)

    def _look(self, device: FieldDevice) -> None:
        took_s = device.look()
        self._after(took_s, lambda: self._say(device))
        self._after(took_s + self._random.uniform(SHORTEST_S, LONGEST_S), lambda: self._look(device))

    def _say(self, device: FieldDevice) -> None:
        self._said[device.name] = device.words()

    def _go_on(self) -> None:
        look = self.rollout.look(self.words())
        if self.rollout.go_on(look).phase == "running":
            self._after(LOOK_S, self._go_on)

    def _after(self, seconds: float, turn: Callable[[], None]) -> None:
        heapq.heappush(self._turns, (self.now_s + seconds, next(self._number), turn))


def busiest_per_s(registry: MemoryRegistry, *, over_s: int = 10) -> float:
    """Return the most requests a second, averaged over ten of them."""
    seconds: Sequence[int] = sorted(registry.asked)
    best = 0
    for begin in range(seconds[0], seconds[-1] + 1):
        best = max(best, sum(registry.asked[second] for second in range(begin, begin + over_s)))
    return best / over_s
