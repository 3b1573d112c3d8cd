"""What a health file may say, how it is replaced, and when a health check says that nothing serves."""

import dataclasses
import json
import math
import os
import stat

import pytest

from edge.device.health import decode_health, read_health, why_unwell, write_health
from tests.support.values import health

SERVES = health(
    {"east": ("down", 0)}, release="", batches=7, at_boottime_ns=100_000_000_000, infer_p95_ms=None, age_p95_ms=None,
    mqtt_connected=False,
)  # fmt: skip


def unwell(health, *, after_s=1.0):
    return why_unwell(health, now_boottime_ns=100_000_000_000 + int(after_s * 1e9), max_age_s=10)


def test_a_runtime_whose_camera_and_broker_are_away_is_well():
    assert unwell(SERVES) is None
    assert unwell(SERVES, after_s=10) is None


@pytest.mark.parametrize(
    ("health", "after_s", "why"),
    [
        (None, 0, "no health file"),
        (dataclasses.replace(SERVES, is_ready=False), 0, "not ready"),
        (SERVES, 10.5, "at most 10 s"),
        (SERVES, -5, "-5 s old"),  # of a boot before
    ],
)
def test_why_nothing_may_be_serving(health, after_s, why):
    assert why in (unwell(health, after_s=after_s) or "")


WRITTEN = {
    "release": "a" * 12,
    "invocation": "1",
    "at_boottime_ns": 5,
    "is_ready": True,
    "batches": 3,
    "infer_p95_ms": 4.5,
    "age_p95_ms": None,
    "mqtt_connected": None,
    "mqtt_acknowledged": 2,
    "streams": {"gate": {"state": "up", "decoded": 9, "inferred": 8}},
}


def decoded(values):
    return decode_health(json.dumps(values).encode())


def changed(key, value):
    """Return what was written, but for a value of it or of its stream."""
    if key in WRITTEN:
        return {**WRITTEN, key: value}
    return {**WRITTEN, "streams": {"gate": {**WRITTEN["streams"]["gate"], key: value}}}


def test_a_health_file_says_what_a_runtime_wrote():
    health = decoded(WRITTEN)
    assert (health.release, health.invocation, health.at_boottime_ns, health.is_ready) == ("a" * 12, "1", 5, True)
    assert (health.batches, health.infer_p95_ms, health.age_p95_ms) == (3, 4.5, None)
    assert (health.mqtt_connected, health.mqtt_acknowledged) == (None, 2)
    gate = health.streams["gate"]
    assert (list(health.streams), gate.state, gate.decoded, gate.inferred) == (["gate"], "up", 9, 8)


COUNTS = [-1, 2**63, 1.0, True, None, "1"]


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *(("release", value) for value in (7, None, "a" * 65)),
        *(("invocation", value) for value in (7, None, "1" * 65)),
        *(("batches", value) for value in COUNTS),
        *(("mqtt_acknowledged", value) for value in COUNTS),
        *(("at_boottime_ns", value) for value in (2**63, -(2**63), 1.5, None, "5")),
        *(("infer_p95_ms", value) for value in (-0.1, True, "4", [])),
        *(("age_p95_ms", value) for value in (-0.1, False, "4", [])),
        *(("is_ready", value) for value in (1, None, "true")),
        *(("mqtt_connected", value) for value in (0, "false", [])),
        *(("decoded", value) for value in COUNTS),
        *(("inferred", value) for value in COUNTS),
        *(("state", value) for value in (7, "", "Up", "a" * 17, "a\n")),
    ],
)
def test_a_health_file_with_a_value_that_cannot_be_is_refused_and_names_it(key, wrong):
    with pytest.raises(ValueError, match=rf"^not a health file: .*{key}.*: expected"):
        decoded(changed(key, wrong))


@pytest.mark.parametrize(
    "names",
    [["Gate"], ["a" * 33], [""], [f"s{number}" for number in range(1025)]],
    ids=["case", "long", "none", "many"],
)
def test_streams_are_few_and_named_as_in_a_pipeline_file(names):
    one = WRITTEN["streams"]["gate"]
    with pytest.raises(ValueError, match="streams: expected at most 1024, named as in a pipeline file"):
        decoded({**WRITTEN, "streams": dict.fromkeys(names, one)})


def test_as_many_streams_as_there_may_be_are_taken():
    streams = {f"s{number}": WRITTEN["streams"]["gate"] for number in range(1024)}
    assert decoded({**WRITTEN, "streams": streams}).streams.keys() == streams.keys()


@pytest.mark.parametrize("length_ms", [math.inf, math.nan])
def test_a_length_of_time_without_end_is_refused_before_it_is_written(length_ms):
    with pytest.raises(ValueError, match="age_p95_ms: expected a length of time"):
        dataclasses.replace(SERVES, age_p95_ms=length_ms)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"streams": []}', b'{"streams": {"gate": 7}}', json.dumps(WRITTEN).encode()[:-9]]
)
def test_what_is_no_health_file_is_refused_and_read_as_none(tmp_path, content):
    with pytest.raises(ValueError, match=r"^not a health file: "):
        decode_health(content)
    (tmp_path / "health.json").write_bytes(content)
    assert read_health(tmp_path / "health.json") is None


def test_of_a_file_that_is_wrong_throughout_what_it_is_of_is_named_before_what_it_counts():
    with pytest.raises(ValueError, match=r"^not a health file: health.release: expected a text"):
        decoded({**WRITTEN, "release": 7, "batches": -1})


@pytest.fixture
def narrow_mask():
    before = os.umask(0o077)  # as the service has it
    yield
    os.umask(before)


@pytest.mark.usefixtures("narrow_mask")
def test_whoever_may_enter_its_folder_may_read_the_file_whatever_the_services_mask(tmp_path):
    write_health(tmp_path / "health.json", SERVES)
    assert stat.S_IMODE((tmp_path / "health.json").stat().st_mode) == 0o644


def test_a_later_word_takes_the_place_of_the_one_before_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "health.json"
    write_health(path, SERVES)
    write_health(path, dataclasses.replace(SERVES, batches=8))
    assert json.loads(path.read_bytes())["batches"] == 8
    assert os.listdir(tmp_path) == ["health.json"]


def filled_folder(path):
    (path / "inner").mkdir(parents=True)
    (path / "inner/file").touch()


@pytest.mark.parametrize("leave", [lambda path: path.write_bytes(b"half"), filled_folder], ids=["file", "folder"])
@pytest.mark.parametrize("name", [".health.json.part", "health.json"])
def test_what_a_runtime_that_was_killed_has_left_under_its_names_is_in_nobodys_way(tmp_path, name, leave):
    leave(tmp_path / name)
    write_health(tmp_path / "health.json", SERVES)
    assert json.loads((tmp_path / "health.json").read_bytes())["batches"] == 7
    assert os.listdir(tmp_path) == ["health.json"]
