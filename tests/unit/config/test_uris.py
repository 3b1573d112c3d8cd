from pathlib import Path

import pytest

from edge.config.uris import local_path

HERE = Path("/srv/pipelines")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("clips/a b'c\".mp4", "/srv/pipelines/clips/a b'c\".mp4"),
        ("/tmp/100%20.mp4", "/tmp/100%20.mp4"),
        ("dash:colon?x=1#2.mp4", "/srv/pipelines/dash:colon?x=1#2.mp4"),
        ("~/v.mp4", "/home/op/v.mp4"),
        ("~no-such-user.mp4", "/srv/pipelines/~no-such-user.mp4"),
        ("file:///clips/a%20b.mp4", "/clips/a b.mp4"),
        ("file://localhost/clips/a.mp4", "/clips/a.mp4"),
        ("FILE://LOCALHOST/clips/a.mp4", "/clips/a.mp4"),
        ("file:///clips/q?x=1.mp4", "/clips/q?x=1.mp4"),
        ("file:///clips/ha#sh.mp4", "/clips/ha#sh.mp4"),
        ("file://clips/a.mp4", "/srv/pipelines/clips/a.mp4"),
        ("file://../x.mp4", "/srv/pipelines/../x.mp4"),
        ("file://~/v.mp4", "/home/op/v.mp4"),
    ],
)
def test_paths_that_are_meant(monkeypatch, uri, path):
    monkeypatch.setenv("HOME", "/home/op")

    assert str(local_path(uri, HERE)) == path


@pytest.mark.parametrize("uri", ["rtsp://camera/main", "http://camera/a.m3u8", "test://", "http://[::1"])
def test_other_addresses_mean_no_file(uri):
    assert local_path(uri, HERE) is None


@pytest.mark.parametrize("name", ["~", "~tilde.mp4", "per%20cent.mp4"])
def test_name_as_it_stands_wins_if_there_is_such_a_file(tmp_path, name):
    (tmp_path / name).touch()

    assert local_path(name, tmp_path) == tmp_path / name
    assert local_path(f"file://{tmp_path}/{name}", HERE) == tmp_path / name


@pytest.mark.parametrize(
    "uri",
    [
        *("", "file://", "file:///", "file://localhost", "a\0.mp4", "file:///a%00.mp4", "\ud800.mp4"),
        *("clips/a.m3u8", "A.M3U", "file:///srv/a.pls"),
    ],
)
def test_names_that_no_video_can_have_are_refused(uri):
    with pytest.raises(ValueError, match="path"):
        local_path(uri, HERE)


def test_name_that_is_too_long_is_left_to_whoever_opens_it():
    assert local_path("x" * 5000, HERE) == HERE / ("x" * 5000)
