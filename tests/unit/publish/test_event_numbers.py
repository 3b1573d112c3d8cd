"""Events are numbered beside detections: accounts, gap records keep the two apart."""

from edge.publish.ledger import AccountKey, Ledger
from edge.publish.messages import GapMessage
from edge.publish.mqtt.subscriber import message_from_payload
from edge.publish.outbox.message import entry_from_message
from edge.publish.outbox.queue import Outbox
from tests.support.event_messages import event
from tests.support.wire_messages import detections


def accounts(*messages):
    ledger = Ledger()
    for message in messages:
        ledger.enter(message)
    return ledger


def lost(*, of, first=2, last=2):
    return GapMessage(device="gate-01", stream="east", epoch=41, from_=first, to=last, count=1, reason="refused", of=of)


def test_events_and_detections_have_accounts_of_their_own():
    ledger = accounts(detections(1), event(1), detections(2), event(3))

    missing = {key.of: list(account.missing) for key, account in ledger.accounts.items()}
    assert missing == {"detections": [], "events": [(2, 2)]}


def test_a_gap_of_events_declares_nothing_of_detections():
    ledger = accounts(detections(1), detections(3), event(1), event(3), lost(of="events"))

    declared = {key: account.missing.total for key, account in ledger.accounts.items()}
    assert declared == {
        AccountKey("gate-01", "east", 41): 1,
        AccountKey("gate-01", "east", 41, "events"): 0,
    }
    assert [str(key) for key in declared] == ["gate-01/east epoch 41", "gate-01/east events epoch 41"]


def test_what_an_outbox_lets_go_is_declared_by_kind():
    outbox = Outbox(device="gate-01")
    for message in (detections(1), event(1), detections(2), event(2)):
        outbox.put(entry_from_message(message))
    taken = [outbox.take() for _ in range(4)]
    for entry in sorted(taken, key=lambda entry: entry.number.seq):
        outbox.park(entry, "refused")

    gaps = [message_from_payload(outbox.take().encode()) for _ in range(2)]
    assert sorted((gap.of, gap.from_, gap.to, gap.count, gap.exact) for gap in gaps) == [
        ("detections", 1, 2, 2, True),
        ("events", 1, 2, 2, True),
    ]
