"""To which device and release a path belongs."""

import pytest

from edge.device.layout import Layout
from edge.device.releases import locate_release

RELEASE = "0123456789ab"


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "device")
    layout.release(RELEASE).mkdir(parents=True)
    layout.current.symlink_to(f"releases/{RELEASE}")
    return layout


def test_current_and_the_folder_of_a_release_are_of_the_device_that_they_lie_on(layout):
    assert locate_release(layout.current) == (layout, RELEASE)
    assert locate_release(layout.release(RELEASE)) == (layout, RELEASE)


def test_a_switch_that_leads_to_another_folder_leads_to_no_other_device(layout, tmp_path):
    evil = Layout(tmp_path / "evil")
    evil.release(RELEASE).mkdir(parents=True)
    layout.current.unlink()
    layout.current.symlink_to(evil.release(RELEASE))

    assert locate_release(layout.current) == (layout, RELEASE)


@pytest.mark.parametrize("target", ["releases/..", "releases/no-release", "/etc/passwd", "releases/0123456789AB"])
def test_a_switch_that_says_no_release_is_of_none(layout, target):
    layout.current.unlink()
    layout.current.symlink_to(target)

    assert locate_release(layout.current) is None


@pytest.mark.parametrize("path", ["current", "/current", "/", "var/lib/edge-deploy/other", "releases/0123456789ab"])
def test_another_path_is_of_none(layout, path):
    assert locate_release(layout.root / path) is None


def test_where_nothing_serves_there_is_none(layout):
    layout.current.unlink()

    assert locate_release(layout.current) is None
