"""Whatever a device says, in whatever field: the client has an answer of the agreed types, or an error by its name."""

import json
import math
import threading

import pytest

from edge.codec import encode
from edge.delivery.link import Link
from edge.errors import EXIT_CODE_OF, DeployError
from edge.wire.peer import Peer
from edge.wire.verbs import VERBS
from tests.support.scripted_device import ScriptedDevice, exchanges, transcript

HELLO = next(said.body.decode() for said in transcript() if said.who == "agent")
DEEP = "[" * 12 + "]" * 12
# As JSON, so that each reaches the client's own parser.
NO_NUMBERS = {
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus Infinity": "-Infinity",
    "1e400": "1e400",
    "2 ** 70": str(2**70),
    "a number of 400 digits": "9" * 400,
    "a number of 4000 digits": "9" * 4000,
    "a number of 100,000 digits": "9" * 100_000,
}
OTHERS = {
    "null": "null",
    "true": "true",
    "a text": '"\\u001b]52;c;x\\u0007 \\u202e"',
    "half a surrogate pair": '"\\ud800"',
    "a long text": '"' + "x" * 200_000 + '"',
    "minus one": "-1",
    "a fraction": "0.5",
    "a list": "[[], {}]",
    "an object": '{"a": {"b": "\\u001b[31m"}}',
    "deep": DEEP,
}


def _recorded():
    """Yield each kind of frame that a device sends once, the largest one: what it answers, its verb, its values."""
    largest = {}
    for asked, said in exchanges():
        kind = (asked, said.verb)
        if asked != "hello" and len(said.body) > len(largest.get(kind, b"")):
            largest[kind] = said.body
    return {f"{verb} to {asked}": (asked, verb, json.loads(body)) for (asked, verb), body in largest.items()}


RECORDED = _recorded()


def _paths(value, path=()):
    """Yield the way to each value within a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        if not (path == () and key in ("verb", "id")):
            yield (*path, key)
            yield from _paths(inner, (*path, key))


def _with(value, path, evil):
    """Return the JSON of `value` with `evil`, which is JSON, at `path`."""
    copy = json.loads(json.dumps(value))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "here it goes"
    return json.dumps(copy).replace('"here it goes"', evil)


def _ask(asked, said):
    """Ask a device that answers by these bodies; return what came of it."""

    def answers(verb, values):
        for text in said:
            head = json.dumps({"id": values["id"]})[1:-1]
            yield text.replace('"id": 0', head, 1)

    device = ScriptedDevice(HELLO, answers)
    told = []
    link = Link(device, threading.Event())
    verb = VERBS[asked]
    try:
        return link.ask(verb, _request(verb), told.append), told
    except DeployError as error:
        return error, told
    finally:
        link.close()


def _request(verb):
    said = next(said for said in transcript() if said.who == "client" and said.verb == verb.name)
    values = {name: value for name, value in said.values.items() if name not in ("verb", "id")}
    return Peer(is_device=False, revision=0).read(verb.request, values, where=verb.name)


def _bodies(asked, verb, values, path, evil):
    text = _with({**values, "id": 0}, path, evil)
    last = next(value for one, _, value in RECORDED.values() if one == asked and value["verb"] == "ok")
    return [text] if verb != "progress" else [text, json.dumps({**last, "id": 0})]


def _all_texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _all_texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _all_texts(inner)


def _check_fit(result, told):
    if isinstance(result, DeployError):
        assert result.code.partition(".")[0] in EXIT_CODE_OF, result.code
        assert str(result).isprintable()
        assert all(text.isprintable() for text in _all_texts(json.loads(json.dumps(result.evidence, allow_nan=False))))
        assert len(str(result)) < 20_000
    else:
        plain = json.loads(json.dumps(encode(result), allow_nan=False))
        assert all(text.isprintable() for text in _all_texts(plain))
    assert all(math.isfinite(one.done) and (one.total is None or math.isfinite(one.total)) for one in told)


@pytest.mark.parametrize("evil", NO_NUMBERS.values(), ids=NO_NUMBERS)
@pytest.mark.parametrize("frame", RECORDED)
def test_a_number_that_is_none_is_refused_in_every_field_by_name(frame, evil):
    asked, verb, values = RECORDED[frame]
    for path in _paths(values):
        result, told = _ask(asked, _bodies(asked, verb, values, path, evil))
        _check_fit(result, told)
        assert isinstance(result, DeployError), path
        assert result.code == "transfer.protocol", path
        if len(evil) < 1000:  # beyond, the frame itself is refused
            assert result.evidence["field"].startswith(asked), path
            assert str(path[0]) in result.evidence["field"], path


@pytest.mark.parametrize("evil", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("frame", RECORDED)
def test_whatever_stands_in_a_field_fits_it_or_is_an_error(frame, evil):
    asked, verb, values = RECORDED[frame]
    for path in _paths(values):
        _check_fit(*_ask(asked, _bodies(asked, verb, values, path, evil)))


@pytest.mark.parametrize("frame", RECORDED)
def test_a_device_of_this_protocol_says_nothing_that_was_not_agreed_on(frame):
    asked, verb, values = RECORDED[frame]
    for name in set(values) - {"verb", "id"}:
        left = {key: value for key, value in values.items() if key != name}
        result, told = _ask(asked, _bodies(asked, verb, {**left, "x": 0}, ("x",), "0"))
        _check_fit(result, told)
        assert isinstance(result, DeployError)  # "x" is nothing that a device of this revision may say


@pytest.mark.parametrize("evil", {**NO_NUMBERS, **OTHERS}.values(), ids={**NO_NUMBERS, **OTHERS})
def test_a_hello_of_any_kind_is_understood_or_refused(evil):
    values = json.loads(HELLO)
    for path in [*_paths(values), ("revision",)]:
        device = ScriptedDevice(_with(values, path, evil), lambda verb, values: iter(()))
        try:
            link = Link(device, threading.Event())
            found = link.hello
        except DeployError as error:
            found = error
        _check_fit(found, [])
        assert getattr(found, "code", "transfer.version") in ("transfer.protocol", "transfer.version"), path
