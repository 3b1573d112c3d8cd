"""What a device does with kept releases once their signer no longer counts; keys and signatures are ssh-keygen's."""

from datetime import datetime, timezone

import pytest

from edge.bundle.sign import fingerprint, sign
from edge.bundle.statement import encode_chain
from edge.deploy.provision.keys import TrustChange, next_chain, public_of, read_public_key
from edge.device.state import Phase
from edge.runtime.agent.release import check_choice
from edge.runtime.trial.rollback import go_back, go_to, recover_at_boot
from edge.runtime.trial.trust import require_known, require_trusted, signers_text
from tests.support.device_releases import serving, signer_of, stage
from tests.support.manifests import allow, revocation
from tests.support.raised import code_of, error_of
from tests.support.units import failed_units

REVOKED = "verify.signature.revoked"


@pytest.fixture(autouse=True)
def _a_key_that_will_be_stolen(device):
    allow(device.layout.allowed_signers, signer_of(device, "stolen"), principal="bea@example")


def revoke(device):
    revocation(device.layout.revoked_keys, signer_of(device, "stolen"))


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


def test_a_kept_release_of_a_revoked_key_goes_on_and_is_not_chosen(device):
    old, new = of_both(device)

    found = require_known(device, old)
    assert (found.signer, found.withdrawn.code) == ("bea@example", REVOKED)
    assert code_of(require_trusted, device, old) == REVOKED
    assert code_of(go_to, device, old) == REVOKED  # asked for by a person on the device
    assert device.releases.current() == new


def test_a_kept_release_outlives_the_validity_of_its_key(device):
    key = signer_of(device, "short")
    allow(device.layout.allowed_signers, key, 'namespaces="edge-release",valid-before="20260601"', "cleo@example")

    assert require_trusted(device, stage(device, key=key)).signer == "cleo@example"


def test_a_kept_release_of_a_signer_that_was_taken_away_goes_on_and_is_not_chosen(device):
    release = serving(device)
    device.layout.allowed_signers.rename(device.layout.former_signers)
    allow(device.layout.allowed_signers, signer_of(device, "another"))

    assert require_known(device, release).withdrawn.code == "verify.signature.signer"
    assert code_of(require_trusted, device, release) == "verify.signature.signer"


def other_manifest(device, release):
    path = device.layout.release(release) / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"sequence": 1', b'"sequence": 8'))


def no_signature(device, release):
    (device.layout.release(release) / "manifest.json.sig").write_bytes(b"")


@pytest.mark.parametrize(("change", "part"), [(forge, "signer"), (other_manifest, "invalid"), (no_signature, "absent")])
def test_a_kept_release_that_was_changed_does_not_even_go_on(device, change, part):
    release = serving(device)
    change(device, release)

    assert code_of(require_known, device, release) == f"verify.signature.{part}"


def test_a_release_of_a_stranger_does_not_go_on_where_others_counted_once(device):
    release = serving(device)
    allow(device.layout.former_signers, signer_of(device, "former"))
    forge(device, release)

    assert code_of(require_known, device, release) == "verify.signature.signer"


@pytest.mark.parametrize("has_document", [False, True])
def test_a_stranger_is_told_by_key_and_by_the_list_that_lacks_it(device, has_document):
    if has_document:
        root = signer_of(device, "root")
        trusted = read_public_key(signer_of(device).with_suffix(".pub"))
        change = TrustChange(added=((trusted, ("edge-release",)),))
        chain = next_chain((), change, root=root, now=datetime(2026, 1, 1, tzinfo=timezone.utc))
        device.layout.trust_root.write_text(public_of(root) + "\n")
        device.layout.first_trust.write_bytes(encode_chain(chain))
    release = stage(device, key=signer_of(device, "stranger"))

    problems = {error_of(require_trusted, device, release).problem for _ in range(2)}

    where = "version 1 of who counts" if has_document else str(device.layout.allowed_signers)
    assert [fingerprint(signer_of(device, "stranger")) in one and where in one for one in problems] == [True]


def test_a_device_without_its_list_of_signers_says_so(device):
    device.layout.allowed_signers.unlink()

    assert code_of(signers_text, device) == "device.signers"


def test_a_permission_that_was_only_sent_is_not_gone_back_to_by_its_name(device):
    serving(device)
    key = signer_of(device, "careful")
    allow(device.layout.allowed_signers, key, 'namespaces="edge-release-downgrade"', "dora@example")
    back = stage(device, sequence=2, targets=("gate-01",), downgrade_from=2)
    (device.layout.release(back) / "manifest.json.sig").write_bytes(
        sign(device.releases.manifest(back), key, "edge-release-downgrade")
    )

    assert require_trusted(device, back).is_downgrade
    assert code_of(check_choice, device, back) == "verify.downgrade.counter"


def test_a_service_that_fails_does_not_bring_a_release_of_a_revoked_key_back(device):
    old, new = of_both(device)

    way = go_back(device, failed_units(), "unit-failed")

    assert (way.release, device.releases.current()) == (new, new)
    assert device.state().fallback == old  # which may count again, if the list was wrong


def test_a_refused_trial_ends_on_what_served_before_it_even_if_its_key_was_revoked_meanwhile(device, put_new_on_trial):
    old, _, _ = put_new_on_trial(key=signer_of(device, "stolen"))
    revoke(device)

    assert go_back(device, failed_units(), "unit-failed").release == device.releases.current() == old


def test_a_refused_trial_does_not_end_on_a_release_that_a_stranger_has_signed(device, switched):
    old, new, _ = switched
    forge(device, old)

    assert code_of(go_back, device, failed_units(), "unit-failed") == "person.failed"
    assert device.releases.current() == new


def test_a_boot_does_not_end_what_serves_because_its_key_was_revoked_and_says_so(device, later):
    release = serving(device, key=signer_of(device, "stolen"))
    revoke(device)

    found = recover_at_boot(device, moment=later)

    assert (found.release, device.state().phase) == (release, Phase.IDLE)
    assert REVOKED in device.layout.audit.read_text()


def test_a_boot_goes_from_a_release_that_a_stranger_has_signed_to_the_one_before(device, later):
    old, new = serving(device, sequence=1), serving(device, sequence=2)
    forge(device, new)

    assert recover_at_boot(device, moment=later).release == device.releases.current() == old


def test_a_boot_with_a_damaged_release_does_not_choose_one_of_a_revoked_key(device, later):
    _, new = of_both(device)
    (device.layout.release(new) / "model.onnx").unlink()

    assert code_of(lambda: recover_at_boot(device, moment=later)) == "person.failed"
