from hypothesis import given
from hypothesis import strategies as st

from edge.publish.ledger import AccountKey, Ledger, Ranges
from edge.publish.messages import GapMessage
from tests.support.wire_messages import detections, event

KEY = AccountKey("gate-01", "east", 41)


def gap(first, last, of="detections"):
    numbers = {"from_": first, "to": last, "count": last - first + 1}
    return GapMessage(device="gate-01", stream="east", epoch=41, **numbers, reason="refused", of=of)


def accounts(*messages):
    ledger = Ledger()
    for message in messages:
        ledger.enter(message)
    return ledger


def test_a_hole_is_missing_until_it_comes_or_is_declared():
    ledger = accounts(detections(5), detections(6), detections(10))
    assert list(ledger.accounts[KEY].missing) == [(7, 9)]
    ledger.enter(detections(8))
    ledger.enter(gap(7, 7))
    assert ledger.missing == 1
    ledger.enter(gap(9, 9))
    assert ledger.missing == 0


def test_an_epoch_has_its_own_account():
    ledger = accounts(detections(7), detections(1, epoch=42))

    assert ledger.missing == 0
    assert len(ledger.accounts) == 2


def test_a_gap_of_events_declares_nothing_of_detections():
    ledger = accounts(detections(1), detections(3), event(1), event(3), gap(2, 2, of="events"))

    declared = {str(key): account.missing.total for key, account in ledger.accounts.items()}
    assert declared == {"gate-01/east epoch 41": 1, "gate-01/east events epoch 41": 0}


steps = st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 6)), min_size=1, max_size=40)


@given(steps)
def test_accounts_agree_with_sets(steps):
    received, declared, duplicates, first, highest = set(), set(), 0, None, 0
    ledger = Ledger()
    for is_gap, number, more in steps:
        last = number + more if is_gap else number
        first = number if first is None else first
        ledger.enter(gap(number, last) if is_gap else detections(number))
        highest = max(highest, last)
        if is_gap:
            declared |= set(range(number, last + 1)) - received
        elif number >= first:
            duplicates += number in received
            received.add(number)
            declared.discard(number)
    declared = {number for number in declared if number >= first}
    account = ledger.accounts[KEY]

    assert account.received == len(received)
    assert account.duplicates == duplicates
    assert {n for low, high in account.declared for n in range(low, high + 1)} == declared
    assert account.missing.total == len(set(range(first, highest + 1)) - received - declared)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60), st.integers(-1, 12)), max_size=40))
def test_ranges_agree_with_a_set(steps):
    ranges, expected = Ranges(), set()
    for is_added, first, more in steps:
        numbers = set(range(first, first + more + 1))
        if is_added:
            ranges.add(first, first + more)
            expected |= numbers
        else:
            assert ranges.remove(first, first + more) == len(expected & numbers)
            expected -= numbers
        assert ranges.total == len(expected)
        assert {number for low, high in ranges for number in range(low, high + 1)} == expected
        flat = [bound for pair in ranges for bound in pair]
        assert flat == sorted(flat)
        assert all(low - high > 1 for high, low in zip(flat[1::2], flat[2::2], strict=False))
