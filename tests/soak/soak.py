"""A soak: break things for so many minutes, then judge what the subscriber received and what the process used."""

import itertools
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.outages import REST_S, Faults, Outage
from tests.soak.scene import FPS, Scene
from tests.soak.vitals import Flat, Sample, Vitals

RECOVERY_S = 5.0
_PATIENCE_S = 60.0


@dataclass
class Account:
    """What came of a soak; seconds.

    Attributes:
        recoveries: by kind of outage, from up to the first message that came after it.
        others: how far apart the messages of streams came while something happened to another stream's camera.
        calm: the same while nothing was broken.
        taken: how many numbers came neither nor were declared, because a broker was killed that had acknowledged them.
        broken: what does not hold and has to on any machine: the promise, whose pictures, what comes back, threads and
            descriptors. Empty when the soak is good.
        late: what does not hold and has to where the machine keeps up: times, and memory in the long run.
    """

    minutes: float
    cameras: int
    outages: Sequence[Outage]
    stats: Mapping
    samples: Sequence[Sample]
    flat: Sequence[Flat]
    load: float
    recoveries: Mapping[str, list[float]]
    others: list[float]
    calm: list[float]
    received: int = 0
    duplicates: int = 0
    declared: int = 0
    taken: int = 0
    broken: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


def soak(
    folder: Path,
    *,
    minutes: float,
    cameras: int,
    dying_every_s: float | None = None,
    seed: int = 12,
) -> Account:
    """Run the service for so long and return the account.

    Args:
        folder: an empty one.
        minutes: how long things are broken.
        cameras: how many.
        dying_every_s: one camera after the other dies so often, and nothing else happens; None: everything happens.
        seed: of what is chosen by chance.
    """
    with Scene(folder, cameras) as scene:
        vitals = Vitals(scene.pid)
        try:
            outages = _break(scene, minutes, dying_every_s, seed)
            for outage in outages:
                _await_back(scene, outage)
        finally:
            vitals.stop()
        stats = scene.end()
        return _account(scene, vitals, outages, stats, minutes)


def _break(scene: Scene, minutes: float, dying_every_s: float | None, seed: int) -> list[Outage]:
    faults = Faults(scene, seed=seed)
    kinds = faults.all_kinds() if dying_every_s is None else faults.cameras_dying(dying_every_s)
    outages: list[Outage] = []
    deadline = time.monotonic() + minutes * 60
    while time.monotonic() < deadline:
        scene.is_running()
        outages.append(next(kinds)())
        if dying_every_s is None:
            _await_back(scene, outages[-1])
            time.sleep(REST_S)
    return outages


def _await_back(scene: Scene, outage: Outage) -> None:
    """Wait until messages come again; what is not back in time is found by the account."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and _back_at(scene, outage) is None:
        time.sleep(0.05)


def _back_at(scene: Scene, outage: Outage) -> float | None:
    names = scene.names if outage.stream is None else [outage.stream]
    times = [scene.subscriber.first_after(name, outage.up) for name in names]
    return None if None in times else max(one for one in times if one is not None)


def _account(scene: Scene, vitals: Vitals, outages: list[Outage], stats: Mapping, minutes: float) -> Account:
    others, calm = _intervals(scene, outages)
    recoveries = defaultdict(list)
    for outage in outages:
        back = _back_at(scene, outage)
        if outage.is_gap and back is not None:
            recoveries[outage.kind].append(back - outage.up)
    found, taken = scene.subscriber.reading.found, scene.record.taken.all()
    account = Account(
        minutes=minutes,
        cameras=len(scene.names),
        outages=outages,
        stats=stats,
        samples=vitals.samples,
        flat=vitals.judged([(one.begun, _back_at(scene, one) or one.up + _PATIENCE_S) for one in outages]),
        load=statistics.mean(vitals.loads),
        recoveries=dict(recoveries),
        others=others,
        calm=calm,
        received=sum(len(numbers) for numbers in found.received.values()),
        duplicates=found.duplicates,
        declared=sum(len(numbers) for numbers in found.declared.values()),
        taken=sum(len(found.undeclared(one, max(numbers, default=0)) & numbers) for one, numbers in taken.items()),
    )
    account.broken += [*_broken_promises(scene, stats), *_never_back(scene, account), *_grown(account, is_memory=False)]
    account.late += [*_late(scene, account), *_grown(account, is_memory=True)]
    return account


def _broken_promises(scene: Scene, stats: Mapping) -> list[str]:
    """Return what is wrong with the messages."""
    subscriber = scene.subscriber
    broken = [*subscriber.errors, *subscriber.strangers[:10]]
    epochs = {epoch for _, epoch in subscriber.reading.found.received}
    published = {(one["id"], max(epochs)): one["inferred"] for one in stats["streams"] if one["inferred"]}
    mqtt = stats["published"]["mqtt"]
    try:
        # What is taken back to what was saved a second ago is sent to the subscriber again, too.
        taken = scene.record.taken.all()
        most_duplicates = mqtt["largest_window"] * mqtt["connections"] + sum(map(len, taken.values()))
        subscriber.reading.found.prove(published, most_duplicates=most_duplicates, taken=taken)
    except AssertionError as error:
        broken.append(str(error))
    if not stats["balanced"]:
        broken.append("the service's own account does not balance")
    if len(epochs) != 1:
        broken.append(f"the service has begun {len(epochs)} times")
    if "Traceback" in scene.told():
        broken.append("the service has told a traceback")
    return broken


def _grown(account: Account, *, is_memory: bool) -> list[str]:
    figures = [one for one in account.flat if not one.is_flat and one.name.startswith("memory") is is_memory]
    return [f"{one.name}: {one.before:.1f}, then {one.after:.1f}" for one in figures]


def _never_back(scene: Scene, account: Account) -> list[str]:
    lost = [outage for outage in account.outages if _back_at(scene, outage) is None]
    return [f"{one.kind} {one.stream or ''}: not back within {_PATIENCE_S:g} s" for one in lost]


def _late(scene: Scene, account: Account) -> list[str]:
    """Return what is wrong with times."""
    late = []
    for kind, times in account.recoveries.items():
        if statistics.median(times) > RECOVERY_S:
            late.append(f"{kind}: back after {', '.join(f'{one:.1f} s' for one in times)}")
    median = statistics.median(account.others)
    if not 0.9 / FPS < median < 1.1 / FPS:
        late.append(f"the others came every {median * 1e3:.0f} ms while a camera was dying")
    own = Counter(outage.stream for outage in account.outages)
    own.update(name for outage in account.outages if "a camera dies" in outage.kind for name in scene.names)
    for name in scene.names:
        downs = scene.subscriber.states[name]["down"]
        if downs > 2 * own[name] + 1:
            late.append(f"{name} was down {downs} times, of its own camera's {own[name]} faults")
    return late


def _intervals(scene: Scene, outages: list[Outage]) -> tuple[list[float], list[float]]:
    """Return the intervals of streams that nothing happened to, while a camera died and while nothing was broken."""
    spans = [(one.begun, _back_at(scene, one) or one.up + _PATIENCE_S, one.stream) for one in outages]
    others: list[float] = []
    calm: list[float] = []
    for name in scene.names:
        times = scene.subscriber.arrivals[name]
        own = [(begun, back) for begun, back, stream in spans if stream in (name, None)]
        theirs = [(begun, back) for begun, back, stream in spans if stream not in (name, None)]
        for first, second in itertools.pairwise(times):
            if _meets(own, first, second):
                continue
            (others if _meets(theirs, first, second) else calm).append(second - first)
    return others, calm


def _meets(spans: list[tuple[float, float]], first: float, second: float) -> bool:
    return any(begun <= second and first <= back for begun, back in spans)
