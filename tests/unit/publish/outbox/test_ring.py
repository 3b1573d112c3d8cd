import os
import struct
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.publish.frame import FrameMessage
from edge.publish.outbox.entry import entry_from_message
from edge.publish.outbox.kept import open_kept
from edge.publish.outbox.ring import RecoveredRing, Ring, RingError
from tests.support.wire_messages import MODEL, birth, found, frame_result


def left_in(path):
    found = RecoveredRing(path)
    assert not found.is_damaged
    return [(record.head, record.payload, record.was_sent) for record in found.records]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ring"


def test_what_was_not_settled_is_found_in_its_order(path):
    ring = Ring.create(path, 1 << 20)
    slots = [ring.append(b"head%d" % n, b"payload%d" % n) for n in range(10)]
    for n in (0, 3, 9):
        slots[n].settle()
    slots[4].mark_sent()
    ring.close()

    assert left_in(path) == [(b"head%d" % n, b"payload%d" % n, n == 4) for n in (1, 2, 4, 5, 6, 7, 8)]


def test_a_payload_is_read_from_where_it_lies(path):
    ring = Ring.create(path, 1 << 20)
    slots = [ring.append(b"head", b"%d" % n * n) for n in range(100)]

    assert [slot.read() for slot in slots] == [b"%d" % n * n for n in range(100)]
    ring.close()


def test_a_full_ring_says_so_and_takes_again_what_was_settled(path):
    ring = Ring.create(path, 1 << 16)
    slots = []
    while (slot := ring.append(b"head", bytes(1000))) is not None:
        slots.append(slot)
    assert 50 <= len(slots) <= 65
    for slot in slots[:20]:
        slot.settle()
    more = 0
    while ring.append(b"more", bytes(1000)) is not None:
        more += 1
    ring.close()

    assert more >= 10
    assert [head for head, _, _ in left_in(path)] == [b"head"] * (len(slots) - 20) + [b"more"] * more


def test_a_payload_larger_than_a_segment_is_never_taken(path):
    ring = Ring.create(path, 1 << 16)

    assert not ring.could_hold(8192)
    assert ring.could_hold(8000)
    assert ring.append(b"head", bytes(8192)) is None
    assert ring.append(b"head", bytes(8000)) is not None
    ring.close()


def test_of_two_notes_the_newer_one_counts_and_a_torn_one_does_not(path):
    ring = Ring.create(path, 1 << 16)
    for n in range(5):
        assert ring.note(b"note%d" % n)
    ring.close()
    assert RecoveredRing(path).notes == b"note4"

    content = path.read_bytes()
    at = content.index(b"note4")
    path.write_bytes(content[:at] + b"X" + content[at + 1 :])
    assert RecoveredRing(path).notes == b"note3"


def test_a_note_that_is_too_long_leaves_the_one_before(path):
    ring = Ring.create(path, 1 << 16)
    ring.note(b"before")

    assert not ring.note(bytes(1 << 20))
    ring.close()
    assert RecoveredRing(path).notes == b"before"


def test_one_process_has_it(path):
    ring = Ring.create(path, 1 << 16)
    with pytest.raises(RingError, match="another process uses it"):
        RecoveredRing(path)
    with pytest.raises(RingError, match="another process uses it"):
        Ring.create(path, 1 << 16)
    ring.close()

    assert left_in(path) == []


@pytest.mark.parametrize("content", [b"", b"edge.ring/1\n", bytes(1 << 20), b"\xff" * (1 << 20)])
def test_what_is_no_ring_is_damaged(path, content):
    path.write_bytes(content)

    assert RecoveredRing(path).is_damaged


def test_a_flipped_bit_costs_its_segment_from_there_on_and_is_told(path):
    ring = Ring.create(path, 1 << 16)
    for n in range(20):
        ring.append(b"head%d" % n, b"payload%d;" % n + bytes(1000))
    ring.close()
    content = bytearray(path.read_bytes())
    content[content.index(b"payload3;")] ^= 1
    path.write_bytes(content)
    found = RecoveredRing(path)

    assert found.is_damaged
    heads = [record.head for record in found.records]
    assert heads[:3] == [b"head0", b"head1", b"head2"]
    assert b"head3" not in heads
    assert b"head19" in heads, "other segments are read"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5)), max_size=120))
def test_whatever_is_kept_and_settled_exactly_the_rest_is_found(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("ring") / "ring"
    ring, alive = Ring.create(path, 1 << 16), {}
    for number, (size, settled) in enumerate(steps):
        slot = ring.append(b"%d" % number, os.urandom(size))
        if slot is not None:
            alive[number] = slot
        for _ in range(settled):
            if alive:
                alive.pop(min(alive, key=lambda n: (n * 7919) % 101)).settle()
    expected = [(b"%d" % n, alive[n].read(), False) for n in sorted(alive)]
    ring.close()

    assert left_in(path) == expected


_WRITER = """
import mmap, os, sys
from pathlib import Path
from edge.publish.outbox.ring import Ring
ring = Ring.create(Path(sys.argv[1]), 1 << 17)
numbers = memoryview(mmap.mmap(os.open(sys.argv[2], 2), 16)).cast("Q")  # each written at once, unlike by struct
waiting, number = [], 0
print("ready", flush=True)
while True:
    number += 1
    slot = ring.append(b"%d" % number, b"%d;" % number * (number % 300))
    if slot is None:
        number -= 1
    else:
        waiting.append((number, slot))
        numbers[0] = number
    while len(waiting) > 150 or (waiting and slot is None):
        settled, old = waiting.pop(0)
        numbers[1] = settled
        old.settle()
        slot = old
"""


@pytest.mark.integration
def test_f37_a_writer_that_is_killed_at_any_point_leaves_all_that_it_had_kept(tmp_path):
    numbers = tmp_path / "numbers"
    for round_ in range(200 if os.environ.get("EDGE_LONG_TESTS") else 20):
        path = tmp_path / f"ring{round_}"
        numbers.write_bytes(bytes(16))
        with subprocess.Popen([sys.executable, "-c", _WRITER, path, numbers], stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(0.02 + 0.003 * (round_ % 20))
            writer.kill()
        kept, settled = struct.unpack("@QQ", numbers.read_bytes())
        left = left_in(path)

        heads = [int(head) for head, _, _ in left]
        assert heads == sorted(heads)
        assert set(range(settled + 1, kept + 1)) <= set(heads), f"round {round_}"
        assert set(heads) <= set(range(max(1, settled), kept + 2))
        assert all(payload == b"%d;" % int(head) * (int(head) % 300) for head, payload, _ in left)
        path.unlink()


def frame_entry(seq, *, labels):
    result = frame_result(found(*[(seq, 2, 30, 40)] * 12))
    frame = FrameMessage(result, device="gate-01", epoch=41, seq=seq, labels=labels, model=MODEL)
    return entry_from_message(frame)


@pytest.mark.parametrize("is_other_model", [False, True])
def test_what_the_next_start_takes_over_is_kept_again_or_declared(path, is_other_model):
    info = birth()
    kept, _ = open_kept(path, 1 << 16, info=info)
    payloads = {}
    while (stored := kept.store(frame_entry(len(payloads) + 1, labels=info.labels), len(payloads) + 1)) is not None:
        payloads[len(payloads) + 1] = stored.encode()
    kept.close()
    changed = msgspec.structs.replace(info, epoch=42, labels=["another"] if is_other_model else info.labels)
    for _ in range(3):  # each start may be killed before anything is sent
        kept, left = open_kept(path, 1 << 16, info=changed)
        assert all(entry.slot is not None for entry in left.entries)
        assert all(entry.encode() == payloads[entry.number.seq] for entry in left.entries)
        declared = {number for gap in left.gaps for number in range(gap.from_, gap.to + 1)}
        assert declared | {entry.number.seq for entry in left.entries} == set(payloads)
        assert bool(declared) == is_other_model, "as JSON they take more room than packed"
        kept.close()
