from pathlib import Path

import pytest

from edge.errors import ConfigError
from edge.media.address import parse_address, redact

HERE = Path("/srv/pipelines")


def test_a_path_is_that_of_a_file_beside_the_pipeline():
    address = parse_address("file://clips/a%20b.mp4", base_dir=HERE)

    assert (address.scheme, address.location) == ("file", "/srv/pipelines/clips/a b.mp4")
    assert address.is_file_like


def test_user_and_password_leave_the_url():
    address = parse_address("rtsp://bob:p%40ss@camera:8554/main?key=1", base_dir=HERE)

    assert address.location == "rtsp://camera:8554/main?key=1"
    assert address.credential == ("bob", "p@ss")
    for text in (repr(address), address.shown):
        assert "p@ss" not in text
        assert "p%40ss" not in text
    assert address.shown == "rtsp://camera:8554/main?..."


def test_given_credential_wins_over_the_one_in_the_url():
    assert parse_address("rtsp://a:b@camera/", base_dir=HERE, credential=("c", "d")).credential == ("c", "d")


def test_options_of_a_test_address():
    address = parse_address("test://?pattern=ball&width=640", base_dir=HERE)

    assert address.options["pattern"] == "ball"
    assert (address.number("width", 1), address.number("height", 360)) == (640, 360)


@pytest.mark.parametrize(
    "uri", ["http://[::1", "rtsp://camera:port/", "rtsp://camera:70000/", "rtsp://cam\0era/", "a\0.mp4"]
)
def test_address_that_cannot_be_taken_apart_is_a_configuration_error(uri):
    with pytest.raises(ConfigError):
        parse_address(uri, base_dir=HERE)


@pytest.mark.parametrize("uri", ["v4l2://", "v4l2://?width=640", "v4l2:///dev/video0?size=9", "csi://0?pattern=ball"])
def test_device_address_is_checked(uri):
    with pytest.raises(ConfigError, match="address: expected"):
        parse_address(uri, base_dir=HERE)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "wide", "! fakesink", "100001"])
def test_option_that_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="width: expected a positive whole number"):
        parse_address(f"test://?width={text}", base_dir=HERE).number("width", 1)


@pytest.mark.parametrize("uri", ["ftp://host/a.mp4", "rtmp://u:secret@host/live", "rtsp:///main"])
def test_unreadable_address_is_refused_without_its_secrets(uri):
    with pytest.raises(ConfigError) as caught:
        parse_address(uri, base_dir=HERE)
    assert "secret" not in str(caught.value)


def test_web_files_have_an_end_and_web_cameras_do_not():
    assert parse_address("https://host/a.MP4?x=1", base_dir=HERE).is_file_like
    assert not parse_address("http://camera/mjpeg", base_dir=HERE).is_file_like


def test_redact_hides_every_secret_of_a_url():
    assert redact("cannot open rtsp://u:p@host/x?t=9 now") == "cannot open rtsp://host/x?... now"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("rtsp://bob:p@ss@camera/main", "rtsp://camera/main"),
        ("rtsp://bob:a/b@camera:554/main", "rtsp://camera:554/main"),
        ("rtsp://bob:a?b@camera/main", "rtsp://camera/main"),
        ("rtsp://bob@camera/@main", "rtsp://camera/@main"),
        ("rtsp://camera:554/a@b", "rtsp://camera:554/a@b"),
        ("rtsp://[fe80::1]:322/a@b", "rtsp://[fe80::1]:322/a@b"),
    ],
)
def test_redact_knows_passwords_that_nobody_has_escaped(uri, shown):
    assert redact(uri) == shown
