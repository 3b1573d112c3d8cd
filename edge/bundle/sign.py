"""Signatures over the raw bytes of a manifest: SSHSIG, made and verified by `ssh-keygen` with the keys people have.

`ssh-keygen -Y verify` alone decides whether a signature counts; what comes after a refusal only finds out why. It runs
with a deadline, in UTC, and is judged by its exit status alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import stat
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge.errors import DeployError

__all__ = [
    "CERTIFICATE",
    "DOWNGRADE",
    "MAX_SIGNATURE_BYTES",
    "RELEASE",
    "RanSshKeygen",
    "SshSignature",
    "certificate_error",
    "fingerprint",
    "fingerprint_of",
    "namespace_of",
    "read_signature",
    "run_ssh_keygen",
    "sign",
    "verify",
]

MAX_SIGNATURE_BYTES = 16 * 1024
_ARMOUR = re.compile(rb"\s*-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/=\s]+)-----END SSH SIGNATURE-----\s*")
_MAGIC = b"SSHSIG"
RELEASE = "edge-release"
DOWNGRADE = "edge-release-downgrade"
"""Namespace of a signature that allows a lower sequence than the device has seen."""
CERTIFICATE = "-cert-v01@openssh.com"
"""End of a certificate's kind."""

_OPTIONS = {RELEASE: "--signer", DOWNGRADE: "--downgrade-signer"}
_FIRST_LINE_BYTES = 64
_SIGNING_DEADLINE_S = 120.0  # a person may have to type a passphrase or touch a security key
_VALIDITY = re.compile(r'valid-(?:after|before)="?[0-9]+Z?"?', re.IGNORECASE)
_ZONE = re.compile(r'(valid-(?:after|before)="?[0-9]+)Z', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SshSignature:
    """`public_key` is in base64, as a line of an allowed-signers file has it."""

    public_key: str
    namespace: str

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.public_key)


def read_signature(signature: bytes) -> SshSignature:
    """Return the fields of `signature`; ValueError if it is no SSH signature. Source: OpenSSH, PROTOCOL.sshsig."""
    armour = _ARMOUR.fullmatch(signature[:MAX_SIGNATURE_BYTES])
    if armour is None or len(signature) > MAX_SIGNATURE_BYTES:
        raise ValueError("not an armoured SSH signature")
    try:
        blob = base64.b64decode(b"".join(armour.group(1).split()), validate=True)
        if not blob.startswith(_MAGIC) or struct.unpack_from(">I", blob, len(_MAGIC)) != (1,):
            raise ValueError("not an SSH signature of version 1")
        key, offset = _string(blob, len(_MAGIC) + 4)
        namespace, _ = _string(blob, offset)
        return SshSignature(base64.b64encode(key).decode("ascii"), namespace.decode("utf-8"))
    except (binascii.Error, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"damaged: {error}") from None


def _string(blob: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", blob, offset)
    end = offset + 4 + length
    if end > len(blob):
        raise ValueError("damaged: it ends too early")
    return blob[offset + 4 : end], end


@dataclass(frozen=True, slots=True)
class RanSshKeygen:
    """`complaint` is for people: its wording changes with the version."""

    is_ok: bool
    output: bytes
    complaint: str


def run_ssh_keygen(*arguments: str, content: bytes = b"", deadline_s: float = 10.0) -> RanSshKeygen:
    """Return its answer to `content` on stdin; DeployError `device.ssh-keygen` if missing or over `deadline_s`."""
    # Times without a zone, in allowed signers and in verify-time, are local ones to ssh-keygen; a device is not.
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    try:
        ran = subprocess.run(
            ["ssh-keygen", *arguments],
            input=content,
            capture_output=True,
            timeout=deadline_s,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise DeployError(
            "device.ssh-keygen", "ssh-keygen is not installed", hint="install OpenSSH's client (openssh-client)"
        ) from None
    except subprocess.TimeoutExpired:
        raise DeployError(
            "device.ssh-keygen",
            f"ssh-keygen {' '.join(arguments[:2])} has not ended within {deadline_s:g} s",
            hint="it may wait for a passphrase or for the touch of a security key",
        ) from None
    return RanSshKeygen(ran.returncode == 0, ran.stdout, ran.stderr.decode("utf-8", "replace").strip()[:500])


def sign(content: bytes, key: Path, namespace: str = RELEASE) -> bytes:
    """Return the signature by a private key, or the public half of one in an agent; DeployError `bundle.key`."""
    fingerprint(key)
    ran = run_ssh_keygen("-Y", "sign", "-n", namespace, "-f", str(key), content=content, deadline_s=_SIGNING_DEADLINE_S)
    if not ran.is_ok or not ran.output:
        if key.suffix == ".pub":  # of which ssh-agent may have the other half
            _require_closed(key.with_suffix(""))
        raise DeployError(
            "bundle.key",
            f"{key}: ssh-keygen could not sign with it: {_last_line(ran.complaint)}",
            hint="give a key that you can use with ssh; load it into ssh-agent if it has a passphrase",
        )
    return ran.output


def fingerprint_of(public_key: str) -> str:
    """Return `SHA256:...` of a public key in base64. Source: ssh-keygen(1), -l."""
    digest = hashlib.sha256(base64.b64decode(public_key)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def fingerprint(key: Path) -> str:
    """Return `SHA256:...` of a key file, private or public; DeployError `bundle.key` for any other file."""
    ran = run_ssh_keygen("-l", "-E", "sha256", "-f", str(key))
    words = ran.output.decode("utf-8", "replace").split()
    if not ran.is_ok or len(words) < 2:
        raise DeployError(
            "bundle.key", f"{key}: is no SSH key: {_last_line(ran.complaint)}", hint="give a private or public key"
        )
    _require_closed(key)
    if b"-CERT)\n" in ran.output:
        raise certificate_error("bundle.key", key)
    return words[1]


def _require_closed(key: Path) -> None:
    """Raise DeployError `bundle.key` for a private key that ssh-keygen ignores because others may read it."""
    status = key.stat() if key.is_file() else None
    is_open = status is not None and status.st_uid == os.getuid() and status.st_mode & 0o077
    if status is None or not is_open or b"PRIVATE KEY" not in key.read_bytes()[:_FIRST_LINE_BYTES]:
        return
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    raise DeployError("bundle.key", f"{key}: its mode {mode} lets others have the private key", hint=f"chmod 600 {key}")


def certificate_error(code: str, path: Path) -> DeployError:
    plain = re.sub(r"-cert\.pub$", ".pub", str(path))
    return DeployError(code, f"{path}: is a certificate: its dates are not read", hint=f"give the key alone: {plain}")


def namespace_of(signature: bytes) -> str:
    """Return the claimed namespace, unproven before `verify`; DeployError `verify.signature.absent` or `.invalid`."""
    return _read(signature).namespace


def verify(
    content: bytes,
    signature: bytes,
    *,
    allowed_signers: Path,
    revoked: Path | None,
    at: datetime,
    namespace: str = RELEASE,
    listed_in: str | None = None,
) -> str:
    """Return the name under which `allowed_signers` lists the signer of `content` for `namespace`.

    `revoked`: a key revocation list. `at`: the time at which the signer has to be valid. `listed_in`: what people know
    `allowed_signers` as, where that is a copy.
    DeployError: `verify.signature.` + absent, invalid, namespace, signer, options, expired, revoked; `device.signers`
    if `allowed_signers` or `revoked` cannot be read.
    """
    read = _read(signature)
    if read.namespace != namespace:
        raise DeployError(
            "verify.signature.namespace",
            f"the signature was made for {read.namespace[:100]!r}, expected {namespace!r}",
            hint="sign the bundle with edge-deploy bundle",
        )
    _check_readable(allowed_signers, revoked)
    listed_in = listed_in or str(allowed_signers)
    with in_file(signature) as path:
        asked = _Question(content, path, namespace, at)
        principal = asked.principal(allowed_signers)
        if principal is None:
            raise _not_a_signer(asked, read, allowed_signers, listed_in)
        if not asked.is_valid(principal, allowed_signers, revoked):
            raise _refusal(asked, principal, allowed_signers, revoked, listed_in)
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
            hint="run edge-deploy provision TARGET --signer KEY.pub, which writes it",
        ) from None
    if revoked is not None and not run_ssh_keygen("-Q", "-l", "-f", str(revoked)).is_ok:
        raise DeployError(
            "device.signers",
            f"{revoked}: is no key revocation list, so no signer can be trusted",
            hint="make it with ssh-keygen -k -f revoked.krl KEY.pub",
        )


def _not_a_signer(asked: _Question, read: SshSignature, allowed_signers: Path, listed_in: str) -> DeployError:
    lines = [line for line in _lines(allowed_signers) if read.public_key in line.split()]
    if not lines:
        return DeployError(
            "verify.signature.signer",
            f"the signer's key, {read.fingerprint}, is not in {listed_in}",
            hint="sign with a key that the device knows, or let this one count: "
            f"edge-deploy provision TARGET {_OPTIONS.get(asked.namespace, '--promoter')} KEY.pub "
            "(where a root key says who counts: edge-deploy trust sign)",
        )
    at_any_time = "\n".join(_without_validity(line) for line in lines) + "\n"
    without_zone = "\n".join(_ZONE.sub(r"\1", line) for line in lines) + "\n"
    with in_file(at_any_time.encode("utf-8")) as whenever, in_file(without_zone.encode("utf-8")) as unzoned:
        if asked.principal(whenever) is None or asked.principal(unzoned) is not None:
            return DeployError(
                "verify.signature.options",
                f"{listed_in}: the signer's line has an option that is not known here: {lines[0][:200]}",
                hint="a line that is not wholly understood does not count (OpenSSH 8.9 takes no Z in times); mend it",
            )
    return DeployError(
        "verify.signature.expired",
        f"the signer's key is not valid at {asked.at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}: {lines[0][:200]}",
        hint="sign with a valid key; if the time is wrong, set the device's clock",
    )


def _refusal(
    asked: _Question, principal: str, allowed_signers: Path, revoked: Path | None, listed_in: str
) -> DeployError:
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
        f"{listed_in} does not allow {principal!r} to sign for {asked.namespace!r}",
        hint="a signer's line names what it may sign for in namespaces=",
    )


def _lines(allowed_signers: Path) -> list[str]:
    return allowed_signers.read_text(encoding="utf-8-sig", errors="replace").splitlines()


def _without_validity(line: str) -> str:
    # `name valid-before="20260101",namespaces="a" ssh-ed25519 AAAA`: the options are one word, or absent.
    principal, _, rest = line.strip().partition(" ")
    options, _, key = rest.partition(" ")
    if not _VALIDITY.search(options):
        return line
    others = ",".join(part for part in _VALIDITY.sub("", options).split(",") if part)
    return " ".join(part for part in (principal, others, key) if part)


@contextmanager
def in_file(content: bytes) -> Iterator[Path]:
    """Give a file that ssh-keygen can read."""
    with tempfile.NamedTemporaryFile(prefix="edge-signature-") as file:
        file.write(content)
        file.flush()
        yield Path(file.name)


def _last_line(text: str) -> str:
    return text.splitlines()[-1].strip() if text else "it said nothing"
