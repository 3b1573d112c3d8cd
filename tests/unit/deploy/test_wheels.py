"""Wheels for a device: what the lock names by its SHA-256, and edge-deploy's own of what runs; nothing else is sent."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge.deploy.provision import wheels as gathering
from edge.deploy.provision.facts import Environment
from edge.deploy.provision.wheels import OURS, gather_libraries, gather_wheels, own_wheel
from edge.errors import DeployError
from tests.support.device_releases import flip
from tests.support.wheels import device_facts, little_lock, little_wheel, pip_installed, whole_wheel

ROOT = Path(__file__).parents[3]


@pytest.fixture
def index(standing_in, monkeypatch):
    """An index with numpy, which our own wheel needs, all of which is locked."""
    index = standing_in("numpy>=1.24", numpy="2.0")
    lock = little_lock(index.glob("*.whl"))
    monkeypatch.setattr(gathering, "read_lock", lambda: lock)
    return index


def test_another_checkout_of_this_version_does_not_change_what_was_gathered(index, monkeypatch, tmp_path):
    gathered = gather_wheels(device_facts())
    (tmp_path / "other").mkdir()
    theirs = little_wheel(tmp_path / "other", "edge-deploy", "0.1.0", "numpy>=1.25").read_bytes()
    monkeypatch.setattr(gathering, "own_wheel", lambda: theirs)
    other = gather_wheels(device_facts())

    assert gathered.digests[OURS] != other.digests[OURS]
    assert hashlib.sha256(gathered.paths[OURS].read_bytes()).hexdigest() == gathered.digests[OURS]


def test_another_wheel_under_the_locked_name_is_refused_and_not_kept(index, tmp_path):
    little_wheel(index, "numpy", "2.0", "malware")

    with pytest.raises(DeployError, match=r"(?s)pip download failed.*hash") as caught:
        gather_wheels(device_facts())
    assert caught.value.code == "request.wheels"
    assert list((tmp_path / "cache").rglob("*.whl")) == []


def test_what_the_cache_holds_is_not_asked_for_again(index):
    gather_wheels(device_facts())
    shutil.rmtree(index)

    assert gather_wheels(device_facts()).pip == "pip-26.0-py3-none-any.whl"


def test_a_wheel_that_is_damaged_in_the_cache_is_fetched_again(index):
    numpy = gather_wheels(device_facts()).paths["numpy-2.0-py3-none-any.whl"]
    whole = numpy.read_bytes()
    flip(numpy)

    assert gather_wheels(device_facts()).paths["numpy-2.0-py3-none-any.whl"].read_bytes() == whole


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": (3, 9)}, "no wheels are locked for Python 3.9"),
        ({"glibc": (2, 31)}, "has glibc 2.31, expected 2.35"),
    ],
)
def test_a_device_of_another_kind_is_refused(index, changes, words):
    with pytest.raises(DeployError, match=words):
        gather_wheels(device_facts(**changes))


@pytest.fixture(scope="module")
def workstation(tmp_path_factory) -> Path:
    """Install the whole package by the real pip, and return the folder."""
    wheel = whole_wheel(tmp_path_factory.mktemp("whole"))
    return pip_installed(wheel, tmp_path_factory.mktemp("workstation") / "site")


def gathered_by(site: Path, evil: Path, tmp_path: Path) -> bytes:
    """Return the own wheel that the package in `site` brings, with an index that offers others."""
    program = "import sys; from edge.deploy.provision.wheels import _kept_own as own; sys.stdout.write(str(own()))"
    environment = {**os.environ, "PYTHONPATH": str(site), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(evil)}
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    return Path(told.stdout).read_bytes()


@pytest.mark.parametrize("version", ["0.1.0", "99.0"])
def test_an_edge_deploy_on_an_index_is_never_taken_for_the_one_that_runs(workstation, tmp_path, version):
    """As a package that somebody has put on an index under our name would be."""
    evil = tmp_path / "evil"
    evil.mkdir()
    little_wheel(evil, "edge-deploy", version)

    assert gathered_by(workstation, evil, tmp_path) == own_wheel()  # the same bytes as from the checkout, too
    assert gathered_by(ROOT, evil, tmp_path) == own_wheel()


def test_an_installed_file_that_was_changed_since_is_not_brought_to_devices(workstation, tmp_path):
    site = shutil.copytree(workstation, tmp_path / "site")
    with (site / "edge/errors.py").open("a") as file:
        file.write("# changed\n")

    with pytest.raises(DeployError, match=r"edge/errors\.py is not as it was installed"):
        own_wheel(site)


def test_a_folder_that_is_neither_checkout_nor_installation_gives_no_wheel(tmp_path):
    with pytest.raises(DeployError, match="is neither a checkout"):
        own_wheel(tmp_path)


def test_the_libraries_that_travel_in_a_release_are_those_of_the_lock_without_pip_and_ours(index):
    facts = device_facts()
    environment = Environment(facts.architecture, facts.python)
    little_wheel(index, "numpy", "99.0")

    paths = gather_libraries(environment)

    assert list(paths) == ["numpy-2.0-py3-none-any.whl"]
    assert paths["numpy-2.0-py3-none-any.whl"].read_bytes() == (index / "numpy-2.0-py3-none-any.whl").read_bytes()
