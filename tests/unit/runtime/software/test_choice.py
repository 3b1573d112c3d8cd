"""Which software answers a command line."""

import json
import os
from pathlib import Path

import pytest

from edge.bundle.manifest import Role
from edge.device.software import Installation
from edge.runtime.software import binding
from edge.runtime.software.binding import HANDED, hand_over, program_for
from tests.support.device_releases import PARTS, make_device, signer_of, stage
from tests.support.wheels import key_of, software_files, tiny

SOFTWARE = software_files(tiny())


class Kept:
    """A device that serves, and is asked to build for, a release that brings software, which is here."""

    def __init__(self, device):
        self.device, self.layout = device, device.layout
        self.layout.software.mkdir(parents=True)
        self.brings = stage(device, {**PARTS, **SOFTWARE})
        self.plain = stage(device, PARTS)
        self.folder = self.lay(Installation(key=key_of(SOFTWARE), beside=binding.installed()))
        self.program = str(self.folder / "edge-runtime")
        self.serve(self.brings)
        self.request = self.layout.build_request
        self.request.write_text(json.dumps({"release": self.brings, "id": "1"}))

    def lay(self, one):
        self.device.software.install(one, [("edge/__init__.py", (b"1",))], program=b"")
        return self.layout.software / one.name

    def serve(self, release):
        self.layout.current.unlink(missing_ok=True)
        self.layout.current.symlink_to(f"releases/{release}")

    def run(self):
        return program_for(["run", "--release", str(self.layout.current)])

    def build(self):
        return program_for(["build", "--request", str(self.request)])


@pytest.fixture
def kept(tmp_path):
    return Kept(make_device(tmp_path / "device"))


def test_the_service_is_the_software_of_the_release_that_it_serves(kept):
    assert kept.run() == kept.program
    assert program_for(["-v", "run", f"--release={kept.layout.current}"]) == kept.program
    assert program_for(["run", "--release", str(kept.layout.release(kept.brings))]) == kept.program


def test_the_builder_is_the_software_of_the_release_that_is_asked_for(kept):
    kept.serve(kept.plain)

    assert kept.build() == kept.program


@pytest.mark.parametrize(
    "command", ["agent", "pull", "trial", "rollback", "recover", "adopt", "software", "facts", "health"]
)
def test_who_takes_judges_or_brings_back_is_what_is_installed(kept, command):
    words = [command, "--root", str(kept.layout.root), "--release", str(kept.layout.current)]

    assert program_for([*words, "--request", str(kept.request)]) is None


def test_a_release_that_brings_none_runs_what_is_installed(kept):
    kept.serve(kept.plain)

    assert kept.run() is None
    assert program_for(["run", "--pipeline", "gates.yaml"]) is None


def over_another(kept):
    kept.device.software.remove(kept.folder.name)
    kept.lay(Installation(key=key_of(SOFTWARE), beside="/opt/edge-0.0.9-000000000000"))


def a_link(kept):
    kept.folder.rename(kept.layout.root / "elsewhere")
    kept.folder.symlink_to(kept.layout.root / "elsewhere")


HARMS = {
    "over another installed edge-deploy": over_another,
    "without its lib": lambda kept: (kept.folder / "lib").rename(kept.layout.root / "elsewhere"),
    "without its program": lambda kept: (kept.folder / "edge-runtime").unlink(),
    "in a folder that is a link": a_link,
    "where others may write": lambda kept: kept.layout.software.chmod(0o775),
    "that others may write": lambda kept: kept.folder.chmod(0o775),
    "of another content": lambda kept: (kept.folder / "lib/edge/__init__.py").write_bytes(b"x"),
    "of another length": lambda kept: (kept.folder / "lib/edge/__init__.py").write_bytes(b"flipped"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_software_that_is_not_whole_or_could_be_of_somebody_else_is_not_run(kept, harm):
    HARMS[harm](kept)

    assert (kept.run(), kept.build()) == (None, None)


def test_a_release_that_a_stranger_has_signed_brings_nothing_to_run(kept):
    other = {**PARTS, **SOFTWARE, "model.onnx": (Role.MODEL, b"another")}
    forged = stage(kept.device, other, key=signer_of(kept.device, "stranger"))
    kept.serve(forged)
    kept.request.write_text(json.dumps({"release": forged, "id": "1"}))

    assert (kept.run(), kept.build()) == (None, None)


def test_a_release_whose_signature_cannot_be_looked_at_serves_with_its_own(kept):
    # As its files, which were verified when they came (docs/adr/0016).
    kept.layout.allowed_signers.unlink()

    assert kept.run() == kept.program


def test_a_switch_to_another_folder_leads_to_no_other_software(kept, tmp_path):
    evil = Kept(make_device(tmp_path / "evil"))
    kept.device.software.remove(kept.folder.name)
    kept.layout.current.unlink()
    kept.layout.current.symlink_to(evil.layout.release(evil.brings))

    assert evil.run() == evil.program
    assert kept.run() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder to somebody else")
@pytest.mark.parametrize("whose", [("folder",), ("home", "folder")], ids=["not-the-owner", "not-root"])
def test_software_of_somebody_else_is_not_run_and_root_runs_none_of_another_user(kept, whose):
    for which in whose:
        os.chown(kept.layout.software if which == "home" else kept.folder, 12345, 12345)

    assert kept.run() is None


@pytest.mark.parametrize(
    "request_", [b"", b"[]", b'{"release": "../../../etc"}', b'{"release": 7}', b"{" * 5000, b'{"release": "no-such"}']
)
def test_a_request_that_cannot_be_read_is_for_who_reads_it_next(kept, request_):
    kept.request.write_bytes(request_)

    assert kept.build() is None


def test_a_request_that_is_a_fifo_is_not_waited_for(kept):
    kept.request.unlink()
    os.mkfifo(kept.request)

    assert kept.build() is None


def test_a_request_of_no_device_is_not_read(kept, tmp_path):
    other = tmp_path / "var/lib/edge-deploy/another-request.json"
    other.parent.mkdir(parents=True)
    other.write_bytes(kept.request.read_bytes())

    assert program_for(["build", "--request", str(other)]) is None


@pytest.mark.parametrize("path", ["request.json", "/request.json", "build-request.json", "/", "/a"])
def test_a_request_that_lies_elsewhere_is_of_no_device(kept, path):
    assert program_for(["build", "--request", path]) is None


@pytest.fixture
def started(monkeypatch):
    found = []
    monkeypatch.setattr(binding.os, "execve", lambda *one: found.append(one))
    monkeypatch.delenv(HANDED, raising=False)
    return found


def test_a_process_becomes_that_software_with_its_arguments_and_is_told_so(kept, started):
    words = ["run", "--release", str(kept.layout.current), "--verbose"]

    hand_over(words)

    ((path, command, environment),) = started
    assert path == command[0] == binding.sys.executable
    assert command[-5:] == [kept.program, *words]
    assert environment == {**os.environ, HANDED: kept.folder.name}


def test_a_process_that_is_deaf_to_its_surroundings_becomes_another_that_is(kept, started, monkeypatch):
    monkeypatch.setattr(binding, "FLAGS", ("-IBXfaulthandler",))

    hand_over(["run", "--release", str(kept.layout.current)])

    assert started[0][1][1] == "-IBXfaulthandler"


def test_whoever_was_handed_over_to_hands_over_to_nobody(kept, started, monkeypatch):
    monkeypatch.setenv(HANDED, kept.folder.name)
    hand_over(["run", "--release", str(kept.layout.current)])
    monkeypatch.delenv(HANDED)
    monkeypatch.setattr(binding, "running", lambda: kept.folder.name)
    hand_over(["run", "--release", str(kept.layout.current)])

    assert started == []


NAME = "a" * 64


@pytest.mark.parametrize(
    ("home", "name"),
    [
        (f"/var/lib/edge-software/{NAME}/lib", NAME),
        (f"/var/lib/edge-software/{NAME}/bin", None),
        ("/opt/edge-0.1.0-0123456789ab/lib/python3.11/site-packages", None),
        ("/home/ana/edge-deploy", None),
        (f"/home/{NAME}/lib", None),
        (f"/home/{NAME}/edge", None),
    ],
)
def test_a_process_knows_which_software_it_is_by_where_it_lies(home, name):
    assert binding.running(Path(home)) == name
