"""All that reads a stranger's JSON refuses the same: one reader for all, `edge.reading.json_value`."""

import io
import json
import time

import pytest

from edge.bundle.checks import read_object
from edge.calibrate.table import read_json_document
from edge.deploy.provision.facts import read_lock
from edge.errors import EdgeError
from edge.evaluate.golden import decode_golden
from edge.reading import UnfitJson, json_object, json_value
from edge.transport.channel import read_frame

ATTACKS = {
    "NaN": b'{"verb": "x", "a": NaN}',
    "Infinity": b'{"verb": "x", "a": -Infinity}',
    "too large": b'{"verb": "x", "a": 1e999}',
    "digits": b'{"verb": "x", "a": ' + b"9" * 30 + b"}",
    "two million digits": b'{"verb": "x", "a": ' + b"9" * 250_000 + b"}",
    "twice": b'{"verb": "x", "a": 1, "a": 2}',
    "twice within": b'{"verb": "x", "b": {"a": 1, "a": 2}}',
    "17 levels": b'{"verb": "x", "a": ' + b"[" * 15 + b"1" + b"]" * 15 + b"}",
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
    "no UTF-8": b"\xff{}",
    "a coded half of a pair": b'{"verb": "\xed\xa0\x80"}',
    "nothing": b"",
    "a list": b"[1]",
    "a text": b'"a"',
    "cut off": b'{"verb": "x"',
    "two": b'{"verb": "x"} {}',
}


def _frame(content, path):
    return read_frame(io.BytesIO((len(content) + 1).to_bytes(4, "big") + b"\x00" + content).read)


def _table(content, path):
    path.write_bytes(content)
    document = read_json_document(path, expected="a table")
    assert isinstance(document.content, dict), "an error of the caller's"
    return document.content


READERS = {
    "the reader": lambda content, path: json_object(content),
    "of text": lambda content, path: json_object(content.decode("utf-8")),
    "signed": lambda content, path: read_object(content, max_bytes=256 << 10),
    "frames": _frame,
    "tables": _table,
    "golden": lambda content, path: decode_golden(content),
    "wheels": lambda content, path: read_lock(content),
}
# Left to what reads the values, which names their place: `edge.codec` the field, the table's reader the line.
NAMES_THE_PLACE = {"frames": ("NaN", "Infinity", "too large", "digits"), "tables": ("NaN", "Infinity", "too large")}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("reader", READERS)
def test_a_strangers_json_is_refused_at_once_by_an_error_of_ours(reader, attack, tmp_path):
    if attack in NAMES_THE_PLACE.get(reader, ()):
        READERS[reader](ATTACKS[attack], tmp_path / "one.json")
        return
    begun_s = time.thread_time()
    with pytest.raises((EdgeError, ValueError, AssertionError)) as refused:
        READERS[reader](ATTACKS[attack], tmp_path / "one.json")
    assert time.thread_time() - begun_s < 2
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("attack", "kind"),
    [("17 levels", "depth"), ("deep lists", "depth"), ("twice within", "duplicate"), ("digits", "json")],
)
def test_a_refusal_says_its_kind(attack, kind):
    with pytest.raises(UnfitJson) as refused:
        json_value(ATTACKS[attack])
    assert refused.value.kind == kind


def test_what_is_longer_than_its_bound_is_not_parsed():
    with pytest.raises(UnfitJson) as refused:
        json_value(b"[1, 2]", most_bytes=5)
    assert refused.value.kind == "size"
    assert json_value(b"[1, 2]", most_bytes=6) == [1, 2]


def test_plain_json_is_read_to_the_last_digit_and_level():
    deep = b'{"a": ' + b"[" * 14 + b"1" + b"]" * 14 + b"}"
    assert json_value(deep) == json.loads(deep)
    assert json_value(b'{"a": [1, 2.5, null, true, "b"], "c": 18446744073709551615}') == {
        "a": [1, 2.5, None, True, "b"],
        "c": 2**64 - 1,
    }
