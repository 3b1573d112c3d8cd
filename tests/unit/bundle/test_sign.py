"""Signatures by the real ssh-keygen: who may say what, until when (F-11, F-12)."""

import base64
import os
import shutil
from datetime import datetime, timezone

import pytest

from edge.bundle.manifest import encode_manifest
from edge.bundle.sign import DOWNGRADE, RELEASE, fingerprint, namespace_of, run_ssh_keygen, sign, verify
from edge.bundle.statement import RING
from edge.deploy.provision.keys import read_public_key
from edge.errors import DeployError
from tests.support.manifests import allowed, manifest, revocation, ssh_agent, ssh_certificate, ssh_key
from tests.support.raised import code_of, error_of

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
CONTENT = encode_manifest(manifest())


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return ssh_key(folder, "ana"), ssh_key(folder, "bo")


@pytest.fixture
def ask(tmp_path, keys):
    """Verify with one line of allowed signers for the first key; return the principal or the code."""

    def asked(signature, *, content=CONTENT, options='namespaces="edge-release"', at=NOW, revoked=None, **more):
        signers = allowed(tmp_path / "allowed_signers", keys[0], options)
        try:
            return verify(content, signature, allowed_signers=signers, revoked=revoked, at=at, **more)
        except DeployError as error:
            return error.code

    return asked


def test_the_same_content_and_key_give_the_same_signature(keys):
    assert sign(CONTENT, keys[0]) == sign(CONTENT, keys[0])


def test_f11_no_signature(ask):
    assert ask(b"") == "verify.signature.absent"
    assert ask(b"\n") == "verify.signature.absent"


@pytest.mark.parametrize(
    ("namespace", "option"), [(RELEASE, "--signer"), (DOWNGRADE, "--downgrade-signer"), (RING, "--promoter")]
)
def test_f11_a_key_that_is_not_allowed_is_let_in_by_the_option_for_its_purpose(tmp_path, keys, namespace, option):
    signers = allowed(tmp_path / "allowed_signers", keys[0])

    error = error_of(
        verify,
        CONTENT,
        sign(CONTENT, keys[1], namespace),
        allowed_signers=signers,
        revoked=None,
        at=NOW,
        namespace=namespace,
    )

    assert error.code == "verify.signature.signer"
    assert f"edge-deploy provision TARGET {option} KEY.pub" in error.hint
    assert (fingerprint(keys[1]) in error.problem, str(signers) in error.problem) == (True, True)


def test_f11_a_signature_for_another_purpose(ask, keys):
    assert ask(sign(CONTENT, keys[0], "git")) == "verify.signature.namespace"
    assert ask(sign(CONTENT, keys[0]), options='namespaces="git"') == "verify.signature.namespace"


def test_f11_one_altered_byte(ask, keys):
    altered = bytearray(CONTENT)
    altered[len(altered) // 2] ^= 1

    assert ask(sign(CONTENT, keys[0]), content=bytes(altered)) == "verify.signature.invalid"


def test_f11_a_signature_of_another_version(keys):
    first, *lines, last = sign(CONTENT, keys[0]).splitlines()
    blob = base64.b64decode(b"".join(lines)).replace(b"SSHSIG\0\0\0\1", b"SSHSIG\0\0\0\2", 1)

    assert code_of(namespace_of, b"\n".join((first, base64.b64encode(blob), last, b""))) == "verify.signature.invalid"


def test_f11_a_signature_that_ends_too_early(ask, keys):
    whole = sign(CONTENT, keys[0])

    for length in range(1, len(whole) - 1, 7):
        assert ask(whole[:length]) == "verify.signature.invalid", length


@pytest.mark.parametrize("signature", [b"x", b"-----BEGIN SSH SIGNATURE-----\n", b"\0" * 100, b"A" * 100_000])
def test_f11_what_is_no_signature(ask, signature):
    assert ask(signature) == "verify.signature.invalid"


def test_f12_a_signer_whose_time_is_over_or_has_not_come(ask, keys):
    signature = sign(CONTENT, keys[0])

    assert ask(signature, options='valid-before="20261120"') == "verify.signature.expired"
    assert ask(signature, options='valid-after="20270101",namespaces="edge-release"') == "verify.signature.expired"
    assert ask(signature, options='valid-before="20261121",namespaces="edge-release"') == "ana@example"


@pytest.mark.parametrize("suffix", ["", "Z"], ids=["no zone said", "UTC said"])
def test_f12_times_of_signers_are_utc_wherever_the_device_stands(ask, keys, monkeypatch, suffix):
    signature = sign(CONTENT, keys[0])
    if suffix and ask(signature, options=f'valid-before="20300101{suffix}"') == "verify.signature.options":
        pytest.skip("this ssh-keygen is older than 9.1 and knows no times with a zone")

    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):  # 14 hours ahead, 11 behind
        monkeypatch.setenv("TZ", zone)
        assert ask(signature, options=f'valid-before="20261120130000{suffix}"') == "ana@example"
        assert ask(signature, options=f'valid-before="20261120110000{suffix}"') == "verify.signature.expired"


def test_f12_a_time_with_a_zone_is_told_as_what_an_old_ssh_keygen_does_not_know(ask, keys, tmp_path, monkeypatch):
    """OpenSSH 8.9 takes no such line; a stand-in in its place, which otherwise is the real one."""
    signature = sign(CONTENT, keys[0])
    real, folder = shutil.which("ssh-keygen"), tmp_path / "bin"
    folder.mkdir()
    refuse = """for one; do [ -f "$one" ] && grep -q 'valid-[a-z]*="[0-9]*Z"' "$one" && exit 255; done"""
    (folder / "ssh-keygen").write_text(f'#!/bin/sh\n{refuse}\nexec {real} "$@"\n')
    (folder / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    assert ask(signature, options='valid-before="20261120130000Z"') == "verify.signature.options"
    assert ask(signature, options='valid-before="20261120110000Z"') == "verify.signature.expired"
    assert ask(signature, options='valid-before="20261120130000"') == "ana@example"


def test_f12_a_revoked_key(ask, keys, tmp_path):
    signature = sign(CONTENT, keys[0])

    assert ask(signature, revoked=revocation(tmp_path / "his.krl", keys[0])) == "verify.signature.revoked"
    assert ask(signature, revoked=revocation(tmp_path / "other.krl", keys[1])) == "ana@example"


@pytest.mark.parametrize("options", ["frobnicate", 'frobnicate="1"', 'valid-before="20300101",frobnicate'])
def test_f12_an_option_that_is_not_known_makes_the_line_count_for_nothing(ask, keys, options):
    assert ask(sign(CONTENT, keys[0]), options=options) == "verify.signature.options"


def test_f12_a_revocation_list_that_cannot_be_read_stops_everything(ask, keys, tmp_path):
    signature = sign(CONTENT, keys[0])
    (tmp_path / "broken.krl").write_bytes(b"SSHKRL\n\0broken")

    assert ask(signature, revoked=tmp_path / "broken.krl") == "device.signers"
    assert ask(signature, revoked=tmp_path / "absent.krl") == "device.signers"


def test_without_allowed_signers_nobody_counts(tmp_path, keys):
    assert (
        code_of(verify, CONTENT, sign(CONTENT, keys[0]), allowed_signers=tmp_path / "none", revoked=None, at=NOW)
        == "device.signers"
    )


def test_a_downgrade_is_signed_on_purpose(ask, keys):
    signature = sign(CONTENT, keys[0], DOWNGRADE)

    assert namespace_of(signature) == "edge-release-downgrade"
    assert ask(signature) == "verify.signature.namespace"
    assert ask(signature, namespace=DOWNGRADE) == "verify.signature.namespace"  # this signer may not
    assert ask(signature, namespace=DOWNGRADE, options='namespaces="edge-release*"') == "ana@example"


@pytest.mark.parametrize("length", [6, 10, 14, 40, 64, 72])
def test_a_signature_that_ends_within_what_it_says_of_itself_is_damaged(keys, length):
    """Magic has 6 bytes, version 4, lengths 4 each; the key, of 51, ends at 65, the namespace, of 12, at 81."""
    first, *lines, last = sign(CONTENT, keys[0]).splitlines()
    cut = base64.b64encode(base64.b64decode(b"".join(lines))[:length])

    assert code_of(namespace_of, b"\n".join((first, cut, last, b""))) == "verify.signature.invalid"


def test_a_key_in_an_agent_signs_by_its_public_half(ask, keys, tmp_path, monkeypatch):
    alone = tmp_path / "alone.pub"
    alone.write_bytes(keys[0].with_suffix(".pub").read_bytes())

    with ssh_agent(tmp_path, monkeypatch, keys[0]):
        assert ask(sign(CONTENT, alone)) == "ana@example"


def test_a_key_that_cannot_sign_says_why(tmp_path):
    (tmp_path / "no_key").write_text("no key")

    for act in (lambda: sign(CONTENT, tmp_path / "no_key"), lambda: fingerprint(tmp_path / "no_key")):
        with pytest.raises(DeployError, match="no_key") as refusal:
            act()
        assert refusal.value.code == "bundle.key"


@pytest.mark.parametrize("given", ["me", "me.pub"])
def test_a_private_key_that_others_may_read_is_to_be_closed(tmp_path, monkeypatch, given):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    ssh_key(tmp_path, "me").chmod(0o640)

    error = error_of(sign, CONTENT, tmp_path / given)

    assert (error.code, error.hint) == ("bundle.key", f"chmod 600 {tmp_path / 'me'}")
    assert "0640" in error.problem


def test_a_public_key_may_have_any_name_and_be_read_by_all(tmp_path):
    ssh_key(tmp_path, "me")
    shutil.copy(tmp_path / "me.pub", tmp_path / "release-public")
    (tmp_path / "release-public").chmod(0o644)

    assert fingerprint(tmp_path / "release-public") == fingerprint(tmp_path / "me.pub")


@pytest.mark.parametrize("given", ["me-cert.pub", "named", "named.pub"])
def test_a_certificate_is_no_signer(tmp_path, given):
    ssh_certificate(tmp_path, "me")
    shutil.copy(tmp_path / "me", tmp_path / "named")
    shutil.copy(tmp_path / "me-cert.pub", tmp_path / "named.pub")

    for act in (sign, lambda _, key: fingerprint(key), lambda _, key: read_public_key(key.with_suffix(".pub"))):
        refusal = error_of(act, CONTENT, tmp_path / given)
        assert refusal.code in ("bundle.key", "request.key")
        assert "certificate" in refusal.problem
        assert given != "me-cert.pub" or str(tmp_path / "me.pub") in refusal.hint
    assert fingerprint(tmp_path / "me") == fingerprint(tmp_path / "me.pub")


def test_ssh_keygen_that_hangs_is_ended(tmp_path, monkeypatch):
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(DeployError, match="has not ended") as refusal:
        run_ssh_keygen("-Y", "verify", deadline_s=0.1)
    assert refusal.value.code == "device.ssh-keygen"


def test_a_machine_without_ssh_keygen_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DeployError, match="not installed"):
        run_ssh_keygen("-Y", "verify")
