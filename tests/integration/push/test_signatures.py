"""Who may push what: asked by the real client of the real agent, before a byte of a release has moved."""

import dataclasses

import pytest

from edge.bundle.sign import sign
from tests.support.manifests import revocation, ssh_key


def absent(device, bundle):
    return dataclasses.replace(bundle, signature=b"")


def of_a_stranger(device, bundle):
    key = ssh_key(device.directory, "stranger")
    return dataclasses.replace(bundle, signature=sign(bundle.manifest_bytes, key))


def of_another_release(device, bundle):
    return dataclasses.replace(bundle, signature=device.bundle("another", sequence=2).signature)


def of_who_signed_until_then(device, bundle):
    signers = device.layout.allowed_signers
    signers.write_text(signers.read_text().replace("ops namespaces=", 'ops valid-before="20200101",namespaces='))
    return bundle


def of_a_revoked_key(device, bundle):
    revocation(device.layout.revoked_keys, device.key)
    return bundle


@pytest.mark.parametrize(
    ("signed", "part"),
    [
        (absent, "absent"),
        (of_a_stranger, "signer"),
        (of_another_release, "invalid"),
        (of_who_signed_until_then, "expired"),
        (of_a_revoked_key, "revoked"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_f11_a_signature_that_does_not_count_ends_with_4_and_nothing_is_stored(device, signed, part):
    check_refused(device, signed(device, device.bundle()), part)


def test_f11_one_altered_byte_of_the_manifest(device):
    bundle = device.bundle()
    altered = bundle.manifest_bytes.replace(b'"sequence": 1', b'"sequence": 9')
    assert altered != bundle.manifest_bytes
    check_refused(device, dataclasses.replace(bundle, manifest_bytes=altered), "invalid")


def check_refused(device, bundle, part):
    outcome = device.push(bundle)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 4, f"verify.signature.{part}")
    assert outcome.bytes_sent == 0
    assert not any(device.layout.store.iterdir())
    assert not any(device.layout.incoming.iterdir())
    assert device.device.releases.names() == []


@pytest.mark.parametrize(
    ("changes", "exit_code", "code"),
    [
        ({"compatible": ("jetson-orin",)}, 4, "verify.device"),
        ({"tensorrt": ("10.3", "11")}, 6, "preflight.tensorrt"),
        ({"expires_at": "2026-11-20T12:00:01Z"}, 4, "verify.expired"),
    ],
    ids=["class", "TensorRT", "expired"],
)
def test_f18_a_release_that_is_not_for_this_device_or_time_is_refused_by_the_plan(device, changes, exit_code, code):
    # The device's own clock may say what it likes: it has just seen a release of 2026-11-20T13:00:00Z.
    device.push(device.bundle("newer", created_at="2026-11-20T13:00:00Z"))
    sent = [path for path in device.layout.store.rglob("*") if path.is_file()]
    outcome = device.push(device.bundle("two", sequence=2, **changes))
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", exit_code, code)
    assert outcome.bytes_sent == 0
    assert [path for path in device.layout.store.rglob("*") if path.is_file()] == sent
