"""A device takes wheels into root's own folder by SHA-256, and the real pip installs them without an index."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from edge.deploy.provision.facts import FACTS_SCRIPT, WHEEL_STORE
from edge.deploy.provision.remote.folders import Conflict
from edge.deploy.provision.remote.software import Software
from tests.support.device_releases import flip
from tests.support.little_wheels import facts_told, little_wheel, real_pip, software_values

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="gives files to root, as provision does: needs root"),
    pytest.mark.slow(reason="further first installations"),
]


@pytest.fixture
def sent(tmp_path):
    """Return the folder with what was sent."""
    folder = tmp_path / "sent"
    folder.mkdir()
    little_wheel(folder, "numpy", "2.0")
    little_wheel(folder, "edge-deploy", "0.1.0", "numpy>=1.24", "newcomer")
    real_pip(folder)
    return folder


@pytest.fixture
def step(tmp_path, sent):
    """Return what makes the step, which keeps the SHA-256 of the wheels as they are now."""
    kept = software_values(tmp_path, "edge-1")
    (tmp_path / "opt").mkdir()

    def step(name="edge-1", **more):
        return Software({**kept, "path": str(tmp_path / "opt" / name), **more}, None)

    return step


def installed(tmp_path: Path) -> list[str]:
    folders = (tmp_path / "opt/edge").glob("lib/python*/site-packages/*.dist-info")
    return sorted(folder.name for folder in folders)


def test_what_the_device_has_need_not_be_sent_again(step, sent, tmp_path):
    step().apply()
    shutil.rmtree(sent)

    step(folder=None, name="edge-2").apply()

    assert os.readlink(tmp_path / "opt/edge") == "edge-2"
    assert installed(tmp_path) == ["edge_deploy-0.1.0.dist-info", "numpy-2.0.dist-info"]


@pytest.mark.parametrize("where", ["sent", "cache/edge-deploy/wheels"])
def test_a_wheel_with_one_flipped_bit_is_not_installed(step, sent, tmp_path, where):
    if where != "sent":
        step().apply()
        shutil.rmtree(sent)
    flip(next((tmp_path / where).glob("numpy-*.whl")))

    with pytest.raises(Conflict, match=r"numpy-2\.0.* has not arrived as it was sent"):
        step(name="edge-2").apply()
    assert not (tmp_path / "opt/edge-2").exists()


def test_another_version_or_name_beside_what_was_sent_is_passed_over(step, sent, tmp_path):
    little_wheel(sent, "numpy", "99.0")
    little_wheel(sent, "newcomer", "1.0")

    step().apply()

    assert installed(tmp_path) == ["edge_deploy-0.1.0.dist-info", "numpy-2.0.dist-info"]


def test_pip_itself_refuses_what_is_not_locked(step, sent, tmp_path):
    """As where somebody changes a wheel between our look and pip's."""
    wrong = f"numpy==2.0 --hash=sha256:{'0' * 64}\n"

    with pytest.raises(Conflict, match=r"(?s)HASH|hashes"):
        step(requirements=wrong).apply()
    with pytest.raises(Conflict, match=r"(?s)require-hashes|hash"):
        step(requirements="numpy==2.0\n").apply()
    assert not (tmp_path / "opt/edge").exists()


def test_the_wheels_of_the_version_before_go(step, sent, tmp_path):
    step().apply()
    old = tmp_path / "cache/edge-deploy/wheels/numpy-1.0-py3-none-any.whl"
    old.write_bytes(b"old")

    step(name="edge-2").apply()

    assert not old.exists()


def test_what_a_provision_left_that_kept_no_wheels_is_undone_as_well(step, tmp_path):
    made = step().apply()
    earlier = Software({"path": str(tmp_path / "opt/edge-1"), "link": str(tmp_path / "opt/edge")}, made)

    earlier.undo(is_real=True, purge=False, gone=set())

    assert list((tmp_path / "opt").iterdir()) == []


def test_the_facts_name_the_wheels_that_are_there_by_what_is_in_them(tmp_path):
    store = tmp_path / "wheels"
    store.mkdir()
    wheel = little_wheel(store, "numpy", "2.0")
    (store / "note.txt").write_text("no wheel")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()

    assert facts_told(FACTS_SCRIPT.replace(WHEEL_STORE, str(store))).wheels == {digest}
