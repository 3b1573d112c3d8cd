"""A release is offered: with the lock, and where nothing stands against it; each thing that is missing is refused."""

import dataclasses
import re

import pytest

from edge.bundle.manifest import Role
from edge.device.facts import gather_facts
from edge.device.software import Installation
from edge.device.state import Phase, State
from edge.device.units import SOFTWARE_UNIT, TRIAL_UNIT
from edge.errors import DeployError
from edge.runtime.agent import accept, preflight
from edge.runtime.agent.offer import plan, put_manifest
from edge.runtime.agent.preflight import Need, lacks, need_of
from edge.runtime.agent.session import bytes_of
from edge.runtime.software.binding import installed
from tests.support.agent_session import AgentSession, offer_of
from tests.support.device_releases import PARTS
from tests.support.raised import code_of, error_of
from tests.support.wheels import key_of, software_files, tiny

MIB = 1024 * 1024


@pytest.fixture
def session(root):
    return AgentSession(root.device).hold()


def test_a_check_that_cannot_be_made_hides_none_before_it(root, session, monkeypatch):
    bundle = root.bundle()
    (root.root / "etc/systemd/system" / TRIAL_UNIT).unlink()

    def unreadable(*_):
        raise DeployError("device.disk.io", "bad.json: Input/output error")

    monkeypatch.setattr(accept, "read_bad", unreadable)

    assert [one.code for one in plan(session, offer_of(bundle)).refusals] == ["preflight.units", "device.disk.io"]


def test_a_disk_that_is_full_of_what_nobody_needs_is_cleared_up_for_a_release(root, session, monkeypatch):
    unneeded = root.layout.blob("0" * 64)
    unneeded.parent.mkdir()
    with unneeded.open("wb") as file:
        file.truncate(90 * MIB)

    def on_a_disk_of_100_mib(layout):
        used = sum(path.stat().st_size for path in layout.store.glob("*/*"))
        return dataclasses.replace(gather_facts(layout), disk_bytes=100 * MIB, disk_free_bytes=100 * MIB - used)

    monkeypatch.setattr(accept, "gather_facts", on_a_disk_of_100_mib)
    bundle = root.bundle()
    assert plan(session, offer_of(bundle)).refusals == ()
    assert unneeded.exists()

    assert put_manifest(session, offer_of(bundle)).release == bundle.manifest.release
    assert not unneeded.exists()


def test_a_disk_that_is_full_of_what_is_needed_is_told_by_a_plan(root, session, monkeypatch):
    def on_a_disk_of_100_mib(layout):
        return dataclasses.replace(gather_facts(layout), disk_bytes=100 * MIB, disk_free_bytes=10 * MIB)

    monkeypatch.setattr(accept, "gather_facts", on_a_disk_of_100_mib)
    bundle = root.bundle()

    assert [one.code for one in plan(session, offer_of(bundle)).refusals] == ["preflight.space"]
    assert code_of(put_manifest, session, offer_of(bundle)) == "preflight.space"


def test_what_is_no_base64_is_told_by_its_name():
    assert bytes_of("AP8=", "the manifest") == b"\x00\xff"
    error = error_of(bytes_of, "no base64!", "the manifest")
    assert (error.code, "the manifest" in error.problem) == ("request.value", True)


def test_a_device_that_has_stopped_trying_takes_nothing_until_a_person_has_looked(root, session):
    bundle = root.bundle()
    root.device.write_state(State(phase=Phase.FAILED, reason="no way back"))

    error = error_of(put_manifest, session, offer_of(bundle))
    assert (error.code, "no way back" in error.problem) == ("person.failed", True)
    put_manifest(session, dataclasses.replace(offer_of(bundle), retry_bad=True))


NEED = Need(
    blob_bytes=100 * MIB,
    engine_bytes=300 * MIB,
    inodes=250,
    build_memory_bytes=900 * MIB,
    spare_memory_bytes=100 * MIB,
)


@pytest.fixture
def facts(root):
    """Those of a device that has just what `NEED` asks for."""
    return dataclasses.replace(
        gather_facts(root.layout),
        disk_bytes=1000 * MIB,
        disk_free_bytes=400 * MIB,
        inodes_free=250,
        memory_available_bytes=1000 * MIB,
        is_one_file_system=True,
    )


def refusals(root, facts, manifest=None):
    return list(lacks(manifest or root.bundle().manifest, NEED, facts, root.layout))


def codes(root, facts, manifest=None):
    return [one.code for one in refusals(root, facts, manifest)]


def refusal(root, facts, manifest):
    (error,) = refusals(root, facts, manifest)
    return error


def test_a_device_that_has_just_enough_of_everything_takes_it(root, facts):
    assert codes(root, facts) == []


@pytest.mark.parametrize(
    ("lacks", "code"),
    [
        ({"disk_free_bytes": 400 * MIB - 1}, "preflight.space"),
        ({"inodes_free": 249}, "preflight.inodes"),
        ({"memory_available_bytes": 1000 * MIB - 1}, "preflight.memory"),
        ({"is_one_file_system": False}, "preflight.filesystem"),
    ],
)
def test_what_is_missing_is_named(root, facts, lacks, code):
    assert codes(root, dataclasses.replace(facts, **lacks)) == [code]


@pytest.mark.parametrize(
    ("reserve", "free", "told"),
    [
        ("reserve_bytes = 0\nreserve_share = 0.25\n", 650, None),
        ("reserve_bytes = 0\nreserve_share = 0.25\n", 649, ("649", "650", "250")),
        ("reserve_bytes = 1073741824\n", 21, ("21", "1424", "1024")),
    ],
)
def test_what_is_in_reserve_is_not_free(root, facts, reserve, free, told):
    root.layout.device_toml.write_text(f'name = "a"\ncompatible = ["lab"]\n{reserve}')
    found = refusals(root, dataclasses.replace(facts, disk_free_bytes=free * MIB))
    error = next((one for one in found if one.code == "preflight.space"), None)
    assert (error is None) == (told is None)
    if told is not None:
        assert re.findall(r"(\d+) MiB", error.problem) == [told[0], told[1], "100", "300", told[2]]
        assert str(root.layout.var) in error.problem


def test_an_engine_that_cannot_run_here_is_refused(root, facts):
    error = refusal(root, facts, root.bundle("two", engine={"kind": "abacus"}).manifest)
    assert (error.code, "abacus" in error.problem) == ("preflight.engine", True)


OTHER = "numpy-2.2.6-cp27-cp27-manylinux_2_17_riscv64.whl"


def with_software(root, **others):
    files = software_files(tiny(), **others)
    return root.bundle_of({**PARTS, **files}, "gates", sequence=1).manifest, key_of(files)


def test_software_for_another_python_is_refused_before_it_is_sent(root, facts):
    fits, _ = with_software(root)
    other, _ = with_software(root, **{OTHER: b"n"})

    assert codes(root, facts, fits) == []
    error = refusal(root, facts, other)
    assert (error.code, f"{OTHER} is not for Python 3." in error.problem) == ("preflight.software", True)


def test_a_device_that_was_provisioned_before_releases_brought_software_is_to_be_provisioned_once_more(root, facts):
    manifest, _ = with_software(root)
    (root.root / "etc/systemd/system" / SOFTWARE_UNIT).unlink()

    error = refusal(root, facts, manifest)
    assert "edge-software.service is not installed" in error.problem
    assert "edge-deploy provision" in error.hint
    assert codes(root, facts) == []  # every other release is taken as before


def test_software_takes_room_until_it_is_installed(root):
    manifest, key = with_software(root)
    plain = root.bundle_of(PARTS, "gates", sequence=2).manifest
    wheels = sum(one.length_bytes for one in manifest.files_of(Role.SOFTWARE))

    before = need_of(manifest, root.device)
    root.device.software.install(Installation(key=key, beside=installed()), [], program=b"")
    after = need_of(manifest, root.device)

    assert before.blob_bytes == need_of(plain, root.device).blob_bytes + 5 * wheels
    assert after.blob_bytes == before.blob_bytes - 4 * wheels
    assert before.inodes - after.inodes == 2000


def test_what_can_run_a_release_that_brings_its_software_only_its_build_can_tell(root, facts):
    bundle = root.bundle_of({**PARTS, **software_files(tiny())}, "gates", sequence=1, engine={"kind": "quantum"})

    assert codes(root, facts, bundle.manifest) == []


def give_secrets(root, *names, setting="LoadCredential"):
    folder = root.root / "etc/systemd/system/edge-runtime.service.d"
    folder.mkdir(exist_ok=True)
    rows = "".join(f"{setting}={name}:/etc/edge-deploy/credentials/{name}\n" for name in names)
    (folder / "30-credentials.conf").write_text(f"[Service]\n{rows}")


def asking_for(root, **needs):
    return dataclasses.replace(root.bundle().manifest, **needs)


def test_a_secret_that_the_service_would_not_be_given_is_named(root, facts):
    manifest = asking_for(root, secrets=("broker", "gate"))
    error = refusal(root, facts, manifest)
    assert (error.code, error.evidence) == ("preflight.secret", {"absent": ["broker", "gate"]})

    give_secrets(root, "broker")
    assert refusal(root, facts, manifest).evidence == {"absent": ["gate"]}


@pytest.mark.parametrize("setting", ["LoadCredential", "LoadCredentialEncrypted", "SetCredentialEncrypted"])
def test_a_secret_counts_however_systemd_gives_it(root, facts, setting):
    give_secrets(root, "broker", setting=setting)
    assert codes(root, facts, asking_for(root, secrets=("broker",))) == []


@pytest.mark.parametrize(
    ("decoder", "installed", "is_taken"),
    [
        ("auto", {"av"}, True),
        ("auto", {"gi"}, True),
        ("auto", set(), False),
        ("software", {"gi"}, True),
        ("software", {"av"}, False),
        ("nvmm", {"av"}, False),
        ("pyav", {"gi"}, False),
        ("pyav", {"av"}, True),
        ("a-later-one", set(), True),
    ],
)
def test_a_device_without_what_decodes_the_streams_is_told_before_anything_is_sent(
    root, facts, monkeypatch, decoder, installed, is_taken
):
    monkeypatch.setattr(preflight.gstreamer, "is_installed", lambda: "gi" in installed)
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: name if name in installed else None)
    manifest = asking_for(root, decoders=(decoder,))
    told = [(one.code, one.evidence) for one in refusals(root, facts, manifest) if one.code != "preflight.engine"]
    assert told == ([] if is_taken else [("preflight.media", {"decoders": [decoder]})])
