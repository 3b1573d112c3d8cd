"""What edge-software does with the wheels of a release."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.bundle.manifest import Role, decode_manifest
from edge.device.moment import this_moment
from edge.device.switch import arm, commit, switch_to
from edge.errors import DeployError
from edge.runtime.build.request import ask
from edge.runtime.software import install
from edge.runtime.software.binding import bind, chosen_key, is_this, require_software
from edge.runtime.software.install import keep_software
from edge.runtime.software.running import installed
from edge.runtime.software.said import require_to_build
from tests.support.device_releases import make_device, signer_of, stage
from tests.support.wheels import METADATA, key_of, own_with, software_files, tiny, wheel

PARTS = {"model.onnx": (Role.MODEL, b"m"), "pipeline.yaml": (Role.PIPELINE, b"p")}


@pytest.fixture
def device(tmp_path):
    made = make_device(tmp_path)
    made.layout.software.mkdir(parents=True)
    return made


@pytest.fixture(autouse=True)
def greets(monkeypatch):
    """Any software can be the agent, unless a test says why not."""
    said = {"why": None, "asked": [], "no_start": None}
    monkeypatch.setattr(install, "why_no_agent", lambda _layout, key: said["asked"].append(key) or said["why"])
    monkeypatch.setattr(install, "why_no_start", lambda *_: said["no_start"])
    return said


def bring(device, own=None, *, sequence=1, key=None, **others):
    """Stage a release that brings software, as the agent does; return its name and the software's key."""
    software = software_files(tiny() if own is None else own, **others)
    name = stage(device, {**PARTS, **software}, sequence=sequence, **({} if key is None else {"key": key}))
    bind(device, decode_manifest(device.releases.manifest(name)))
    return name, key_of(software)


def asked(device, name, *, is_new=True):
    ask(device, name, is_new=is_new)
    keep_software(device)


def said(device):
    return json.loads((device.layout.software / "said.json").read_text())


def serve(device, name):
    arm(device, name, moment=this_moment(), by_force=True)
    switch_to(device, name)
    commit(device, moment=this_moment())


@pytest.fixture(autouse=True)
def ready(monkeypatch):
    """Releases here have no engine, and are switched to all the same."""
    from edge.device.releases import Releases

    monkeypatch.setattr(Releases, "is_ready", lambda self, name: self.is_complete(name))


def test_what_a_release_brings_is_unpacked_and_nothing_else_is_touched(device):
    name, key = bring(device)

    asked(device, name)

    home = device.layout.software / key
    assert (home / "lib/edge/__init__.py").read_bytes() == b"MARK = 1\n"
    assert (home / "beside").read_text() == installed()
    assert device.software.names() == [key]
    assert said(device) == {"release": name, "problem": None}
    assert (home / "lib/edge/__init__.py").stat().st_mode & 0o777 == 0o644


def test_python_takes_the_bytecode_that_was_made_for_it(device):
    name, key = bring(device, tiny(b"__import__('os').getpid()"))
    asked(device, name)
    home = device.layout.software / key / "lib"
    (home / "edge/__init__.py").write_text("MARK = 'from the source'")  # unchecked: only bytecode can say otherwise

    told = subprocess.run(
        [sys.executable, "-IB", "-c", f"import sys; sys.path.insert(0, {str(home)!r}); import edge; print(edge.MARK)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    assert told.strip().isdigit()


def test_a_wheel_that_was_changed_on_the_disk_is_not_unpacked(device):
    name, _ = bring(device)
    (sha256,) = (sha for path, sha in device.releases.blobs(name).items() if path.startswith("wheels/"))
    blob = device.layout.blob(sha256)
    os.chmod(blob, 0o600)
    blob.write_bytes(blob.read_bytes().replace(b"MARK = 1", b"MARK = 2"))

    asked(device, name)

    assert device.software.names() == []
    assert "is not what was pushed" in said(device)["problem"]


def test_software_that_a_stranger_has_signed_is_not_unpacked(device):
    name, _ = bring(device, key=signer_of(device, "stranger"))

    asked(device, name)

    assert device.software.names() == []
    assert "verify.signature" in said(device)["problem"]


def test_a_link_to_software_that_was_exchanged_brings_nothing_else_in(device):
    # Whoever is edge-deploy may bind a release to any key; only what is signed gets that name.
    name, key = bring(device)
    device.releases.attach_software(name, "f" * 64)

    asked(device, name)

    assert device.software.names() == []  # of which nothing is bound to it any more
    assert chosen_key(device, name) == "f" * 64
    with pytest.raises(DeployError, match="is not here") as missing:
        require_software(device, name)
    assert missing.value.code == "device.software.missing"
    assert key != "f" * 64


@pytest.mark.parametrize(
    ("own", "others", "problem"),
    [
        (tiny(requires=("nowhere-to-be-found>=3",)), {}, "it needs nowhere-to-be-found, which is neither"),
        (b"no archive", {}, "no wheel that can be unpacked"),
        (wheel({"../evil.py": b"x", METADATA: b""}), {}, "no plain file within it"),
        (wheel({"edge/__init__.py": b""}), {}, "states nothing of itself"),
        (tiny(), {"numpy-2.2.6-cp27-cp27-win_amd64.whl": b"n"}, "is not for Python"),
    ],
    ids=["requires", "no-zip", "leaves", "no-metadata", "other-python"],
)
def test_software_that_cannot_run_here_is_named_and_leaves_nothing(device, own, others, problem):
    name, _ = bring(device, own, **others)

    asked(device, name)

    assert problem in said(device)["problem"]
    assert list(device.layout.software.iterdir()) == [device.layout.software / "said.json"]
    with pytest.raises(DeployError, match=problem.split(" ")[0]) as refused:
        require_to_build(device, name)
    assert refused.value.code == "build.software"


def test_software_that_does_not_start_leaves_nothing(device, greets):
    name, _ = bring(device)
    greets["no_start"] = "build ended with 1: ImportError: no such thing"

    asked(device, name)

    assert "does not start here: build ended with 1: ImportError" in said(device)["problem"]
    assert device.software.names() == []


def test_a_library_that_travels_along_is_there(device):
    library = wheel({"nowhere/__init__.py": b"", "nowhere_to_be_found-3.dist-info/METADATA": b""})
    name, key = bring(
        device, tiny(requires=("nowhere-to-be-found>=3",)), **{"nowhere_to_be_found-3-py3-none-any.whl": library}
    )

    asked(device, name)

    assert said(device)["problem"] is None
    assert (device.layout.software / key / "lib/nowhere/__init__.py").is_file()


@pytest.mark.parametrize("marker", ["extra == 'demo'", "python_version < '3.0'"])
def test_what_is_needed_elsewhere_only_is_not_asked_for(device, marker):
    name, _ = bring(device, tiny(requires=(f"nowhere-to-be-found; {marker}",)))

    asked(device, name)

    assert said(device)["problem"] is None


def test_a_release_without_software_runs_with_that_of_the_one_that_serves(device):
    first, key = bring(device)
    asked(device, first)
    serve(device, first)

    second = stage(device, sequence=2)
    bind(device, decode_manifest(device.releases.manifest(second)))

    assert device.releases.software_key(second) == key
    assert chosen_key(device, second) == key


def test_a_first_release_without_software_runs_with_what_is_installed(device):
    name = stage(device)
    bind(device, decode_manifest(device.releases.manifest(name)))

    assert device.releases.software_key(name) is None
    assert is_this(device, name)


def test_provision_has_the_last_word_and_a_release_after_it_is_not_bound_to_the_old(device):
    first, key = bring(device)
    asked(device, first)
    serve(device, first)
    (device.layout.software / key / "beside").write_text("/opt/edge-0.0.1-aaaaaaaaaaaa")

    second = stage(device, sequence=2)
    bind(device, decode_manifest(device.releases.manifest(second)))

    assert chosen_key(device, first) is None
    assert device.releases.software_key(second) is None


def test_software_that_is_asked_for_again_after_a_provision_is_laid_over_the_new_one(device):
    name, key = bring(device)
    asked(device, name)
    (device.layout.software / key / "beside").write_text("/opt/edge-0.0.1-aaaaaaaaaaaa")

    asked(device, name)

    assert chosen_key(device, name) == key


def test_an_engine_that_is_built_anew_after_a_provision_does_not_bring_the_old_software_back(device):
    name, key = bring(device)
    asked(device, name)
    (device.layout.software / key / "beside").write_text("/opt/edge-0.0.1-aaaaaaaaaaaa")

    asked(device, name, is_new=False)

    assert chosen_key(device, name) is None


def test_what_is_on_trial_is_not_the_agent_and_what_was_committed_is(device, greets):
    name, key = bring(device)
    asked(device, name)
    arm(device, name, moment=this_moment(), by_force=True)
    switch_to(device, name)
    keep_software(device)
    on_trial = device.software.proven()
    commit(device, moment=this_moment())
    keep_software(device)

    assert on_trial is None
    assert device.software.proven() == key
    assert greets["asked"] == [key]


def test_an_agent_that_does_not_greet_is_not_put_in_the_place_of_one_that_does(device, greets):
    first, key = bring(device)
    asked(device, first)
    serve(device, first)
    keep_software(device)
    second, worse = bring(device, tiny(b"2"), sequence=2)
    asked(device, second)
    serve(device, second)
    greets["why"] = "agent ended with 1: ImportError"

    keep_software(device)

    assert device.software.proven() == key
    assert set(device.software.names()) == {key, worse}


def test_after_a_way_back_agent_and_pull_are_those_of_before(device):
    first = stage(device)
    serve(device, first)
    second, key = bring(device, sequence=2)
    asked(device, second)
    serve(device, second)
    keep_software(device)
    assert device.software.proven() == key

    device.point(first)
    keep_software(device)

    assert device.software.proven() is None


def test_software_that_nothing_is_bound_to_goes_and_half_made_goes_too(device):
    name, key = bring(device)
    asked(device, name)
    (device.layout.software / f".{'c' * 64}.tmp/lib").mkdir(parents=True)
    (device.layout.software / ".said.json.tmp").write_text("cut")
    device.durable.remove_tree(device.layout.release(name))
    device.durable.remove(device.layout.build_request)

    keep_software(device)

    assert device.software.names() == []
    assert sorted(path.name for path in device.layout.software.iterdir()) == ["said.json"]
    assert key


def test_the_whole_of_ours_is_unpacked_and_answers_from_there(device):
    name, key = bring(device, own_with({}))

    asked(device, name)

    assert said(device)["problem"] is None
    program = [sys.executable, "-IB", str(device.layout.software / key / "edge-runtime")]
    told = subprocess.run(
        [*program, "facts", "--root", str(device.layout.root)], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["name"] == "gate-01"
    where = "import sys; sys.argv = ['x', '--help']; exec(open(sys.orig_argv[-1]).read().replace('edge_runtime()', ''))"
    found = subprocess.run(
        [
            sys.executable,
            "-IB",
            "-c",
            f"__file__ = {program[-1]!r}; {where}; import edge; print(edge.__file__)",
            program[-1],
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert Path(found.strip()).is_relative_to(device.layout.software / key)


def test_where_no_release_brings_any_nothing_is_written(device):
    name = stage(device)
    bind(device, decode_manifest(device.releases.manifest(name)))

    asked(device, name)

    assert list(device.layout.software.iterdir()) == []
