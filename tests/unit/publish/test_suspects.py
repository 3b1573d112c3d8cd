"""No message, topic or kind of message at which a broker breaks stops the others: model brokers in virtual time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.publish.mqtt.suspects import Suspects
from edge.publish.outbox.message import entry_from_message
from tests.support.model_broker import disconnect, run
from tests.support.wire_messages import detections

BIG_BYTES = 3000
BIG = 60  # objects
DECLARED_WITHIN_S = 31.0


def big_in_a_hundred(stream, seq):
    return BIG if stream == "west" and seq % 100 == 50 else 1


def at(condition, what):
    return lambda message: what if condition(message) else 0


def is_west(message):
    return "/west/" in message.topic


def is_big(message):
    return message.size_bytes > BIG_BYTES


def is_retained(message):
    return message.is_retained


def is_home_assistant(message):
    return message.topic.startswith("homeassistant/")


def is_one_of_west(message):
    return is_west(message) and b'"seq":7,' in message.payload


KINDS = {
    "one-message": is_one_of_west,
    "big": is_big,
    "topic": is_west,
    "retained": is_retained,
    "tree": is_home_assistant,
}
ACTS = {
    "closes": "close",
    "disconnects-0x87": disconnect(0x87),
    "disconnects-0x95": disconnect(0x95),
    "refuses-0x87": 0x87,
    "refuses-0x95": 0x95,
    "refuses-0x97": 0x97,
    "refuses-0x80": 0x80,
    "never-answers": None,
}
# what it does, at what, the least share of the innocent stream in its time, and what is declared of the other one
BEHAVIOURS = [
    ("closes", "one-message", 0.99, {"refused"}),
    ("closes", "big", 0.99, {"oversize"}),
    ("closes", "topic", 0.99, {"refused"}),
    ("closes", "retained", 0.93, set()),
    ("closes", "tree", 0.93, set()),
    ("disconnects-0x87", "one-message", 0.99, {"refused"}),
    ("disconnects-0x87", "topic", 0.99, {"refused"}),
    ("disconnects-0x87", "retained", 0.93, set()),
    ("disconnects-0x87", "tree", 0.93, set()),
    ("disconnects-0x95", "big", 0.99, {"oversize"}),
    ("refuses-0x87", "one-message", 0.99, {"refused"}),
    ("refuses-0x87", "topic", 0.99, {"refused"}),
    ("refuses-0x87", "retained", 0.99, set()),
    ("refuses-0x87", "tree", 0.99, set()),
    ("refuses-0x95", "big", 0.99, {"oversize"}),
    ("refuses-0x97", "one-message", 0.99, {"refused"}),
    ("refuses-0x97", "topic", 0.99, {"refused"}),
    ("refuses-0x97", "retained", 0.99, set()),
    ("refuses-0x97", "tree", 0.99, set()),
    ("refuses-0x80", "one-message", 0.99, {"refused"}),
    ("refuses-0x80", "topic", 0.99, {"refused"}),
    ("never-answers", "one-message", 0.99, {"refused"}),
    ("never-answers", "big", 0.99, {"refused"}),
    ("never-answers", "topic", 0.99, {"refused"}),
    ("never-answers", "retained", 0.99, set()),
    ("never-answers", "tree", 0.99, set()),
]


@pytest.mark.parametrize("round_trip_s", [0.002, 0.3], ids=["near", "far"])
@pytest.mark.parametrize(("act", "kind", "share", "reasons"), BEHAVIOURS)
def test_the_innocent_stream_gets_its_share_and_the_rest_is_declared_with_its_reason(
    act, kind, share, reasons, round_trip_s
):
    outcome, end_s = run(
        at(KINDS[kind], ACTS[act]),
        seconds=120,
        objects=big_in_a_hundred,
        announcements=6,
        round_trip_s=round_trip_s,
        receive_maximum=100,
    )

    assert outcome.share_in_time("east", end_s) >= share
    assert outcome.declared["east"] == {}
    assert outcome.reasons("west") == reasons
    for stream in ("east", "west"):
        assert outcome.unaccounted(stream, end_s - DECLARED_WITHIN_S) == []
    assert outcome.undeclared == 0


@pytest.mark.parametrize("lost_acks", [1, 3, 10])
def test_acknowledgements_that_were_lost_with_the_connection_accuse_nobody(lost_acks):
    outcome, end_s = run(at(is_big, "close"), objects=big_in_a_hundred, lost_acks=lost_acks)

    assert outcome.share_in_time("east", end_s) >= 0.9
    assert set(outcome.declared["west"]) <= {seq for seq in outcome.published["west"] if seq % 100 == 50}
    assert outcome.declared["east"] == {}


def test_a_size_that_was_found_out_costs_two_messages_and_no_more_connections():
    outcome, _ = run(at(is_big, "close"), objects=big_in_a_hundred, seconds=60)
    longer, _ = run(at(is_big, "close"), objects=big_in_a_hundred, seconds=240)

    assert outcome.reasons("west") == {"oversize"}
    assert longer.connections == outcome.connections


def test_all_that_was_held_while_the_broker_refused_everything_comes_once_it_does_not():
    seen = []

    def answer(message):
        seen.append(message)
        return 0x97 if len(seen) <= 20 else 0

    outcome, end_s = run(answer, streams=("east", "west", "north", "south"), fps=25, seconds=60)

    assert outcome.connections == 1
    for stream, published in outcome.published.items():
        assert outcome.unaccounted(stream, end_s - 5) == []
        assert len(outcome.declared[stream]) <= 0.01 * len(published)


def test_a_topic_that_is_allowed_again_is_served_again():
    allowed_from = []

    def answer(message):
        if len(allowed_from) < 700:
            allowed_from.append(message)
            return "close" if is_west(message) else 0
        return 0

    outcome, end_s = run(answer, seconds=400)

    late = {seq for seq, at_s in outcome.published["west"].items() if end_s - 30 < at_s < end_s - 3}
    assert late <= outcome.arrived["west"].keys()


def test_a_network_that_breaks_at_random_loses_no_message():
    import random

    rng = random.Random(7)
    outcome, end_s = run(lambda message: "close" if rng.random() < 0.001 else 0, seconds=120, lost_acks=3)

    for stream in ("east", "west"):
        assert len(outcome.declared[stream]) <= 0.01 * len(outcome.published[stream])
        assert outcome.unaccounted(stream, end_s - 60) == []


def test_sixty_announcements_at_which_a_broker_closes_leave_the_streams_alone():
    outcome, end_s = run(at(is_home_assistant, "close"), announcements=60, seconds=120)

    assert outcome.share_in_time("east", end_s) >= 0.9
    assert outcome.declared["east"] == {}


def test_a_topic_at_which_a_broker_closes_costs_few_connections():
    outcome, _ = run(at(is_west, "close"), fps=0.5, seconds=60)

    assert outcome.connections <= 20


def test_a_refusal_for_good_ends_the_hold_of_its_topic():
    answers = iter([0x97, 0x87])

    outcome, end_s = run(lambda message: next(answers, 0) if is_west(message) else 0, seconds=30)

    assert outcome.share_in_time("west", end_s) >= 0.9
    assert len(outcome.declared["west"]) == 1


def test_a_backlog_that_fills_the_window_and_is_never_acknowledged_is_given_up():
    outcome, end_s = run(at(is_west, None), backlog=12, seconds=120)

    late = [seq for seq, at_s in outcome.published["east"].items() if 1060 < at_s < end_s - 3]
    assert len(outcome.arrived["east"].keys() & set(late)) >= 0.9 * len(late)


def test_messages_given_up_unacknowledged_do_not_use_up_the_receive_maximum():
    outcome, end_s = run(
        at(is_big, None),
        objects=big_in_a_hundred,
        fps=25,
        round_trip_s=0.15,
        receive_maximum=20,
        lost_acks=2,
        seconds=120,
    )

    assert outcome.share_in_time("east", end_s) >= 0.9


def test_the_sender_waits_while_nothing_can_be_sent():
    outcome, _ = run(at(is_home_assistant, None), announcements=60, seconds=40)

    assert outcome.steps <= 40 * 100


@pytest.mark.slow(reason="forty brokers, each for two minutes of its clock")
@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from([*KINDS]),
    act=st.sampled_from([one for one in ACTS if "0x95" not in one]),
    round_trip_s=st.sampled_from([0.001, 0.02, 0.15]),
    receive_maximum=st.sampled_from([20, 100, 65_535]),
    lost_acks=st.integers(0, 5),
    fps=st.sampled_from([2.0, 10.0, 25.0]),
    seed=st.integers(0, 1000),
)
def test_any_such_broker_leaves_the_innocent_stream_alone(
    kind, act, round_trip_s, receive_maximum, lost_acks, fps, seed
):
    outcome, end_s = run(
        at(KINDS[kind], ACTS[act]),
        seconds=120,
        objects=big_in_a_hundred,
        announcements=4,
        round_trip_s=round_trip_s,
        receive_maximum=receive_maximum,
        lost_acks=lost_acks,
        fps=fps,
        seed=seed,
    )

    assert outcome.share_in_time("east", end_s) >= 0.9
    assert outcome.unaccounted("west", end_s - DECLARED_WITHIN_S) == []
    assert outcome.declared["east"] == {}


def test_an_acknowledgement_ends_the_first_silence_of_all_too():
    suspects, entry = Suspects(now_s=lambda: 0.0), entry_from_message(detections(1))
    suspects.is_silent_again(entry)
    suspects.took(entry, 500)

    assert not suspects.is_silent_again(entry)


def test_a_message_is_not_proven_by_losses_within_seconds():
    now_s = 100.0
    suspects = Suspects(now_s=lambda: now_s)
    one = [(entry_from_message(detections(1)), 500)]
    for _ in range(6):
        assert suspects.lost(one, has_taken=True, is_trial=True) is None
    now_s += 6.0
    assert suspects.lost(one, has_taken=True, is_trial=True) == "refused"


def losses_alone(suspects, one, *, most):
    """Return how many losses at which it was alone prove a message; None: not even `most`."""
    return next((n for n in range(1, most + 1) if suspects.lost(one, has_taken=True, is_trial=True) is not None), None)


def test_a_network_that_breaks_without_a_message_takes_more_losses_to_prove_it():
    now_s = 100.0
    suspects = Suspects(now_s=lambda: now_s)
    one = [(entry_from_message(detections(1)), 500)]
    suspects.lost(one, has_taken=True, is_trial=True)
    now_s += 6.0
    for seq in range(2, 5):
        suspects.lost([(entry_from_message(detections(seq, stream="west")), 500)], has_taken=True)

    assert losses_alone(suspects, one, most=9) == 5


def test_losses_before_a_broker_was_away_prove_nothing():
    now_s = 100.0
    suspects = Suspects(now_s=lambda: now_s)
    one = [(entry_from_message(detections(1)), 500)]
    for _ in range(2):
        suspects.lost(one, has_taken=True, is_trial=True)
    now_s += 6.0
    suspects.forgive()

    assert suspects.lost(one, has_taken=True, is_trial=True) is None


@pytest.mark.parametrize("ends", ["proven", "silent"])
def test_a_message_that_was_given_up_leaves_its_topic_unsuspected_in_the_end(ends):
    now_s = 100.0
    suspects = Suspects(now_s=lambda: now_s)
    entry = entry_from_message(detections(1))
    suspects.lost([(entry, 500)], has_taken=True, is_trial=True)
    assert suspects.is_apart(entry_from_message(detections(2)))
    if ends == "proven":
        suspects.proven(entry, 500)
    else:
        assert [suspects.is_silent_again(entry) for _ in range(3)] == [False, True, False]
    now_s += 700.0  # longer than a topic is watched or blocked

    assert not suspects.is_apart(entry_from_message(detections(2)))


@pytest.mark.parametrize("seed", range(8))
def test_a_radio_link_that_breaks_every_third_of_a_second_loses_no_message(seed):
    outcome, _ = run(
        lambda message: 0,
        seconds=60,
        fps=20,
        round_trip_s=0.1,
        receive_maximum=100,
        seed=seed,
        lives_s=lambda rng: rng.expovariate(1 / 0.3),
    )

    assert outcome.declared == {}
