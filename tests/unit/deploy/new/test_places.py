"""Addresses as people type them: ids that can be read, and no login in what goes into the file or an error."""

import os

import pytest

from edge.config.credentials import Credential
from edge.deploy.new.places import places_of
from edge.errors import ConfigError
from edge.media.address import parse_address
from edge.types import StreamId


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["rtsp://camera-east/main", "rtsp://camera-west.local:8554/main"], ["camera-east", "camera-west"]),
        (["rtsp://10.0.0.7/stream1"], ["10-0-0-7"]),
        (
            ["rtsp://nvr/Streaming/Channels/101", "rtsp://nvr/Streaming/Channels/201"],
            ["nvr-channels-101", "nvr-channels-201"],
        ),
        (["rtsp://nvr/a", "rtsp://nvr/A"], ["nvr-a", "nvr-a-2"]),
        (["rtsp://nvr/a", "rtsp://nvr/b", "rtsp://nvr-a/c"], ["nvr-a", "nvr-b", "nvr-a-2"]),
        (["v4l2:///dev/video0", "csi://0", "test://"], ["video0", "csi-0", "test"]),
        (["rtsp://[fe80::1]/x"], ["fe80-1"]),
        (["http://Käfig/x.mjpg", "v4l2:///dev/--Ein Tor_Süd (2)"], ["kafig", "ein-tor-sud-2"]),
        (["rtsp://" + "long-name-" * 6 + "x/one", "rtsp://" + "long-name-" * 6 + "x/two"], None),
        (["rtsp://日本/x", "rtsp://中国/x"], None),
    ],
)
def test_ids_can_be_read_and_are_unique_and_valid(tmp_path, typed, expected):
    found = [place.id for place in places_of(typed, folder=tmp_path)]

    assert found == (expected or found)
    assert len(set(found)) == len(typed)
    assert [StreamId(one) for one in found] == found


def test_a_login_is_taken_out_of_the_address(tmp_path):
    (place,) = places_of(["rtsp://admin:p%40ss%2Fword@10.0.0.7:8554/main?channel=1"], folder=tmp_path)

    assert (place.uri, place.host) == ("rtsp://10.0.0.7:8554/main?channel=1", "10-0-0-7")
    assert place.login == Credential(user="admin", password="p@ss/word")
    assert "p@ss" not in repr(place)


@pytest.mark.parametrize(
    ("typed", "uri", "login"),
    [
        (
            "http://10.0.0.7/snap.cgi?usr=admin&pwd=p%40ss%26s3cret&chn=1",
            "http://10.0.0.7/snap.cgi?usr={user}&pwd={password}&chn=1",
            ("admin", "p@ss&s3cret"),
        ),
        ("http://10.0.0.7/x?token=s3cret", "http://10.0.0.7/x?token={password}", ("", "s3cret")),
        (
            "http://a:s3cret@10.0.0.7/x?user={user}&pwd={password}",
            "http://10.0.0.7/x?user={user}&pwd={password}",
            ("a", "s3cret"),
        ),
    ],
)
def test_a_login_in_the_query_becomes_a_credential_and_leaves_places_for_it(tmp_path, typed, uri, login):
    (place,) = places_of([typed], folder=tmp_path)

    assert place.uri == uri
    assert place.login == Credential(user=login[0], password=login[1])
    assert "s3cret" not in place.uri + place.address.shown
    back = parse_address(place.uri, base_dir=tmp_path, credential=login)
    assert back.location == typed.replace("a:s3cret@", "").replace("{user}", "a").replace("{password}", "s3cret")


@pytest.mark.parametrize(
    "typed",
    [
        "rtsp://admin:12/s3cret@10.0.0.7/main",
        "rtsp://admin:12?s3cret@10.0.0.7/main",
        "rtsp://admin:pa#s3cret@10.0.0.7/main",
        "rtsp://10.0.0.7/user=admin_password=s3cret_channel=1.sdp",
        "http://10.0.0.7/flv?password=s3cret&token=s3cret",
        "rtsp://10.0.0.7/password=s3cret/main?user=admin&password=12",
        "rtsp://admin:s3cret@:99999/main",
        "rtmp://admin:s3cret@10.0.0.7/main",
    ],
)
def test_a_secret_that_cannot_be_taken_out_is_refused_and_not_told(tmp_path, typed):
    with pytest.raises(ConfigError) as refused:
        places_of([typed], folder=tmp_path)

    assert "s3cret" not in str(refused.value)
    assert "expected" in str(refused.value)


def test_a_folder_is_its_clips_and_paths_start_at_the_pipeline(tmp_path):
    folder = tmp_path / "clips"
    folder.mkdir()
    for name in ("b.mp4", "a b.MKV", "notes.txt", "._b.mp4"):
        (folder / name).touch()

    found = places_of([folder], folder=tmp_path)

    assert [(place.id, place.uri) for place in found] == [("a-b", "clips/a b.MKV"), ("b", "clips/b.mp4")]


def test_a_file_far_away_is_named_by_its_whole_path(tmp_path):
    here, there = tmp_path / "a/b/c", tmp_path / "x.mp4"
    here.mkdir(parents=True)
    there.touch()

    assert places_of([there], folder=here)[0].uri == str(there)


def test_a_name_that_is_no_text_is_refused(tmp_path):
    clip = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    clip.touch()

    with pytest.raises(ConfigError, match="a path is UTF-8 text; rename"):
        places_of([clip], folder=tmp_path)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["rtsp://a/b", "rtsp://a/c", "rtsp://me:s3cret@a/b"], "rtsp://a/b: is given twice"),
        (["empty"], "expected clips"),
        (["nothing.mp4"], "there is no such file"),
        (["big.PNG"], "expected a clip, this is a picture"),
    ],
)
def test_what_cannot_be_a_list_of_cameras_is_refused(tmp_path, typed, expected):
    (tmp_path / "empty").mkdir()
    (tmp_path / "big.PNG").touch()
    given = [one if "://" in one else tmp_path / one for one in typed]

    with pytest.raises(ConfigError, match=expected):
        places_of(given, folder=tmp_path)
