import json
from datetime import datetime, timedelta, timezone

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.publish import convert
from edge.publish.convert import detections_message, is_clock_synced, rfc3339_from_ns
from tests.support.wire_messages import birth, found, frame_result

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def message(result, labels=("person", "bicycle", "car")):
    return detections_message(result, info=msgspec.structs.replace(birth().run_info, labels=list(labels)), seq=2)


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_an_instant_agrees_with_the_calendar(unix_ns):
    expected = EPOCH + timedelta(microseconds=unix_ns // 1000)

    assert rfc3339_from_ns(unix_ns) == expected.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_frame_result_becomes_plain_rounded_values():
    box = (412.04, 233.46, 508.09, 304.93)
    made = message(frame_result(found(box), captured_at_ns=1_795_169_702_113_402_999))

    assert made.captured_at == "2026-11-20T10:15:02.113402Z"
    assert made.pts_us == 608_133_333
    assert made.age_ms.batch_wait == 6.0
    assert made.size == [1920, 1080]
    assert made.clock.source == "arrival"
    (item,) = made.detections
    assert (item.class_id, item.label, item.score) == (2, "car", 0.812)
    assert item.bbox == [412.0, 233.5, 96.0, 71.5]


def test_no_digit_of_float32_noise_reaches_the_wire():
    rng = np.random.default_rng(7)
    corners = np.sort(rng.random((50, 2, 2)) * 1000, axis=1).reshape(50, 4).astype(np.float32)
    text = message(frame_result(found(*corners.tolist()))).encode().decode()

    for item in json.loads(text)["detections"]:
        assert all(f"{number:.1f}" == str(number) for number in item["bbox"])


def test_a_class_without_a_label_has_none():
    (item,) = message(frame_result(found((0, 0, 1, 1))), labels=["person"]).detections

    assert (item.class_id, item.label) == (2, None)


def test_an_empty_frame_has_no_detections():
    assert message(frame_result(found())).detections == []


def test_the_clock_is_synced_or_unknown(tmp_path, monkeypatch):
    now_ns = 0
    marker = tmp_path / "synchronized"
    monkeypatch.setattr(convert, "_SYNC_MARKER", marker)
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)

    assert is_clock_synced() is None
    marker.touch()
    assert is_clock_synced() is None, "looked at the file for every frame"
    now_ns = 10_000_000_000
    assert is_clock_synced() is True
    monkeypatch.undo()
    convert._is_synced_at.cache_clear()


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_message_shares_nothing_with_the_result(count):
    result = frame_result(found(*[(0, 0, 10, 10)] * count))
    made = message(result)
    before = made.encode()
    result.detections.xyxy[:] = 99

    assert made.encode() == before
