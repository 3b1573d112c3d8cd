"""Values to plain JSON and back: what is refused and in which words, and what peers of two revisions understand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.codec import Misfit, Most, decode, encode, newer_than, since, spelled
from edge.errors import DeployError
from edge.reports import UnitState
from edge.wire.peer import (
    PROTOCOL,
    PROVISION,
    REVISION,
    UPDATE,
    ClientHello,
    DeviceHello,
    Peer,
    Problem,
    error_of,
    problem_of,
    read_client_hello,
    read_device_hello,
)
from edge.wire.verbs import TakesReport
from tests.support.scripted_device import transcript


@dataclass(frozen=True)
class Part:
    name: str
    share: float | None


@dataclass(frozen=True)
class Trouble:
    problem: str


@dataclass(frozen=True, kw_only=True)
class Thing:
    title: Annotated[str, Most(5)]
    count: Annotated[int, Most(9)]
    is_on: bool
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, int] = field(default_factory=dict)
    either: Part | Trouble
    before: str | None = spelled("from")
    rest: Mapping[str, object] = field(default_factory=dict)
    colour: str = since(2, "grey")


THING = Thing(
    title="title",
    count=3,
    is_on=True,
    parts=(Part("a", 0.5), Part("b", None)),
    by_name={"x": -1},
    either=Trouble("none"),
    before=None,
    rest={"deep": [1, {"text": "t"}]},
    colour="red",
)


def read(values, *, revision=2, ours=2):
    return decode(Thing, values, where="thing", revision=revision, ours=ours)


def plain(**changes):
    return json.loads(json.dumps({**encode(THING), **changes}))


def test_what_is_encoded_is_decoded_to_the_same():
    assert read(plain()) == THING
    assert plain()["from"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"title": "longer"}, "thing.title: expected a text of at most 5 characters, got one of 6"),
        ({"title": 5}, "thing.title: expected a text of at most 5 characters, got 5"),
        ({"count": 10}, "thing.count: expected a number from 0 to 9, got 10"),
        ({"count": -1}, "thing.count: expected a number from 0 to 9, got -1"),
        ({"count": True}, "thing.count: expected a whole number, got true"),
        ({"count": 1.0}, "thing.count: expected a whole number, got 1.0"),
        ({"count": 10**500}, "thing.count: expected a whole number, got a whole number of 1661 bits"),
        ({"is_on": 1}, "thing.is_on: expected true or false, got 1"),
        ({"parts": {}}, "thing.parts: expected a list, got an object of 0"),
        ({"parts": [{"name": "a"}]}, "thing.parts[0].share: expected a finite number or null, got nothing"),
        ({"parts": [{"name": "a", "share": float("nan")}]}, "thing.parts[0].share: expected a finite number, got NaN"),
        ({"by_name": {"x": "1"}}, "thing.by_name.x: expected a whole number, got the text '1'"),
        ({"either": {"share": 1}}, "thing.either.name: expected a text, got nothing"),
        ({"rest": {"deep": [float("inf")]}}, "thing.rest.deep[0]: expected a finite number, got Infinity"),
        ({"size": 3}, "thing.size: expected nothing of this name, got 3"),
        ({"si\x1bze": 3}, "thing.si?ze: expected nothing of this name, got 3"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(changes, words):
    with pytest.raises(Misfit) as caught:
        read(plain(**changes))
    assert str(caught.value) == words


def test_text_of_a_peer_cannot_move_a_cursor_or_turn_what_is_read():
    found = read(plain(title="a\x1b[2J"[:5], rest={"\x9bkey": "a\u202eb\r\nc"}))
    assert found.title == "a?[2J"
    assert found.rest == {"?key": "a?b  c"}


def test_what_a_later_peer_adds_is_passed_over_and_what_an_equal_one_adds_is_not():
    assert read(plain(size=3), revision=3) == THING
    with pytest.raises(Misfit, match=r"thing\.size"):
        read(plain(size=3), revision=2)


@pytest.mark.parametrize("revision", [1, 3, REVISION])
def test_what_earlier_peers_said_and_nobody_reads_any_more_is_passed_over(revision):
    takes = {
        "name": "gate-01",
        "channels": [],
        "sequences": {},
        "newest_created_at": None,
        "is_clock_sure": True,
        "signers": None,
        "revocation_list": None,
    }
    said = {**takes, "reset_at": None}

    assert decode(TakesReport, said, where="status.takes", revision=revision, ours=REVISION).name == "gate-01"
    with pytest.raises(Misfit):
        decode(TakesReport, {**takes, "no_such": None}, where="status.takes", revision=revision, ours=REVISION)


def test_what_an_earlier_peer_does_not_know_is_its_default_and_nothing_else_may_be_missing():
    without = plain()
    del without["colour"]
    assert read(without, revision=1).colour == "grey"
    with pytest.raises(Misfit, match=r"thing\.colour: expected a text, got nothing"):
        read(without, revision=2)
    del without["parts"]
    assert read(without, revision=0).parts == ()  # the first revision left out whatever had a default
    with pytest.raises(Misfit, match=r"thing\.parts"):
        read(without, revision=1)


def test_a_request_that_its_peer_is_too_old_for_is_named():
    assert newer_than(THING, 1) == ["colour"]
    assert newer_than(THING, 2) == []


def test_a_device_that_is_too_old_for_a_request_is_not_asked_and_the_mend_is_told():
    old = Peer(is_device=True, revision=1, software="0.1.0")
    with pytest.raises(DeployError) as caught:
        old.check_knows(THING, verb="paint")
    assert caught.value.code == "transfer.version"
    assert str(caught.value) == (f"the device's software (0.1.0) is too old for colour of 'paint'; {PROVISION}")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a loaded machine, not of ours
@given(st.dictionaries(st.sampled_from([*encode(THING), "other"]), JSON), st.integers(0, 3))
def test_whatever_is_decoded_is_a_thing_or_a_misfit(values, revision):
    try:
        told = json.dumps(encode(read(values, revision=revision)), allow_nan=False)
    except Misfit as misfit:
        told = str(misfit)
    assert told.isprintable()


def _hello(who):
    values = next(said.values for said in transcript() if said.who == who and said.verb == "hello")
    return {name: value for name, value in values.items() if name != "verb"}


@pytest.mark.parametrize(
    ("theirs", "mend"), [(PROTOCOL + 1, UPDATE), (0, PROVISION), (None, PROVISION), ("x", PROVISION)]
)
def test_a_device_of_another_protocol_is_told_apart_in_one_sentence_with_its_mend(theirs, mend):
    with pytest.raises(DeployError) as caught:
        read_device_hello({**_hello("agent"), "protocol": theirs})
    assert caught.value.code == "transfer.version"
    assert f"the device speaks protocol {theirs}" in str(caught.value)
    assert str(caught.value).endswith(mend)


@pytest.mark.parametrize(("theirs", "mend"), [(PROTOCOL + 1, PROVISION), (0, UPDATE)])
def test_a_client_of_another_protocol_is_told_which_side_to_mend(theirs, mend):
    with pytest.raises(DeployError) as caught:
        read_client_hello({"protocol": theirs, "software": "9\x1b[0m"})
    assert caught.value.code == "transfer.version"
    assert str(caught.value).endswith(mend)
    assert str(caught.value).isprintable()


def test_hellos_of_the_first_revision_and_of_a_later_one_are_understood():
    assert read_device_hello(_hello("agent"))[1].revision == 0
    assert read_client_hello(_hello("client")).revision == 0
    later = {
        **_hello("agent"),
        "revision": REVISION + 5,
        "mood": "fine",
        "facts": {**_hello("agent")["facts"], "moon": 1},
    }
    assert read_device_hello(later)[1].revision == REVISION + 5
    assert (
        read_client_hello({**encode(ClientHello()), "revision": REVISION + 1, "mood": "fine"}).revision == REVISION + 1
    )


def test_our_own_hellos_say_our_revision():
    hello, peer = read_device_hello(_hello("agent"))
    ours = encode(DeviceHello(facts=hello.facts, current=None))
    assert read_device_hello(json.loads(json.dumps(ours)))[1].revision == REVISION
    assert peer.software == "0.1.0"


def test_an_error_travels_and_one_of_a_later_version_is_still_an_error():
    error = DeployError("preflight.space", "full", hint="make room", evidence={"free_bytes": 3, "path": {1, 2}})
    back = error_of(problem_of(error))
    assert (back.code, back.problem, back.hint) == (error.code, error.problem, error.hint)
    unknown = error_of(problem_of(DeployError("weather.rain", "it rains")))
    assert (unknown.code, unknown.evidence) == ("device.unknown", {"code": "weather.rain"})


def test_a_text_that_no_peer_takes_is_cut_where_it_is_sent():
    told = problem_of(DeployError("build.failed", "x" * 100_000, hint="y" * 100_000))
    assert Peer(is_device=True).read(type(told), encode(told), where="err") == told


@pytest.mark.parametrize(
    "unit", [UnitState(), UnitState(active="active"), Problem(code="device.systemd", problem="why")]
)
def test_what_may_be_one_of_several_is_the_one_whose_fields_it_has(unit):
    """A unit's state has a default for each field, so that the names of a problem leave none of them out."""

    @dataclass(frozen=True)
    class Answer:
        unit: UnitState | Problem

    assert decode(Answer, json.loads(json.dumps(encode(Answer(unit)))), where="answer") == Answer(unit)
