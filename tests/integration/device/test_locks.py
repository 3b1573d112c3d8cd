"""Who can hold a device's locks, and what root leaves behind, with real uids."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.lock import PushLock, state_lock
from edge.runtime.entry import main
from tests.support.device_releases import serving
from tests.support.people import STRANGER, SYSTEMD, folder_steps, needs_root, provisioned_root

pytestmark = [
    needs_root,
    pytest.mark.slow_but(reason="further requests to a device: the first row of each test is quick"),
]


@pytest.fixture
def layout(crowd):
    with provisioned_root(crowd) as root:
        yield Layout(root)


def leave(layout):
    """Take and give back both locks: their files are there from then on."""
    with PushLock(layout).acquire("mina", "push"), state_lock(layout):
        pass


def held(path):
    """Hold a lock for as long as this process lives; return why that cannot be done."""
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return os.strerror(error.errno)
    return None


@pytest.mark.parametrize("user", [STRANGER, "edge-runtime"])
@pytest.mark.parametrize("name", ["push_lock", "state_lock"])
def test_another_user_cannot_hold_a_lock_even_where_its_folder_is_open(layout, crowd, user, name):
    layout.run.chmod(0o755)
    crowd.call("edge-deploy", lambda: leave(layout))

    assert crowd.call(user, lambda: held(getattr(layout, name))) == "Permission denied"


def test_a_folder_of_locks_that_is_made_where_it_is_missing_is_closed_to_others(layout, crowd):
    layout.run.rmdir()
    os.chown(layout.run.parent, crowd.uids["edge-deploy"], 0)

    crowd.call("edge-deploy", lambda: leave(layout))

    assert layout.run.stat().st_mode & 0o7777 == 0o700


def test_folders_in_memory_are_made_at_boot_as_they_were_provisioned_and_that_of_locks_is_closed():
    lines = [line.split() for line in (SYSTEMD / "tmpfiles.conf").read_text().splitlines() if line[0] != "#"]
    at_boot = {path: (int(mode, 8), owner, group) for _, path, mode, owner, group, _ in lines}
    provisioned = {step["path"]: (step["mode"], step["owner"], step["group"]) for step in folder_steps()}

    assert at_boot == {"/run/edge-deploy": provisioned["/run/edge-deploy"]}
    assert [mode for mode, *_ in at_boot.values()] == [0o700]


def strangers(layout, crowd):
    """Paths that do not belong to edge-deploy, which has to write them."""
    owned = [path for top in (layout.var, layout.run) for path in (top, *top.rglob("*"))]
    return [str(path) for path in owned if path.lstat().st_uid != crowd.uids["edge-deploy"]]


RUN_AND_TELL = """
import os, sys
from edge.runtime.entry import main
main(sys.argv[1], sys.argv[2:])
print("", os.getuid(), sep="\\n", file=sys.stderr)
"""


def run_and_tell(*command):
    """Do what a command does, as root; return whose process that then is."""
    run = [sys.executable, "-c", RUN_AND_TELL, *map(str, command)]
    done = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    return int(done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    "command",
    [["recover", "--boot"], ["rollback", "--reason", "by hand"], ["trial"], ["facts"], ["agent"]],
    ids=lambda command: command[0],
)
def test_what_root_does_by_hand_leaves_nothing_that_the_service_cannot_write(layout, crowd, command):
    device = Device(layout)
    crowd.call("edge-deploy", lambda: serving(device))
    layout.state.unlink()  # something is to be done
    for path in layout.run.iterdir():  # as after a boot
        path.unlink()

    became = run_and_tell(*command, "--root", layout.root)

    assert became == crowd.uids["edge-deploy"]
    assert strangers(layout, crowd) == []
    assert crowd.call("edge-deploy", lambda: main("recover", ["--boot", "--root", str(layout.root)])) == 0
    assert Path(layout.state).exists()
