"""What is announced, and what is remembered of it between starts: entities, and streams."""

import json

import jinja2
import msgspec
import pytest

from edge.config.schema import MqttConfig, PublishConfig, StreamConfig
from edge.publish.discovery import ANNOUNCED_FILE, KEPT_FILE, announcements, removed_streams
from edge.publish.messages import LineCounts
from tests.support.logged import logged
from tests.support.wire_messages import birth, occupancy

SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]


def stream(name="east", *, zones=("yard",), lines=("gate",), classes=None):
    tracking = {
        "zones": [{"id": zone, "polygon": SQUARE, "classes": classes} for zone in zones],
        "lines": [{"id": line, "start": [0, 0], "end": [1, 1]} for line in lines],
    }
    return msgspec.convert({"id": name, "uri": "rtsp://a", "classes": classes, "tracking": tracking}, StreamConfig)


def announced(folder, *streams, on=True, **publish):
    config = MqttConfig(host="broker", site="north", home_assistant=on)
    return {
        one.topic: one.payload
        for one in announcements(config, birth(), streams, publish=PublishConfig(**publish), state_dir=folder)
    }


def removed(found):
    return {topic for topic, payload in found.items() if not payload}


def test_all_are_retained_json_with_names_of_their_own(tmp_path):
    found = announced(tmp_path, stream(), stream("west", zones=("yard", "lawn")))
    entities = [json.loads(payload) for payload in found.values()]

    assert all(topic.startswith("homeassistant/") and topic.endswith("/config") for topic in found)
    assert len({entity["unique_id"] for entity in entities}) == len(entities)
    assert all(
        one.is_retained
        for one in announcements(MqttConfig(host="b"), birth(), [], publish=PublishConfig(), state_dir=tmp_path)
    )


def test_a_camera_shows_the_picture_where_pictures_are_published_and_only_there(tmp_path):
    topic = "homeassistant/camera/edge_north_gate-01/east_picture/config"

    assert json.loads(announced(tmp_path, stream(), pictures_s=10)[topic])["topic"].endswith("/streams/east/picture")
    assert announced(tmp_path, stream())[topic] == b""  # and goes where they no longer are
    assert topic not in announced(tmp_path / "other", stream())


def test_labels_that_look_alike_are_two_entities(tmp_path):
    found = announced(tmp_path, stream(classes=["a b", "a-b", "+#/"]))

    assert len([topic for topic in found if "objects_a-b" in topic]) == 2
    assert all(not set("+# ") & set(topic) for topic in found)


def test_another_prefix(tmp_path):
    assert all(topic.startswith("house/main/") for topic in announced(tmp_path, stream(), on="house/main"))


@pytest.mark.parametrize("label", ["car", 'say "hi"', "}}", "it's", "{% raw %}", "back\\slash", "Straße"])
def test_templates_count_whatever_a_label_is_called(tmp_path, label):
    found = announced(tmp_path, stream(classes=[label]))
    message = occupancy(
        objects={label: 2}, zones={"yard": {label: 1}}, lines={"gate": LineCounts(forward={label: 4}, backward={})}
    )
    value_json = json.loads(message.encode())

    def shown(name):
        (payload,) = (json.loads(payload) for topic, payload in found.items() if f"/{name}" in topic)
        return jinja2.Environment().from_string(payload["value_template"]).render(value_json=value_json)

    assert (shown("east_objects_"), shown("east_zone_yard_"), shown("east_line_gate_forward")) == ("2", "1", "4")


def test_what_went_is_taken_away_also_by_later_starts(tmp_path):
    announced(tmp_path, stream(), stream("west"))
    gone = removed(announced(tmp_path, stream()))

    assert gone
    assert all("west" in topic for topic in gone)
    assert removed(announced(tmp_path, stream())) == gone  # the broker may have been away
    assert removed(announced(tmp_path, stream(), stream("west"))) == set()


def test_off_takes_everything_away(tmp_path):
    before = announced(tmp_path, stream())

    assert removed(announced(tmp_path, stream(), on=False)) == set(before)
    assert announced(tmp_path / "new", stream(), on=False) == {}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": "edge.home-assistant/1", "topics": 3}', b"\xff"])
def test_a_damaged_list_is_told_and_written_anew(tmp_path, caplog, content):
    (tmp_path / KEPT_FILE).write_bytes(content)
    found = announced(tmp_path, stream())

    assert removed(found) == set()
    assert "home-assistant-unusable" in logged(caplog)
    assert json.loads((tmp_path / KEPT_FILE).read_text())["topics"] == list(found)


def test_a_state_folder_that_cannot_be_written_is_told(tmp_path, caplog):
    (tmp_path / "file").write_text("")

    assert announced(tmp_path / "file", stream())
    assert "home-assistant-not-kept" in logged(caplog)


def test_what_a_new_pipeline_does_not_have_is_removed_at_each_start(tmp_path):
    assert removed_streams(tmp_path, ["east", "west"]) == (), "a first start has removed nothing"
    assert removed_streams(tmp_path, ["east"]) == ("west",)
    assert removed_streams(tmp_path, ["east"]) == ("west",), "the broker may not have been there"
    assert removed_streams(tmp_path, ["west"]) == ("east",)


def test_only_so_many_are_remembered_the_latest_first(tmp_path):
    removed_streams(tmp_path, [f"old-{n}" for n in range(200)])
    removed_streams(tmp_path, [f"new-{n}" for n in range(200)])
    kept = json.loads((tmp_path / ANNOUNCED_FILE).read_text())["streams"]

    assert len(kept) == 256
    assert {f"new-{n}" for n in range(200)} <= set(kept)


def test_a_damaged_file_is_begun_anew(tmp_path, caplog):
    for content in ("", "[]", '{"format": "edge.announced/1"}', '{"format": "edge.announced/1", "streams": [1]}'):
        (tmp_path / ANNOUNCED_FILE).write_text(content)
        assert removed_streams(tmp_path, ["east"]) == ()
        assert "streams-file-unusable" in logged(caplog)
        assert removed_streams(tmp_path, []) == ("east",)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, caplog):
    assert removed_streams(tmp_path / "absent", ["east"]) == ()
    assert "streams-not-remembered" in logged(caplog)
