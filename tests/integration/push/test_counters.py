"""What an old, a foreign or a far too new release can do to a device: asked of the real agent, with real keys."""

import threading

import pytest

from edge.bundle.folder import open_bundle
from edge.bundle.sign import sign
from edge.device.durable import Files
from edge.device.state import read_counters
from tests.support.device_root import permission
from tests.support.manifests import allow, revocation, ssh_key
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_a_permission_takes_the_device_back_once",
    "test_a_release_whose_key_was_revoked_since_is_not_gone_back_to",
    "test_a_release_from_far_ahead_is_refused_and_locks_nothing_out",
    reason="further pushes over real agents",
)


def counted(device, channel="stable"):
    return read_counters(device.layout, Files()).sequences.get(channel)


@pytest.fixture
def serving(device):
    """A device that has taken sequence 2 and serves it."""
    new = device.bundle("new", sequence=2)
    assert device.push(new).result == "committed"
    return new


def codes_of(outcome):
    return outcome.exit_code, outcome.code


def test_a_permission_takes_the_device_back_once(device, serving):
    assert device.push(permission(device, counted=2)).result == "committed"
    assert counted(device) == 3


def test_a_permission_is_not_taken_twice(device, serving):
    """Nor where its trial was refused: it is spent when that begins."""
    device.script(trial="refuse")
    back = permission(device, counted=2)
    assert device.push(back).result == "rolled-back"
    device.script()

    assert codes_of(device.push(back, retry_bad=True)) == (4, "verify.downgrade.counter")
    assert device.device.releases.current() == serving.manifest.release


def test_a_permission_is_not_spent_by_a_build_that_fails(device, serving):
    device.script(build="fail")
    back = permission(device, counted=2)
    assert device.push(back).exit_code == 7
    device.script()

    assert device.push(back).result == "committed"


def test_a_permission_for_another_device_is_refused(device, serving):
    assert codes_of(device.push(permission(device, counted=2, targets=("gate-02",)))) == (4, "verify.device")


def test_a_release_of_a_channel_that_the_device_is_not_bound_to_is_refused(device):
    toml = device.layout.device_toml
    toml.write_text(toml.read_text() + 'channels = ["stable"]\n')

    assert codes_of(device.push(device.bundle(channel="beta"))) == (4, "verify.channel")
    assert device.push(device.bundle()).result == "committed"


def test_a_device_without_channels_is_bound_to_that_of_the_first_release_that_it_takes(device, serving):
    assert codes_of(device.push(device.bundle("other", sequence=9, channel="beta"))) == (4, "verify.channel")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"created_at": "2099-01-01T00:00:00Z"}, "verify.ahead.time"),
        ({"sequence": 2**53}, "verify.ahead.sequence"),
    ],
    ids=["time", "sequence"],
)
def test_a_release_from_far_ahead_is_refused_and_locks_nothing_out(device, serving, changes, code):
    ahead = device.bundle("ahead", **{"sequence": 3, **changes})

    assert codes_of(device.push(ahead)) == (4, code)
    assert device.push(device.bundle("next", sequence=3)).result == "committed"


@pytest.fixture
def stolen(device):
    key = ssh_key(device.directory, "stolen")
    allow(device.layout.allowed_signers, key)
    return key


def signed(bundle, key, namespace="edge-release"):
    (bundle.path / "manifest.json.sig").write_bytes(sign(bundle.manifest_bytes, key, namespace))
    return open_bundle(bundle.path)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_release_whose_key_was_revoked_since_is_not_gone_back_to(device, stolen, by_name):
    old, new = signed(device.bundle("old"), stolen), device.bundle("new", sequence=2)
    assert [device.push(one).result for one in (old, new)] == ["committed", "committed"]
    revocation(device.layout.revoked_keys, stolen)

    outcome = device.go_back(old.manifest.release if by_name else None, exit_code=4)

    assert outcome.code == "verify.signature.revoked"
    assert "push" in outcome.hint
    assert device.device.releases.current() == new.manifest.release


def test_a_trial_is_not_ended_by_a_person_on_a_release_whose_key_was_revoked(device, stolen):
    old, new = signed(device.bundle("old"), stolen), device.bundle("new", sequence=2)
    device.push(old)
    device.script(trial_s=30.0)
    stop = threading.Event()
    pushing = threading.Thread(target=device.push, args=(new,), kwargs={"stop": stop})
    pushing.start()
    wait_until(lambda: device.device.releases.current() == new.manifest.release, what="the trial begins")
    stop.set()
    pushing.join(60)
    revocation(device.layout.revoked_keys, stolen)

    assert device.go_back(exit_code=4).code == "verify.signature.revoked"
    assert device.device.releases.current() == new.manifest.release
