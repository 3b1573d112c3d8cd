"""What a device does with kept releases once their signer no longer counts; keys and signatures are ssh-keygen's."""

import pytest

from edge.bundle.sign import sign
from edge.errors import DeployError
from edge.runtime.trust import is_trusted, require_known, require_trusted
from tests.support.device_releases import make_device, serving, signer_of, stage
from tests.support.manifests import allow, revocation

REVOKED = "verify.signature.revoked"


@pytest.fixture
def device(tmp_path):
    made = make_device(tmp_path)
    allow(made.layout.allowed_signers, signer_of(made, "stolen"), principal="bea@example")
    return made


def code_of(function, *arguments):
    with pytest.raises(DeployError) as caught:
        function(*arguments)
    return caught.value.code


def revoke(device, name="stolen"):
    revocation(device.layout.revoked_keys, signer_of(device, name))


def forge(device, release):
    """Replace the signature of a kept release with a stranger's."""
    path = device.layout.release(release) / "manifest.json.sig"
    path.write_bytes(sign(device.releases.manifest(release), signer_of(device, "stranger")))


def of_both(device):
    """A release of the stolen key that was proven, and one of a good key that serves; then the key is revoked."""
    old = serving(device, sequence=1, key=signer_of(device, "stolen"))
    new = serving(device, sequence=2)
    revoke(device)
    return old, new


def test_a_kept_release_whose_signer_counts_may_be_chosen(device):
    release = serving(device)

    assert require_trusted(device, release).signer == "ana@example"


def test_a_kept_release_of_a_revoked_key_goes_on_and_is_not_chosen(device):
    old, _ = of_both(device)

    found = require_known(device, old)
    assert (found.signer, found.withdrawn.code) == ("bea@example", REVOKED)
    assert code_of(require_trusted, device, old) == REVOKED


def test_a_kept_release_outlives_the_validity_of_its_key(device):
    key = signer_of(device, "short")
    allow(device.layout.allowed_signers, key, 'namespaces="edge-release",valid-before="20260601"', "cleo@example")

    assert is_trusted(device, stage(device, key=key))


def test_a_kept_release_of_a_signer_that_was_taken_away_goes_on_and_is_not_chosen(device):
    release = serving(device)
    device.layout.allowed_signers.rename(device.layout.former_signers)
    allow(device.layout.allowed_signers, signer_of(device, "another"))

    assert require_known(device, release).withdrawn.code == "verify.signature.signer"
    assert not is_trusted(device, release)


def stranger(device, release):
    forge(device, release)


def other_manifest(device, release):
    path = device.layout.release(release) / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"sequence": 1', b'"sequence": 8'))


def no_signature(device, release):
    (device.layout.release(release) / "manifest.json.sig").write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "part"), [(stranger, "signer"), (other_manifest, "invalid"), (no_signature, "absent")]
)
def test_a_kept_release_that_was_changed_does_not_even_go_on(device, change, part):
    release = serving(device)
    change(device, release)

    assert code_of(require_known, device, release) == f"verify.signature.{part}"
