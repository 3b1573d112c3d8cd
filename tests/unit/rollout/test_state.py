"""What is kept of a rollout is read as it was written, or not at all."""

import json
from datetime import datetime, timezone

import pytest

from edge.rollout.rules import Rules
from edge.rollout.state import RingState, RolloutState, decode_rollout, encode_rollout

AT = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)


def made(**values):
    given = {
        "serial": 1,
        "claim": "c",
        "channel": "stable",
        "release": "0123456789ab",
        "digest": "sha256:" + "0" * 64,
        "sequence": 2,
        "rules": Rules(),
        "rings": (RingState(name="canary", known=3, began_at=AT), RingState(name="all", known=40)),
        "silent": {"north/gate-07": AT},
    }
    return RolloutState(**{**given, **values})


def test_it_comes_back_as_it_was_written():
    state = made().changed(at=AT, by="me", what="started", claim="d")
    assert decode_rollout(encode_rollout(state)) == state
    assert (state.serial, state.claim, state.steps[0].what) == (2, "d", "started")


def test_it_is_a_text_that_a_person_can_read():
    told = json.loads(encode_rollout(made()))
    assert told["format"] == "edge.rollout/1"
    assert told["rings"][0]["began_at"] == "2026-11-23T12:00:00Z"


def test_steps_are_kept_the_latest_of_them():
    state = made()
    for number in range(250):
        state = state.changed(at=AT, by="me", what=f"step {number}", claim="d")
    assert (len(state.steps), state.steps[-1].what) == (200, "step 249")


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "edge.rollout/2"},
        {"digest": "sha256:12"},
        {"channel": "Stable!"},
        {"release": "0123\x1b[2Jab"},
        {"rings": []},
        {"rings": [{"name": "a", "known": 1}]},
        {"rings": [{"name": "a", "known": 1}, {"name": "b", "known": 1, "began_at": "2026-11-23T12:00:00Z"}]},
        {"rings": [{"name": "a", "known": 1, "began_at": "2026-11-23T12:00:00Z"}] * 2},
        {"rings": [{"name": "a", "known": -1, "began_at": "2026-11-23T12:00:00Z"}]},
        {"phase": "asleep"},
        {"rules": {"share": 7.0}},
        {"silent": {"north/gate-07": "yesterday"}},
    ],
)
def test_what_is_no_such_state_is_refused(changes):
    text = {**json.loads(encode_rollout(made())), **changes}
    with pytest.raises(ValueError, match=r".+"):
        decode_rollout(json.dumps(text).encode())


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{}", b"[" * 100_000])
def test_what_is_no_text_of_ours_is_refused(content):
    with pytest.raises(ValueError, match=r".+"):
        decode_rollout(content)
