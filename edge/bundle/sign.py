"""Signatures over the raw bytes of a manifest: SSHSIG, made and verified by `ssh-keygen` with the keys people have.

`ssh-keygen -Y verify` alone decides whether a signature counts; what comes after a refusal only finds out why.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.bundle.ssh_keygen import RanSshKeygen, run_ssh_keygen
from edge.bundle.sshsig import MAX_SIGNATURE_BYTES, SshSignature, read_signature
from edge.errors import DeployError

__all__ = ["DOWNGRADE", "RELEASE", "RESET", "fingerprint", "namespace_of", "sign", "verify"]

RELEASE = "edge-release"
DOWNGRADE = "edge-release-downgrade"
"""Namespace of a signature that allows a lower sequence than the device has seen."""
RESET = "edge-device-reset"
"""Namespace of an order that sets the counters of one device anew, see `edge.bundle.reset`."""

_SIGNING_DEADLINE_S = 120.0  # a person may have to type a passphrase or touch a security key
_VALIDITY = re.compile(r'valid-(?:after|before)="?[0-9]+Z?"?', re.IGNORECASE)


def sign(content: bytes, key: Path, namespace: str = RELEASE) -> bytes:
    """Return the signature of `content`; `key` is a private key, or the public half of one that an agent holds.

    Raises:
        DeployError: `bundle.key`, with what ssh-keygen said, if the key cannot sign.
    """
    ran = run_ssh_keygen("-Y", "sign", "-n", namespace, "-f", str(key), content=content, deadline_s=_SIGNING_DEADLINE_S)
    if not ran.is_ok or not ran.output:
        raise DeployError(
            "bundle.key",
            f"{key}: ssh-keygen could not sign with it: {_last_line(ran.complaint)}",
            hint="give a key that you can use with ssh, --key FILE; load it into ssh-agent if it has a passphrase",
        )
    return ran.output


def fingerprint(key: Path) -> str:
    """Return `SHA256:...` of a key file, private or public.

    Raises:
        DeployError: `bundle.key`, if it is no key.
    """
    ran = run_ssh_keygen("-l", "-E", "sha256", "-f", str(key))
    words = ran.output.decode("utf-8", "replace").split()
    if not ran.is_ok or len(words) < 2:
        raise DeployError("bundle.key", f"{key}: is no SSH key: {_last_line(ran.complaint)}", hint="give --key FILE")
    return words[1]


def namespace_of(signature: bytes) -> str:
    """Return what the signature says that it was made for, which proves nothing before `verify` has passed.

    Raises:
        DeployError: `verify.signature.absent` or `verify.signature.invalid`.
    """
    return _read(signature).namespace


def verify(
    content: bytes,
    signature: bytes,
    *,
    allowed_signers: Path,
    revoked: Path | None,
    at: datetime,
    namespace: str = RELEASE,
) -> str:
    """Return the name under which `allowed_signers` lists the one who signed `content` for `namespace`.

    Args:
        revoked: a key revocation list; None: no key is revoked.
        at: the time at which the signer has to be valid; see `edge.bundle.clock.time_floor`.

    Raises:
        DeployError: `verify.signature.` + absent, invalid, namespace, signer, options, expired, revoked;
            `device.signers` if `allowed_signers` or `revoked` cannot be read.
    """
    read = _read(signature)
    if read.namespace != namespace:
        raise DeployError(
            "verify.signature.namespace",
            f"the signature was made for {read.namespace[:100]!r}, expected {namespace!r}",
            hint="sign the bundle with edge-deploy bundle",
        )
    _check_readable(allowed_signers, revoked)
    with _file(signature) as path:
        asked = _Question(content, path, namespace, at)
        principal = asked.principal(allowed_signers)
        if principal is None:
            raise _not_a_signer(asked, read, allowed_signers)
        if not asked.is_valid(principal, allowed_signers, revoked):
            raise _refusal(asked, principal, allowed_signers, revoked)
        return principal


@dataclass(frozen=True, slots=True)
class _Question:
    """One signature of one content, and what ssh-keygen says of it."""

    content: bytes
    signature: Path
    namespace: str
    at: datetime

    def principal(self, allowed_signers: Path) -> str | None:
        ran = self._ask("find-principals", "-f", str(allowed_signers), self._time())
        names = ran.output.decode("utf-8", "replace").splitlines()
        return names[0].split(",")[0] if ran.is_ok and names else None

    def is_valid(self, principal: str, allowed_signers: Path, revoked: Path | None) -> bool:
        revocation = () if revoked is None else ("-r", str(revoked))
        who = ("-f", str(allowed_signers), "-I", principal, "-n", self.namespace, *revocation)
        return self._ask("verify", *who, self._time()).is_ok

    def is_of_the_content(self) -> bool:
        return self._ask("check-novalidate", "-n", self.namespace).is_ok

    def _ask(self, question: str, *options: str) -> RanSshKeygen:
        return run_ssh_keygen("-Y", question, *options, "-s", str(self.signature), content=self.content)

    def _time(self) -> str:
        return f"-Overify-time={self.at.astimezone(timezone.utc):%Y%m%d%H%M%S}"


def _read(signature: bytes) -> SshSignature:
    if not signature.strip():
        raise DeployError(
            "verify.signature.absent", "the manifest is not signed", hint="make the bundle with edge-deploy bundle"
        )
    if len(signature) > MAX_SIGNATURE_BYTES:
        raise _unreadable(f"it has {len(signature)} bytes")
    try:
        return read_signature(signature)
    except ValueError as error:
        raise _unreadable(str(error)) from None


def _unreadable(why: str) -> DeployError:
    return DeployError("verify.signature.invalid", f"the signature cannot be read: {why}", hint="copy the bundle again")


def _check_readable(allowed_signers: Path, revoked: Path | None) -> None:
    try:
        allowed_signers.read_bytes()
    except OSError as error:
        raise DeployError(
            "device.signers",
            f"{allowed_signers}: cannot be read: {error.strerror}",
            hint="run edge-deploy provision, which installs it",
        ) from None
    if revoked is not None and not run_ssh_keygen("-Q", "-l", "-f", str(revoked)).is_ok:
        raise DeployError(
            "device.signers",
            f"{revoked}: is no key revocation list, so no signer can be trusted",
            hint="make it with ssh-keygen -k -f revoked.krl KEY.pub",
        )


def _not_a_signer(asked: _Question, read: SshSignature, allowed_signers: Path) -> DeployError:
    lines = [line for line in _lines(allowed_signers) if read.public_key in line.split()]
    if not lines:
        return DeployError(
            "verify.signature.signer",
            f"the signer's key is not in {allowed_signers}",
            hint="sign with a key that the device knows, or add this one with edge-deploy provision",
        )
    at_any_time = "\n".join(_without_validity(line) for line in lines) + "\n"
    with _file(at_any_time.encode("utf-8")) as path:
        if asked.principal(path) is None:
            return DeployError(
                "verify.signature.options",
                f"{allowed_signers}: the signer's line has an option that is not known here: {lines[0][:200]}",
                hint="a line that is not wholly understood does not count; mend it",
            )
    return DeployError(
        "verify.signature.expired",
        f"the signer's key is not valid at {asked.at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}: {lines[0][:200]}",
        hint="sign with a valid key; if the time is wrong, set the device's clock",
    )


def _refusal(asked: _Question, principal: str, allowed_signers: Path, revoked: Path | None) -> DeployError:
    if not asked.is_of_the_content():
        return DeployError(
            "verify.signature.invalid",
            "the signature does not belong to this manifest: one of them was changed",
            hint="copy the bundle again",
        )
    if revoked is not None and asked.is_valid(principal, allowed_signers, None):
        return DeployError(
            "verify.signature.revoked",
            f"the key of {principal!r} is revoked by {revoked}",
            hint="sign with another key",
        )
    return DeployError(
        "verify.signature.namespace",
        f"{allowed_signers} does not allow {principal!r} to sign for {asked.namespace!r}",
        hint="a signer's line names what it may sign for in namespaces=",
    )


def _lines(allowed_signers: Path) -> list[str]:
    return allowed_signers.read_text(encoding="utf-8", errors="replace").splitlines()


def _without_validity(line: str) -> str:
    # `name valid-before="20260101",namespaces="a" ssh-ed25519 AAAA`: the options are one word, or absent.
    principal, _, rest = line.strip().partition(" ")
    options, _, key = rest.partition(" ")
    if not _VALIDITY.search(options):
        return line
    others = ",".join(part for part in _VALIDITY.sub("", options).split(",") if part)
    return " ".join(part for part in (principal, others, key) if part)


@contextmanager
def _file(content: bytes) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="edge-signature-") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _last_line(text: str) -> str:
    return text.splitlines()[-1].strip() if text else "it said nothing"
