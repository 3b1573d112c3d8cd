import json

from edge.publish.discovery import ANNOUNCED_FILE, removed_streams
from tests.support.logged import logged


def test_a_first_start_has_removed_nothing(tmp_path):
    assert removed_streams(tmp_path, ["east", "west"]) == ()


def test_what_a_new_pipeline_does_not_have_is_removed_at_each_start(tmp_path):
    removed_streams(tmp_path, ["east", "west"])

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
