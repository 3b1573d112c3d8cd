"""F-37: what a power cut or a kill can leave of the store, after each call that a real start makes of the kernel.

A start is recorded that spools through an outage, sends some, lets go what is too much, and sends the rest. After each
of its calls the power is cut; of every state of the disk that is tried, a next start has to deliver or to declare each
number. Another start has a folder in /run as well: a kill leaves all that was written, a power cut only the disk. What
lies between two calls of a move is a state of its own.
"""

import json
import os
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from edge.publish.outbox.message import entry_from_message
from edge.publish.outbox.recovery import SpoolPlace, open_outbox
from tests.support.kernel_steps import CutDisk, record, why_not
from tests.support.promise import Reading
from tests.support.spooling_process import BOUNDS, EPOCH
from tests.support.wire_messages import birth, detections

ROOT = Path(__file__).parents[4]
STATES = 60 if os.environ.get("EDGE_LONG_TESTS") else 2
EVERY = 1 if os.environ.get("EDGE_LONG_TESTS") else 7
RUN = "outbox.db"
ACCOUNTS = {"detections": ("east", EPOCH), "events": ("east events", EPOCH)}

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no process can be traced: {why_not()}")


class Said:
    """What the start had said before the cut."""

    def __init__(self):
        self.put = {"detections": 0, "events": 0}
        self.written = {"detections": 0, "events": 0}
        self.taken, self.acked = set(), set()

    def hear(self, text):
        what, kind, seq = text.decode().split()
        if what in ("put", "written"):
            getattr(self, what)[kind] = int(seq)
        else:
            getattr(self, what).add((kind, int(seq)))


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "disk"
    folder.mkdir()
    return record(["-m", "tests.support.spooling_process", str(folder)], folder, cwd=ROOT)


@pytest.fixture
def folder():
    """A folder in memory, where there is one: what SQLite does to each state is not recorded."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        yield Path(name)


def next_start(folder, state, *, run_path=None):
    """Return what the next start delivers of a state of the disk, and closes well."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name, content in state.items():
        (folder / name).write_bytes(content)
    info = msgspec.structs.replace(birth(), epoch=EPOCH + 1)
    spool = SpoolPlace(folder / "spool.db", BOUNDS)
    outbox, keeper = open_outbox(info, max_bytes=60_000, live_s=0.0, run_path=run_path, spool=spool)
    outbox.put(entry_from_message(detections(1, epoch=EPOCH + 1)))
    received, idle = [], 0
    while idle < 3:
        entry = outbox.take()
        if entry is None:
            keeper.tick()
            idle += not outbox.has_more()
            continue
        idle = 0
        received.append((f"edge/{entry.topic}", entry.encode()))
        outbox.acknowledge(entry)
    assert outbox.counts()["waiting"] == 0
    keeper.close()
    return received


def judge(received, said):
    """Return what of the promise does not hold."""
    reading = Reading(may_be_open=True, has_events=True)
    for topic, payload in received:
        reading.enter(topic, payload)
    found, broken = reading.found, list(reading.found.broken)
    for kind, account in ACCOUNTS.items():
        acked = {seq for one, seq in said.acked if one == kind}  # or its gap record
        last, written = said.put[kind], said.written[kind]
        lost = found.undeclared(account, last) - acked
        if lost:
            broken.append(f"{kind}: neither came nor declared {sorted(lost)[:10]} of {last}")
        if found.open_from.get(account, last + 1) <= written and written:
            broken.append(
                f"{kind}: {written} were on the disk, all from {found.open_from[account]} are said to be lost"
            )
        if found.exactly[account] & found.received[account].keys():
            broken.append(f"{kind}: exactly lost, and received")
    sent = {seq for kind, seq in said.taken | said.acked if kind == "events"}
    came = found.received["east events", EPOCH].keys() | {seq for kind, seq in said.acked if kind == "events"}
    if missing := sent - came:
        broken.append(f"events were sent, and are not there any more: {sorted(missing)}")
    if missing := set(range(1, said.written["events"] + 1)) - came:
        broken.append(f"events were on the disk, and are lost: {sorted(missing)}")
    if found.received["east", EPOCH + 1] != {1: 1}:
        broken.append("the new start's own message did not come")
    return broken


def cuts(calls, *, most, skip=lambda call: False):
    """Yield each state after each call, and what had been said by then."""
    disk, said, dice = CutDisk(), Said(), random.Random(37)
    for number, call in enumerate(calls):
        if call.kind == "say":
            for line in call.content.splitlines():
                said.hear(line)
            continue
        if not skip(call):
            disk.apply(call)
        for state in disk.states(dice, most):
            yield number, state, said


@pytest.mark.slow(reason="enumerates power cuts")
def test_f37_every_power_cut_loses_no_event_and_declares_every_frame(calls, folder):
    kinds = {call.kind for call in calls}
    assert {"create", "write", "sync", "sync_dir", "say"} <= kinds
    states, broken, seen = 0, [], set()
    for number, state, said in cuts(calls, most=STATES):
        key = (hash(tuple(sorted(state.items()))), str(said.put), str(said.written), len(said.taken), len(said.acked))
        if key in seen:
            continue
        seen.add(key)
        states += 1
        broken += [f"after call {number}: {what}" for what in judge(next_start(folder, state), said)]
        assert not broken, "\n".join(broken)
    print(f"{sum(call.kind != 'say' for call in calls)} calls, {states} states, {len(broken)} violations")
    assert states > 300


def test_the_enumeration_sees_a_sync_that_is_left_out(calls, folder):
    """That the test can fail: without the syncs of the log, what was said to be on the disk is not."""
    found = []
    for _, state, said in cuts(calls, most=2, skip=lambda call: call.kind == "sync" and call.path.endswith("-wal")):
        found += judge(next_start(folder, state), said)
        if found:
            break

    assert found


def test_what_a_cut_took_is_declared_once(calls, folder):
    disk = CutDisk()
    for call in calls[: len(calls) // 2]:
        disk.apply(call)
    (state, *_) = disk.states(random.Random(1), 1)
    gaps = [json.loads(payload) for topic, payload in next_start(folder, state) if topic.endswith("/gaps")]

    assert sorted(gap["of"] for gap in gaps if gap["reason"] == "power-loss") == ["detections", "events"]
    state = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = next_start(folder, state)
    assert not [topic for topic, _ in again if topic.endswith("/gaps")]


@pytest.fixture(scope="module")
def calls_of_both(tmp_path_factory):
    place = tmp_path_factory.mktemp("recorded") / "disk"
    place.mkdir()
    return record(["-m", "tests.support.spooling_process", str(place), RUN], place, cwd=ROOT)


def cuts_and_kills(calls):
    """Yield each state, its kind, and what had been said by then; kills after each call around a move."""
    disk, said, dice = CutDisk(), Said(), random.Random(60)
    for number, call in enumerate(calls):
        if call.kind == "say":
            for line in call.content.splitlines():
                said.hear(line)
            continue
        disk.apply(call)
        is_move = call.path.startswith("spool.db")
        if is_move or number % EVERY == 0:
            yield number, "kill", disk.killed(), said
        if is_move and number % EVERY == 0:
            (state,) = disk.states(dice, 1)
            yield number, "power cut", {name: one for name, one in state.items() if RUN not in name}, said


@pytest.mark.slow(reason="enumerates kills and power cuts")
def test_f37_kills_and_power_cuts_of_both_places_lose_no_event_and_declare_every_frame(calls_of_both, folder):
    seen, tried = set(), Counter()
    for number, kind, state, said in cuts_and_kills(calls_of_both):
        key = hash(tuple(sorted(state.items()))), str(said.put), len(said.taken), len(said.acked)
        if key in seen:
            continue
        seen.add(key)
        tried[kind] += 1
        broken = judge(next_start(folder, state, run_path=folder / RUN), said)
        call = calls_of_both[number]
        assert not broken, f"{kind} after call {number} ({call.kind} {call.path}): {broken}"
    print(f"{len(calls_of_both)} calls, {dict(tried)}")
    assert tried["kill"] > 200
    assert tried["power cut"] > 20


@pytest.mark.slow(reason="enumerates kills")
def test_the_enumeration_sees_a_move_that_deletes_first(calls_of_both, folder):
    """That the test can fail: a disk that has not got the rows which /run has given away."""
    found = []
    for _, kind, state, said in cuts_and_kills(calls_of_both):
        if kind == "kill" and said.written["detections"]:
            without = {name: one for name, one in state.items() if "spool.db" not in name}
            found += judge(next_start(folder, without, run_path=folder / RUN), said)
        if found:
            break
    assert found
