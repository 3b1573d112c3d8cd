"""What the deploy key alone can make a device go back to: asked of the real agent, with real keys."""

import threading

import pytest

from edge.bundle.folder import open_bundle
from edge.bundle.sign import sign
from tests.support.manifests import allow, revocation, ssh_key
from tests.support.wait import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow_but(
        "test_a_release_whose_key_was_revoked_since_is_not_gone_back_to", reason="further pushes over real agents"
    ),
]


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
