"""Root gives itself up for the user to whom a device's state belongs: all of it, and for good."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from edge.device.layout import Layout
from tests.support.people import ids, needs_root

HERE = Path(__file__).parents[3]
# Two groups that are root's alone, so that one that is kept can be told from one that is given.
BECOME = """
import json, os, sys
from pathlib import Path
from edge.device.layout import Layout
from edge.device.layout import become_owner_of
os.setgroups([0, 4])
become_owner_of(Layout(Path(sys.argv[1])).var)
print(json.dumps([os.getresuid(), os.getresgid(), sorted(os.getgroups())]))
"""
ROOT = "[[0, 0, 0], [0, 0, 0], [0, 4]]\n"

pytestmark = needs_root


def became(root):
    """Return what a process of root is after it has looked at the state in `root`: uids, gids, groups."""
    done = subprocess.run(
        [sys.executable, "-c", BECOME, str(root)], cwd=HERE, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def state(tmp_path):
    """The folder of the state; it is root's."""
    folder = Layout(tmp_path).var
    folder.mkdir(parents=True)
    return folder


def test_root_becomes_the_user_of_the_state_with_the_groups_of_that_user_and_no_other(tmp_path, state):
    uid, gid = ids()
    os.chown(state, uid, 0)
    assert became(tmp_path) == f"[[{uid}, {uid}, {uid}], [{gid}, {gid}, {gid}], [{gid}]]\n"


def test_for_a_user_whom_nobody_knows_root_has_the_group_of_the_state_and_no_other(tmp_path, state):
    uid = next(one for one in range(54_321, 60_000) if one not in {user.pw_uid for user in pwd.getpwall()})
    os.chown(state, uid, 54_320)
    assert became(tmp_path) == f"[[{uid}, {uid}, {uid}], [54320, 54320, 54320], []]\n"


def test_root_stays_root_where_the_state_is_its_own(tmp_path, state):
    assert became(tmp_path) == ROOT


def test_root_stays_root_where_there_is_no_state(tmp_path):
    assert became(tmp_path) == ROOT


def test_root_stays_root_where_a_link_of_another_user_is_in_the_place_of_the_state(tmp_path, state):
    state.rmdir()
    (tmp_path / "foreign").mkdir()
    os.chown(tmp_path / "foreign", *ids())
    state.symlink_to(tmp_path / "foreign")
    os.chown(state, *ids(), follow_symlinks=False)
    assert became(tmp_path) == ROOT
