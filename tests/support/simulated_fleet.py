"""Thousands of devices that pull, in one process, on a clock that jumps.

Each runs the real pull and the real delivery, against a registry in memory and an agent that keeps the counters of the
trust model and of statements, and judges as it was told to. Who promotes and waits is the real one; only nobody signs.
Time passes from event to event: a look at the registry, the end of a trial, a device that comes back, a look of the
workstation.
"""

import base64
import dataclasses
import heapq
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Manifest, Role, decode_manifest, encode_manifest
from edge.bundle.statement import RingStatement, decode_statement
from edge.codec import encode
from edge.delivery.deliverable import DeliveryOptions
from edge.deploy.rings.desk import PublishedRelease, RingDesk
from edge.deploy.rings.promote import Promoter, RingWatch
from edge.deploy.rings.verdict import Condition, Decision, Heard
from edge.publish.messages import DeployMessage, PullMessage, StateMessage
from edge.reports import Collected, Facts, LastSwitch
from edge.runtime.pull.pull import pull
from edge.runtime.pull.record import PullRecord
from edge.transport.channel import Blob, Frame, Message
from edge.wire.peer import DeviceHello, Nothing, Problem
from edge.wire.release import (
    BuildAnswer,
    HaveAnswer,
    PlanAnswer,
    PlannedEngine,
    PutManifestAnswer,
    ReleaseAnswer,
    RingAnswer,
    SwitchAnswer,
)
from edge.wire.verbs import StatusAnswer
from tests.support.answers import health, last_switch, state, status
from tests.support.manifests import bundled, manifest
from tests.support.registry import MemoryRegistry

SHORTEST_S, LONGEST_S = 300.0, 600.0  # between two looks, as edge-pull.timer has it
TRIAL_S = 60.0
BYTES_PER_S = 2e6
LOOK_S = 30.0  # of the workstation
_BEGAN = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)


@dataclass
class FieldDevice:
    """One device: what it has, what it says. `is_bad_for` are releases that its trial refuses."""

    name: str
    ring: str
    registry: MemoryRegistry
    clock: Callable[[], datetime]
    lie: str | None = None
    is_bad_for: frozenset[str] = frozenset()
    is_there: bool = True
    current: str | None = None
    sequence: int = 0
    stated: RingStatement | None = None
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
        )
        self.record = pulled.record
        is_new = pulled.outcome.result in ("committed", "rolled-back")
        return (self.received_bytes - before) / BYTES_PER_S + (TRIAL_S if is_new else 1.0)

    def words(self) -> Heard:
        """Return what the broker keeps of it; a liar says of every switch what it was told to say."""
        last, record = self.last, self.record
        switched, looked = None, {}
        if last is not None:
            result: Any = self.lie or last.result
            switched = DeployMessage(
                device=self.name, release=last.release, from_=None, result=result, reason=last.reason, at=last.at
            )
        if record is not None:
            looked = {name: getattr(record, name) for name in ("release", "result", "code")}
            looked["reason"] = record.problem
        pulled = PullMessage(device=self.name, ring=self.ring, **looked)
        is_how: Any = "online" if self.is_there else "offline"
        state = StateMessage(device=self.name, state=is_how, epoch=1, session=1, since=None)
        return Heard(state=state, deploy=switched, pull=pulled)


class _Agent:
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
        device, found = self._device, decode_manifest(base64.b64decode(values["manifest"]))
        self._offered = found
        missing = {one.sha256: one.length_bytes for one in found.files if one.sha256 not in device.store}
        is_older = found.sequence < device.sequence
        is_other = device.stated is None or device.stated.release != found.release
        return PlanAnswer(
            release=found.release,
            current=device.current,
            phase="idle",
            last=device.last,
            is_unchanged=device.current == found.release,
            missing=missing,
            bytes=sum(missing.values()),
            engine=PlannedEngine(key=None, build=True),
            refusals=(Problem(code="verify.downgrade", problem="older than what was taken"),) * is_older
            + (Problem(code="verify.ring.release", problem="not that of the ring"),) * is_other,
        )

    def _ring(self, values: Mapping[str, Any]) -> RingAnswer:
        told, device = decode_statement(base64.b64decode(values["statement"])), self._device
        assert told.ring == device.ring
        if device.stated is None or told.serial >= device.stated.serial:
            device.stated = told
        return RingAnswer(is_asked_for=True, release=device.stated.release)

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
        device.last = last_switch(
            release=release,
            result="rolled-back" if is_bad else "committed",
            reason="p95 doubled" if is_bad else None,
            at=device.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
            before=device.current,
        )
        device.current = device.current if is_bad else release
        return SwitchAnswer(release=release, confirm=False, note="")

    def _status(self, values: Mapping[str, Any]) -> StatusAnswer:
        device = self._device
        return status(
            current=device.current,
            state=state(last=device.last),
            health=None if device.current is None else dataclasses.replace(health(), release=device.current),
            left=None if device.last is None or device.last.result == "committed" else device.last.release,
        )

    def _gc(self, values: Mapping[str, Any]) -> Collected:
        return Collected()


_FACTS = Facts(
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


def _frame(verb: str, values: object, number: object) -> Message:
    told = encode(values)  # type: ignore[arg-type]
    return Message(verb, told if number is None else {**told, "id": number})


class SimulatedFleet:
    """Devices in rings, and a workstation that promotes from each ring to the next.

    Args:
        rings: how many devices each has, in the order in which they get a release.
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
        self._said: dict[str, Heard] = {}  # as the broker keeps it: what each said when its last look was over
        registry: Any = self.registry.client()
        self.desk = RingDesk(registry, "registry.example/farms/gates")
        self.promoter = Promoter(self.desk, Path("nobody"), valid_s=90 * 86_400.0, clock=self.clock)
        self._rings = list(rings)
        self.watch: RingWatch | None = None
        self.decisions: list[tuple[str, Decision]] = []
        for ring in rings:
            self.promoter.promote(self.old, ring)
        self._settle(off)

    def clock(self) -> datetime:
        return _BEGAN + timedelta(seconds=int(self.now_s))

    def start(self, condition: str) -> None:
        """Promote to the first ring, then from ring to ring by a condition with `RING` in it; a stop withdraws."""
        self.promoter.promote(self.new, self._rings[0])
        self._condition = condition
        self._watch_ring(0)

    def go_back(self) -> None:
        """Sign the old release again, and have all rings run it."""
        again = self._published("old", self.new.manifest.sequence + 1)
        assert again.manifest.release == self.old.manifest.release
        for ring in self._rings:
            self.promoter.promote(again, ring)

    def run_until(self, end_s: float) -> None:
        """Let time pass until then, or until a while after all is over."""
        while self._turns and self._turns[0][0] <= end_s:
            self.now_s, _, turn = heapq.heappop(self._turns)
            turn()

    def of(self, *rings: str) -> list[FieldDevice]:
        return [device for device in self.devices if device.ring in rings]

    def _published(self, name: str, sequence: int) -> PublishedRelease:
        model, pipeline = f"model of {name}".encode() * 100, f"name: {name}\n".encode()
        files = (bundled("model.onnx", Role.MODEL, model), bundled("pipeline.yaml", Role.PIPELINE, pipeline))
        made = manifest(sequence=sequence, files=files)
        contents = {"model.onnx": model, "pipeline.yaml": pipeline}
        digest = self.registry.put_bundle(encode_manifest(made), b"sig", contents)
        return PublishedRelease(made, self.registry.manifests[digest])

    def _device(self, name: str, ring: str, bad: float, lying: float) -> FieldDevice:
        is_bad, is_lying = self._random.random() < bad, self._random.random() < lying
        return FieldDevice(
            name=name,
            ring=ring,
            registry=self.registry,
            clock=self.clock,
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

    def _watch_ring(self, number: int) -> None:
        ring = self._rings[number]
        members = {device.name for device in self.devices if device.ring == ring}
        condition = Condition.parse(self._condition.replace("RING", ring))
        release = self.new.manifest.release
        watch = RingWatch(
            self.desk, "stable", release, condition, members, clock=self.clock, boottime_s=lambda: self.now_s
        )

        def look() -> None:
            _, decision = watch.look(self._said)
            if decision.what == "wait":
                self._after(LOOK_S, look)
                return
            self.decisions.append((ring, decision))
            if decision.what == "stop":
                self.promoter.withdraw(release, "stable", decision.why)
            elif number + 1 < len(self._rings):
                self.promoter.promote(self.new, self._rings[number + 1])
                self._watch_ring(number + 1)

        self._after(LOOK_S, look)

    def _after(self, seconds: float, turn: Callable[[], None]) -> None:
        heapq.heappush(self._turns, (self.now_s + seconds, next(self._number), turn))


def busiest_per_s(registry: MemoryRegistry) -> float:
    """Return the most requests a second, averaged over ten of them."""
    begins = range(min(registry.asked), max(registry.asked) + 1)
    return max(sum(registry.asked[second] for second in range(begin, begin + 10)) for begin in begins) / 10
