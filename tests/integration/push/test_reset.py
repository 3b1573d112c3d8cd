"""A device that has taken a release from far ahead, and the signed reset that brings it back: real agent, real keys."""

import dataclasses
from datetime import datetime, timedelta, timezone

import pytest

from edge.bundle.reset import decode_reset, encode_reset
from edge.bundle.sign import RELEASE, RESET, sign
from edge.deploy.push.reset import SignedReset, apply_reset, counters_at, make_reset
from edge.device.counters import Counters, raise_counters, read_counters
from edge.device.files import RealFiles
from edge.errors import DeployError
from tests.support.manifests import allow, revocation, ssh_key
from tests.support.permissions import permission

pytestmark = pytest.mark.integration

NOW = datetime.now(timezone.utc)
FAR = Counters(sequences={"stable": 2**53}, newest_created_at="2099-01-01T00:00:00Z")


@pytest.fixture
def astray(device):
    """A device that serves a release and has taken, before that was bounded, one from far ahead."""
    assert device.push(device.bundle("old")).result == "committed"
    raise_counters(device.layout, device.device.durable, FAR)
    return device


def order_for(device, *, now=NOW, key=None, **more):
    return make_reset(counters_at(device.connect), "gate-01", key=key or device.key, now=now, **more)


def changed(device, order, key=None, namespace=RESET, **changes):
    content = encode_reset(dataclasses.replace(decode_reset(order.content), **changes))
    return SignedReset(content=content, signature=sign(content, key or device.key, namespace))


def counters(device):
    return read_counters(device.layout, RealFiles())


def code_of(device, order):
    with pytest.raises(DeployError) as caught:
        apply_reset(device.connect, order, who="tester")
    return caught.value.code


def newest(device, name="new", **changes):
    made = {"sequence": int(NOW.timestamp()) + 60, "created_at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}", **changes}
    return device.bundle(name, **made)


def test_a_device_that_was_led_astray_takes_honest_releases_again_after_a_reset(astray):
    assert astray.push(newest(astray)).code == "verify.downgrade"

    answer = apply_reset(astray.connect, order_for(astray), who="tester")

    assert answer.sequences == {"stable": int(NOW.timestamp())}
    assert counters(astray).newest_created_at == f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
    assert astray.push(newest(astray)).result == "committed"
    assert '"what": "reset"' in astray.layout.audit.read_text()


def test_what_was_signed_before_the_reset_stays_refused(astray):
    apply_reset(astray.connect, order_for(astray), who="tester")

    before = int(NOW.timestamp()) - 1
    assert astray.push(newest(astray, sequence=before)).code == "verify.downgrade"


def test_a_reset_is_followed_once_even_by_a_device_that_is_led_astray_to_the_same_place_again(astray):
    order = order_for(astray)
    apply_reset(astray.connect, order, who="tester")
    raise_counters(astray.layout, astray.device.durable, FAR)

    assert code_of(astray, order) == "verify.reset.used"
    assert counters(astray).sequences == FAR.sequences


def test_a_reset_for_other_counters_than_the_devices_is_refused(astray):
    order = order_for(astray)
    raise_counters(astray.layout, astray.device.durable, Counters(sequences={"beta": 1}))

    assert code_of(astray, order) == "verify.reset.counters"


def by_a_stranger(device, order):
    return changed(device, order, ssh_key(device.directory, "stranger"))


def as_a_release(device, order):
    return changed(device, order, namespace=RELEASE)


def by_a_signer_of_releases_only(device, order):
    key = ssh_key(device.directory, "releases")
    allow(device.layout.allowed_signers, key)
    return changed(device, order, key)


def by_a_revoked_key(device, order):
    revocation(device.layout.revoked_keys, device.key)
    return order


def with_another_count(device, order):
    content = order.content.replace(b'"target": "gate-01"', b'"target": "gate-02"')
    return SignedReset(content=content, signature=order.signature)


def for_another_device(device, order):
    return changed(device, order, target="gate-02")


def that_has_expired(device, order):
    return changed(device, order, created_at="2026-11-20T12:00:00Z", expires_at="2026-11-20T12:00:01Z", sequences={})


def from_far_ahead(device, order):
    return changed(device, order, created_at="2099-01-01T00:00:00Z", expires_at="2099-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("forged", "code"),
    [
        (by_a_stranger, "verify.signature.signer"),
        (as_a_release, "verify.signature.namespace"),
        (by_a_signer_of_releases_only, "verify.signature.namespace"),
        (by_a_revoked_key, "verify.signature.revoked"),
        (with_another_count, "verify.signature.invalid"),
        (for_another_device, "verify.device"),
        (that_has_expired, "verify.expired"),
        (from_far_ahead, "verify.ahead.time"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_reset_that_does_not_count_changes_nothing(astray, forged, code):
    assert code_of(astray, forged(astray, order_for(astray))) == code
    assert counters(astray).sequences == FAR.sequences


def test_a_permission_to_go_back_from_before_a_reset_is_void_although_its_counter_comes_round_again(device):
    device.push(device.bundle("two", sequence=2))
    back = permission(device, counted=2)
    raise_counters(device.layout, device.device.durable, FAR)
    apply_reset(device.connect, order_for(device, sequences={"stable": 2}), who="tester")

    assert device.push(back).code == "verify.downgrade.counter"


def test_a_reset_that_no_device_would_follow_is_not_signed(astray):
    with pytest.raises(DeployError) as caught:
        order_for(astray, sequences={"stable": int((NOW + timedelta(days=3)).timestamp())})
    assert caught.value.code == "request.reset"
