"""What of a conversation was done well: told from its frames."""

import pytest

from edge.runtime.software.account import Account, FrameTap
from edge.runtime.software.turns import ANY
from edge.transport.frames import Blob, Message, encode_frame

HELLO, OK, ERR = "hello", "ok", "err"


def account(*requests, is_left=True):
    """Return the account of a conversation: of each request its verb, its answer, and what it asked."""
    told = Account()
    told.is_left = is_left
    told.answered(Message(HELLO, {}))
    told.heard(Message(HELLO, {}))
    for number, (verb, answer, *values) in enumerate(requests, start=1):
        told.heard(Message(verb, {"id": number, **(values[0] if values else {})}))
        if answer is not None:
            told.answered(Message("progress", {"id": number}))
            told.answered(Message(answer, {"id": number}))
    return told


PUSH = [(verb, OK) for verb in ("plan", "lock", "plan", "put-manifest", "have", "blob", "stage", "build", "switch")]


@pytest.mark.parametrize(
    "requests",
    [
        [("status", OK)],
        [*PUSH, ("status", OK), ("lock", OK), ("gc", OK)],
        [("plan", OK), ("build", OK, {"detach": True})],
        [("ping", None), ("status", OK)],
        [("status", OK), ("look", ERR)],
    ],
)
def test_what_is_asked_and_answered_is_done_well(requests):
    assert account(*requests).owed(0) is None


@pytest.mark.parametrize(
    ("requests", "owed"),
    [
        ([("status", None)], "status"),
        ([("status", ERR), ("facts", OK)], "status"),
        ([("plan", ERR)], "plan"),
        ([("plan", OK)], "plan"),  # unchanged, refused, or only planned: each is a lie of some agent
        ([*PUSH[:-1]], "plan"),
        ([*PUSH[:-1], ("switch", None)], "plan"),
        ([*PUSH[:-1], ("switch", ERR)], "plan"),
        ([*PUSH[:-2], ("build", OK)], "plan"),
        ([*PUSH[:5], ("blob", None)], "plan"),
        ([*PUSH, ("status", ERR)], "status"),
        ([("lock", ERR)], "plan"),
        ([("rollback", ERR)], "rollback"),
    ],
)
def test_what_is_not_is_owed_and_all_of_a_push_by_its_first_question(requests, owed):
    assert account(*requests).owed(0) == owed


def test_where_nothing_was_asked_anything_is_owed():
    assert account().owed(0) == ANY
    assert account(("ping", None)).owed(0) == ANY


def test_an_agent_that_leaves_before_its_client_has_not_done_well():
    assert account(("status", OK), is_left=False).owed(0) == "status"


@pytest.mark.parametrize("verb", [None, "status"])
def test_an_agent_that_refuses_whoever_says_hello_owes_what_was_asked_or_else_a_push(verb):
    told = account(*([] if verb is None else [(verb, None)]))
    told.answered(Message(ERR, {"id": 0}))

    assert told.owed(0) == (verb or "plan")


def test_an_agent_that_ends_before_anything_is_asked_owes_a_push():
    assert account(is_left=False).owed(0) == "plan"


@pytest.mark.parametrize(("requests", "owed"), [([], "plan"), ([("status", OK)], "status"), (PUSH, "plan")])
def test_who_ends_with_an_error_owes_what_was_asked_last(requests, owed):
    assert account(*requests).owed(1) == account(*requests).owed(-9) == owed


def test_an_answer_to_something_else_is_none():
    told = account(("status", None))
    told.answered(Message(OK, {"id": -1}))

    assert told.owed(0) == "status"


@pytest.mark.parametrize(
    ("requests", "alone"),
    [
        (PUSH, None),
        ([*PUSH[:-1], ("switch", None)], "switch"),
        ([("build", None)], None),
        ([("build", None, {"detach": True})], "build"),
        ([("build", OK, {"detach": True})], "build"),
        ([("build", ERR, {"detach": True})], None),
        ([("rollback", None)], "rollback"),
    ],
)
def test_an_agent_goes_on_alone_where_a_device_must_not_be_left_half_way(requests, alone):
    assert account(*requests).goes_on_alone == alone


def test_messages_are_found_however_the_bytes_come():
    sent = [Message("plan", {"id": 1}), Blob(b"x" * 70_000), Message("ok", {"id": 1})]
    content = b"".join(map(encode_frame, sent))
    for size in (1, 7, 4096, len(content)):
        tap = FrameTap()
        found = [one for at in range(0, len(content), size) for one in tap.take(content[at : at + size])]
        assert found == [sent[0], sent[2]]


@pytest.mark.parametrize(
    "content", [b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\x00\x00\x00\x00", b"\x00\x00\x00\x03\x00{}", b"\xff" * 10, b"\0" * 9]
)
def test_what_is_no_frame_ends_what_is_heard_and_is_not_kept(content):
    tap = FrameTap()
    tap.take(content)

    assert tap.is_broken
    assert tap.take(encode_frame(Message("ok", {}))) == []
