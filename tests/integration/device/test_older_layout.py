"""A device whose folders are as 0.1.0 made them, open to every local user, and what provision makes of it."""

import os

import pytest

from edge.device.device import Device
from edge.device.layout import Layout
from edge.runtime.trial.soundness import require_files
from edge.runtime.trial.trust import require_known
from tests.support.device_releases import serving
from tests.support.people import STRANGER, folder_steps, make_folder, may_read, needs_root, provisioned_root

pytestmark = [pytest.mark.integration, needs_root, pytest.mark.slow(reason="further requests to a device")]


@pytest.fixture
def device(crowd):
    """A device that serves, with the rights of before: all of edge-deploy's user and group, and read by everybody."""
    with provisioned_root(crowd) as root:
        device = Device(Layout(root))
        crowd.call("edge-deploy", lambda: serving(device))
        uid, gid = crowd.uids["edge-deploy"], crowd.gids["edge-deploy"]
        for path in [device.layout.var, *device.layout.var.rglob("*")]:
            os.chown(path, uid, gid, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o444 if path.parent.parent.name == "sha256" else 0o644)
        yield device


def provisioned_again(device, crowd):
    for step in folder_steps():
        make_folder(device.layout.root / step["path"].lstrip("/"), step, crowd)


def readable(device, release):
    """What a service reads before it serves, and what it looks at while it does."""
    require_known(device, release)
    require_files(device, release, has_clips=True)
    return [may_read(path) for path in (device.layout.state, device.layout.release(release) / "model.onnx")]


def test_before_everybody_reads_what_is_pushed_and_afterwards_nobody_else(device, crowd):
    release = device.releases.current()
    found = [device.layout.release(release) / "manifest.json", device.layout.state, *device.layout.store.glob("*/*")]
    assert crowd.call(STRANGER, lambda: [may_read(path) for path in found]) == [True] * len(found)

    provisioned_again(device, crowd)

    assert crowd.call(STRANGER, lambda: [may_read(path) for path in found]) == [False] * len(found)


@pytest.mark.parametrize("user", ["edge-runtime", "edge-build"])
def test_a_release_of_before_is_still_read_by_who_serves_and_who_builds(device, crowd, user):
    provisioned_again(device, crowd)
    release = device.releases.current()

    assert crowd.call(user, lambda: readable(device, release)) == [True, True]


def test_a_service_that_runs_since_before_still_reads_its_release(device, crowd):
    release = device.releases.current()
    running = crowd.without_groups("edge-runtime")  # groups that it was given since are not those of a running process

    provisioned_again(device, crowd)

    assert running.call("edge-runtime", lambda: readable(device, release)) == [True, True]


def test_the_next_release_beside_those_of_before_serves_too(device, crowd):
    provisioned_again(device, crowd)

    crowd.call("edge-deploy", lambda: serving(device, sequence=2))

    release = device.releases.current()
    assert crowd.call("edge-runtime", lambda: readable(device, release)) == [True, True]
    assert crowd.call("edge-deploy", lambda: len(device.releases.names())) == 2
