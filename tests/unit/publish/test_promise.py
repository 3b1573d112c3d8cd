"""The checker of the promise sees what it is for: an order that does not hold, a mark that is not true."""

import json

import pytest

from tests.support.promise import findings


def came(seq, *, kind="events", epoch=41, **keys):
    one = {"stream": "east", "epoch": epoch, "seq": seq} | keys
    return f"edge/{kind}", json.dumps(one).encode()


def judge(*messages):
    found = findings(messages, has_events=True)
    found.prove({("east events", 41): 3, ("east events", 42): 1}, most_duplicates=1)


NEWER = came(1, epoch=42)


def test_marked_ones_are_in_an_order_of_their_own_and_may_be_duplicates_of_others():
    judge(came(3), NEWER, came(1, recovered=True), came(2, recovered=True), came(3, recovered=True))


@pytest.mark.parametrize(
    "messages",
    [
        (came(3), NEWER, came(1), came(2)),
        (came(3), NEWER, came(1, recovered=False), came(2, recovered=True)),
        (came(3), NEWER, came(2, recovered=True), came(1, recovered=True)),
        (came(1), came(2), came(3), came(1, epoch=42, recovered=True)),
    ],
    ids=["late without a mark", "one of two marked", "marked ones in no order", "marked by its own start"],
)
def test_what_is_out_of_order_or_marked_without_a_cause_breaks_it(messages):
    with pytest.raises(AssertionError, match=r"first came after|recovered"):
        judge(*messages)
