"""What edge-software does with the wheels of releases."""

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edge.device.software import Installation
from edge.errors import DeployError
from edge.runtime.software import binding, install
from edge.runtime.software.binding import installed, is_this, problem_of_software, require_software, require_to_build
from edge.runtime.software.install import keep_software, why_no_start
from tests.support.device_releases import PARTS, signer_of, stage
from tests.support.manifests import allowed
from tests.support.raised import error_of
from tests.support.wheels import METADATA, key_of, own_with, software_files, tiny, wheel


@pytest.fixture
def starts(monkeypatch):
    """Any software can be imported, unless a test says why not."""
    said = {"why": None}
    monkeypatch.setattr(install, "why_no_start", lambda *_: said["why"])
    return said


pytestmark = pytest.mark.usefixtures("starts")


def bring(device, own=None, *, sequence=1, key=None, **others):
    """Stage a release that brings software; return its name and where that is to be installed."""
    software = software_files(tiny() if own is None else own, **others)
    name = stage(device, {**PARTS, **software}, sequence=sequence, **({} if key is None else {"key": key}))
    return name, Installation(key=key_of(software), beside=installed())


def kept(device):
    """Do what is to be done; return what is installed then."""
    keep_software(device)
    return device.software.names()


def brought(device, *own, **how):
    """Stage such a release, and have its software installed."""
    found = bring(device, *own, **how)
    keep_software(device)
    return found


def said(device):
    path = device.layout.software / "said.json"
    return json.loads(path.read_text()) if path.exists() else {}


def wheel_of(device, name):
    (sha256,) = (sha for path, sha in device.releases.blobs(name).items() if path.startswith("wheels/"))
    return device.layout.blob(sha256)


def damaged_wheel(compression):
    """Return a wheel, one file of which was packed so and is not what it was."""
    packed = io.BytesIO(tiny())
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("edge/packed.txt", b"some words, " * 200, compress_type=compression)
        entry = archive.getinfo("edge/packed.txt")
    content = bytearray(packed.getvalue())
    begin = entry.header_offset + 30 + len(entry.filename)
    for at in range(begin + 12, begin + entry.compress_size):
        content[at] ^= 0x5A
    return bytes(content)


def withdraw(device):
    """Whoever has signed so far does not count any more, and what was signed goes on."""
    device.layout.allowed_signers.rename(device.layout.former_signers)
    allowed(device.layout.allowed_signers, signer_of(device, "other"))


def test_what_a_release_brings_is_unpacked_and_has_a_name_once_it_was_started_and_nothing_else_is_touched(
    device, monkeypatch
):
    name, one = bring(device)
    seen = []
    monkeypatch.setattr(install, "why_no_start", lambda folder: seen.append((folder.name, device.software.names())))

    keep_software(device)

    assert seen == [(f".{one.name}.new.tmp", [])]
    home = device.layout.software / one.name
    assert (home / "lib/edge/__init__.py").read_bytes() == b"MARK = 1\n"
    assert device.software.origin(one.name) == one
    assert device.software.names() == [one.name]
    assert sorted(path.name for path in device.layout.software.iterdir()) == sorted([one.name, "vouched"])
    assert (home / "lib/edge/__init__.py").stat().st_mode & 0o777 == 0o644
    assert problem_of_software(device, name) is None


def test_a_release_that_comes_meanwhile_is_done_as_well(device, monkeypatch):
    _, first = bring(device)
    later = []

    def why_no_start(*_):
        if not later:
            later.append(bring(device, tiny(b"2"), sequence=2)[1])

    monkeypatch.setattr(install, "why_no_start", why_no_start)

    assert sorted(kept(device)) == sorted([first.name, later[0].name])


def test_software_over_what_provision_has_installed_since_is_another_and_the_one_before_stays(device, tmp_path):
    name, one = brought(device)
    before = Installation(key=one.key, beside=str(tmp_path))
    (device.layout.software / one.name).rename(device.layout.software / before.name)
    account = device.layout.software / before.name / "installation.json"
    account.write_text(json.dumps({**json.loads(account.read_text()), "beside": before.beside}))
    missing = problem_of_software(device, name)

    keep_software(device)

    assert missing.code == "device.software.missing"
    assert problem_of_software(device, name) is None
    assert sorted(device.software.names()) == sorted([one.name, before.name])  # a process may still load from it


def test_software_over_an_installed_one_that_is_gone_goes(device):
    brought(device)
    (one,) = device.software.names()
    account = device.layout.software / one / "installation.json"
    account.write_text(json.dumps({**json.loads(account.read_text()), "beside": "/opt/edge-that-is-gone"}))
    old = device.layout.software / ("c" * 64)
    (device.layout.software / one).rename(old)

    assert kept(device) == [one]


def test_python_takes_the_bytecode_that_was_made_for_it(device):
    _, one = brought(device, tiny(b"__import__('os').getpid()"))
    home = device.layout.software / one.name / "lib"
    (home / "edge/__init__.py").write_text("MARK = 'from the source'")  # unchecked: only bytecode can say otherwise

    told = subprocess.run(
        [sys.executable, "-IB", "-c", f"import sys; sys.path.insert(0, {str(home)!r}); import edge; print(edge.MARK)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    assert told.strip().isdigit()


@pytest.mark.parametrize(
    "damage",
    [
        lambda home: (home / "lib/edge/__init__.py").write_bytes(b"MARK = 2\n"),
        lambda home: (home / "edge-runtime").unlink(),
        lambda home: shutil.rmtree(home / "lib"),
        lambda home: (home / "installation.json").write_bytes(b"{"),
        shutil.rmtree,
    ],
    ids=["a-bit", "program", "lib", "account", "all"],
)
def test_software_that_was_damaged_or_lost_is_installed_again(device, damage):
    name, one = brought(device)
    damage(device.layout.software / one.name)
    assert problem_of_software(device, name).code == "device.software.missing"

    keep_software(device)

    assert problem_of_software(device, name) is None
    assert (device.layout.software / one.name / "lib/edge/__init__.py").read_bytes() == b"MARK = 1\n"


def test_one_read_that_fails_takes_nothing_away(device, monkeypatch):
    name, one = brought(device)
    wheel_of(device, name).unlink()
    monkeypatch.setattr(type(device.software), "problem", lambda *_: "is damaged: Input/output error")
    keep_software(device)
    monkeypatch.undo()

    assert problem_of_software(device, name) is None
    assert device.software.names() == [one.name]


def test_software_that_is_whole_is_not_written_again(device, monkeypatch):
    brought(device)
    monkeypatch.setattr(install, "_install", lambda *_: pytest.fail("it was written again"))

    keep_software(device)


def test_a_wheel_that_was_changed_on_the_disk_is_not_unpacked(device):
    name, _ = bring(device)
    blob = wheel_of(device, name)
    os.chmod(blob, 0o600)
    blob.write_bytes(blob.read_bytes().replace(b"MARK = 1", b"MARK = 2"))

    assert kept(device) == []
    assert "is not what was pushed" in said(device)[name]
    error = error_of(problem_of_software, device, name)
    assert error.code == "device.release.damaged"
    assert error.evidence["sha256"] == blob.name


@pytest.mark.parametrize("what", ["gone", "fifo"])
def test_a_wheel_that_cannot_be_read_stands_in_the_way_of_no_other(device, what):
    name, _ = bring(device)
    _, second = bring(device, tiny(b"2"), sequence=2)
    blob = wheel_of(device, name)
    blob.unlink()
    if what == "fifo":
        os.mkfifo(blob)

    assert kept(device) == [second.name]
    assert "(device." in said(device)[name]


def test_software_that_a_stranger_has_signed_is_not_unpacked(device):
    name, _ = bring(device, key=signer_of(device, "stranger"))

    assert kept(device) == []
    assert "verify.signature" in said(device)[name]


def test_software_of_a_signer_who_counted_once_is_not_taken_and_what_was_taken_then_is_kept_whole(device):
    _, taken = brought(device)
    withdraw(device)
    late, _ = bring(device, tiny(b"2"), sequence=2)
    device.software.remove(taken.name)

    assert kept(device) == [taken.name]
    assert "verify.signature" in said(device)[late]


@pytest.mark.parametrize("is_sound", [True, False], ids=["installed", "not to be"])
def test_that_software_was_trusted_and_what_is_said_of_it_is_forgotten_with_its_last_release(device, is_sound):
    name, one = brought(device, None if is_sound else b"no archive")
    assert (device.software.vouched(), [*said(device)]) == (([one.key], []) if is_sound else ([], [name]))
    device.durable.remove_tree(device.layout.release(name))

    keep_software(device)

    assert (device.software.vouched(), device.software.names(), said(device)) == ([], [], {})


def test_software_that_is_signed_with_a_key_that_has_run_out_is_not_taken(device):
    allowed(device.layout.allowed_signers, signer_of(device), 'valid-before="20260601" namespaces="edge-release"')
    name, _ = bring(device)

    assert kept(device) == []
    assert "(verify.signature.expired)" in said(device)[name]


@pytest.mark.parametrize("what", ["manifest", "releases"])
def test_a_manifest_or_a_folder_of_releases_that_cannot_be_read_once_takes_nothing_away(device, what):
    name, one = brought(device)
    path = device.layout.releases if what == "releases" else device.layout.release(name) / "manifest.json"
    path.rename(device.layout.var / "elsewhere")
    if what == "manifest":
        path.touch()

    keep_software(device)

    assert (device.software.names(), device.software.vouched()) == ([one.name], [one.key])
    (device.layout.var / "elsewhere").rename(path)
    keep_software(device)
    assert said(device) == {}


def test_what_is_no_installation_is_left_alone(device):
    (device.layout.software / ("z" * 64)).mkdir()
    _, one = bring(device)

    assert kept(device) == [one.name]


@pytest.mark.parametrize(
    "own",
    [
        wheel({"edge/__init__.py": b"", METADATA: b"Name: edge-deploy", "edge/deep.py": b"1" + b"+1" * 200_000}),
        wheel({"edge/__init__.py": b"", METADATA: b"Name: edge-deploy", "edge/deep.py": b"-" * 200_000 + b"1"}),
        damaged_wheel(zipfile.ZIP_LZMA),
        damaged_wheel(zipfile.ZIP_BZIP2),
        damaged_wheel(zipfile.ZIP_DEFLATED),
    ],
    ids=["long", "deep", "lzma", "bzip2", "deflated"],
)
def test_whatever_one_release_brings_the_software_of_the_others_is_kept(device, own):
    _, one = brought(device, tiny(b"2"), sequence=2)
    (device.layout.software / one.name / "lib/edge/__init__.py").write_bytes(b"flipped")
    for sequence in range(3, 7):  # before and behind it in their order
        bring(device, own, sequence=sequence, **{f"more-{sequence}-py3-none-any.whl": tiny()})

    keep_software(device)

    assert device.software.problem(one.name) is None
    assert not [path.name for path in device.layout.software.iterdir() if path.name.endswith(".tmp")]


def test_a_defect_of_ours_at_one_release_stops_nothing_else(device, monkeypatch):
    name, _ = bring(device)
    plain = install._install

    def fails(device, brought, wanted):
        if not failed:
            failed.append(brought)
            raise ZeroDivisionError("by zero")
        plain(device, brought, wanted)

    failed = []
    monkeypatch.setattr(install, "_install", fails)
    bring(device, tiny(b"2"), sequence=2)

    keep_software(device)

    assert len(device.software.names()) == 1
    assert "internal error: ZeroDivisionError" in "".join(said(device).values())
    assert name


@pytest.mark.parametrize(
    ("own", "others", "problem"),
    [
        (tiny(requires=("nowhere-to-be-found>=3",)), {}, "it needs nowhere-to-be-found, which is neither"),
        (b"no archive", {}, "no wheel that can be unpacked"),
        (wheel({"../evil.py": b"x", METADATA: b""}), {}, "no plain file within it"),
        (wheel({"edge/__init__.py": b""}), {}, "states nothing of itself"),
        (tiny(), {"numpy-2.2.6-cp27-cp27-win_amd64.whl": b"n"}, "is not for Python"),
        (tiny(b"1 / 0"), {}, "does not start here: it cannot be imported (ZeroDivisionError"),
    ],
    ids=["requires", "no-zip", "leaves", "no-metadata", "other-python", "no-start"],
)
def test_software_that_cannot_run_here_is_named_and_leaves_nothing(device, starts, own, others, problem):
    starts["why"] = "it cannot be imported (ZeroDivisionError: by zero)"  # which is asked last
    name, _ = bring(device, own, **others)

    keep_software(device)

    assert problem in said(device)[name]
    assert list(device.layout.software.iterdir()) == [device.layout.software / "said.json"]
    error = error_of(require_to_build, device, name)
    assert (error.code, error.evidence) == ("build.software", {"untried": False})
    assert problem.split(" ")[0] in error.problem


def test_software_that_nobody_has_tried_to_install_is_told_from_what_cannot_be(device):
    tried, _ = brought(device, b"no archive")
    name, _ = bring(device, sequence=2)

    error = error_of(require_to_build, device, name)

    assert ("is not here" in error.problem, error.evidence) == (True, {"untried": True})
    assert tried in said(device)


def test_a_signature_that_does_not_count_is_said_as_such_to_who_builds(device):
    name, _ = bring(device)
    manifest = device.layout.release(name) / "manifest.json"
    manifest.chmod(0o600)
    manifest.write_bytes(b"{}")

    assert error_of(require_to_build, device, name).code.startswith("verify.manifest")


def test_a_library_that_travels_along_is_there(device):
    library = wheel({"nowhere/__init__.py": b"", "nowhere_to_be_found-3.dist-info/METADATA": b""})
    _, one = bring(
        device, tiny(requires=("nowhere-to-be-found>=3",)), **{"nowhere_to_be_found-3-py3-none-any.whl": library}
    )

    keep_software(device)

    assert said(device) == {}
    assert (device.layout.software / one.name / "lib/nowhere/__init__.py").is_file()


@pytest.mark.parametrize("marker", ["extra == 'demo'", "python_version < '3.0'"])
def test_what_is_needed_elsewhere_only_is_not_asked_for(device, marker):
    bring(device, tiny(requires=(f"nowhere-to-be-found; {marker}",)))

    keep_software(device)

    assert said(device) == {}


def test_a_release_that_brings_none_runs_with_what_is_installed(device):
    name = stage(device)

    keep_software(device)

    assert list(device.layout.software.iterdir()) == []
    assert is_this(device, name)
    assert problem_of_software(device, name) is None
    require_software(device, name)


def test_a_process_is_the_software_of_the_releases_that_bring_it_and_of_no_other(device, monkeypatch):
    name, one = bring(device)
    other, _ = bring(device, tiny(b"2"), sequence=2)
    plain = stage(device)
    keep_software(device)
    assert [is_this(device, release) for release in (name, other, plain)] == [False, False, True]
    error = error_of(require_software, device, name)
    assert (error.code, "this process is another" in error.problem) == ("device.software.missing", True)

    monkeypatch.setattr(binding, "running", lambda: one.name)

    assert [is_this(device, release) for release in (name, other, plain)] == [True, False, False]
    require_software(device, name)


def test_the_disk_that_says_no_to_one_thing_stops_nothing_else(device, monkeypatch):
    _, one = bring(device)

    def fails(*_):
        raise DeployError("device.disk.space", "no space")

    monkeypatch.setattr(type(device.software), "clear", fails)
    monkeypatch.setattr(install, "say", fails)

    assert kept(device) == [one.name]


@pytest.fixture
def whole(device, monkeypatch):
    monkeypatch.undo()  # it is really started
    _, one = brought(device, own_with({}))
    assert said(device) == {}
    return device.layout.software / one.name


def test_the_whole_of_ours_is_unpacked_and_answers_from_there(device, whole):
    program = [sys.executable, "-IB", str(whole / "edge-runtime")]
    told = subprocess.run(
        [*program, "facts", "--root", str(device.layout.root)], capture_output=True, text=True, timeout=60, check=False
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["name"] == "gate-01"
    where = "import sys; sys.argv = ['x', '--help']; exec(open(sys.orig_argv[-1]).read().replace('edge_runtime()', ''))"
    ask = f"__file__ = {program[-1]!r}; {where}; import edge; print(edge.__file__)"
    found = subprocess.run(
        [sys.executable, "-IB", "-c", ask, program[-1]], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert Path(found.strip()).is_relative_to(whole)


def test_what_is_not_in_it_is_not_found_in_what_is_installed(device, tmp_path):
    (tmp_path / "lib").mkdir()

    assert "there is no package edge in it" in why_no_start(tmp_path)


def test_libraries_as_long_as_those_of_a_jetson_take_little_memory(device):
    """Libraries of 40 MB, stored and deflated, as opencv has one, beside a module as long as the longest of numpy."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, how in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
            entry = zipfile.ZipInfo(f"cv2/{name}.so")
            entry.compress_type = how
            with archive.open(entry, "w", force_zip64=True) as file:
                for _ in range(40):
                    file.write(bytes(1 << 20))
        archive.writestr("numpy/longest.py", b"assert_equal(np.add(1, 2), [3, 'four'])\n" * 10_000)
    name, one = bring(device, **{"opencv-4-py3-none-any.whl": packed.getvalue()})
    script = (
        "import sys; from edge.runtime.entry import main; main('software', ['--root', sys.argv[1]]);"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )

    told = subprocess.run(
        [sys.executable, "-c", script, str(device.layout.root)], capture_output=True, text=True, timeout=120, check=True
    )

    assert problem_of_software(device, name) is None, told.stderr
    assert device.software.names() == [one.name]
    assert int(told.stdout) < 150 * 1024  # KiB
