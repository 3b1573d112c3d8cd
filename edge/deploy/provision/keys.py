"""Public keys of people, as they are let in and as they are trusted, and documents in which a root key says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from edge.bundle.sign import CERTIFICATE, certificate_error, in_file, run_ssh_keygen, sign
from edge.bundle.statement import TRUST, SignedTrust, TrustDocument, decode_chain, encode_document
from edge.errors import DeployError
from edge.reading import read_file

__all__ = [
    "PublicKey",
    "Revocations",
    "TrustChange",
    "find_key",
    "next_chain",
    "public_of",
    "read_chain",
    "read_public_key",
    "read_revocations",
]

_KINDS = {
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
}
_MOST_REVOKED_BYTES = 1 << 20
_HINT = "convert one of PuTTY by ssh-keygen -i -f FILE, or make a pair: ssh-keygen -t ed25519"
_AGENT = "/opt/edge/bin/edge-runtime agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """One key: its kind, its base64, and whose it is (a word that `allowed_signers` can hold)."""

    kind: str
    base64: str
    owner: str

    def authorized_line(self) -> str:
        """Return the line that lets it in to push and to nothing else."""
        return f'restrict,command="{_AGENT}" {self.kind} {self.base64} {self.owner}'

    def signer_line(self, *namespaces: str) -> str:
        return f'{self.owner} namespaces="{",".join(namespaces)}" {self.kind} {self.base64}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocations:
    """A revocation list (a KRL of ssh-keygen), and what it revokes, in the words of `ssh-keygen -Q -l`."""

    content: bytes
    entries: frozenset[str]


def read_public_key(path: Path) -> PublicKey:
    """DeployError `request.key` if it cannot be read, is private, a certificate or no key."""
    try:
        text = read_file(path, follows_links=True).decode("utf-8-sig", "replace").strip()
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}", "give the path of a .pub file") from None
    if "PRIVATE KEY" in text:
        raise _wrong(path, "is a private key, which never leaves its machine", f"give {path}.pub")
    words = text.split(None, 2)
    if words and words[0].endswith(CERTIFICATE):
        raise certificate_error("request.key", path)
    is_key = len(words) >= 2 and words[0] in _KINDS and re.fullmatch(r"[A-Za-z0-9+/]{60,}={0,2}", words[1])
    if not is_key or "\n" in text:
        raise _wrong(path, *_fault(text))
    owner = re.sub(r"[^A-Za-z0-9@._-]+", "-", words[2] if len(words) > 2 else path.stem).strip("-")
    return PublicKey(kind=words[0], base64=words[1], owner=owner or "somebody")


def _fault(text: str) -> tuple[str, str]:
    """Return what a text has that is not one public key, and what to do."""
    lines = text.splitlines()
    holding = [line for line in lines if _KINDS & set(line.split())]
    if not text:
        return "is empty", "give the .pub file of a pair, which ssh-keygen -t ed25519 makes"
    if len(holding) > 1:
        return f"holds {len(holding)} keys, expected one", "give one file for each key, and the option for each file"
    if len(lines) == len(holding) and (before := text.partition(next(one for one in text.split() if one in _KINDS))[0]):
        return (
            f"has {before.strip()[:100]!r} before the key, expected the key alone",
            "give its .pub file; options of a signer, such as valid-before, go to the device's allowed_signers",
        )
    if text.startswith("ssh-dss "):
        return f"is a key of DSA, expected one of {', '.join(sorted(_KINDS))}", "make a pair: ssh-keygen -t ed25519"
    return "is not one public key of OpenSSH", _HINT


def read_revocations(path: Path, trusted: Iterable[PublicKey]) -> Revocations:
    """Return a revocation list that revokes none of the `trusted` keys; DeployError `request.revoked`."""
    try:
        content = read_file(path, most_bytes=_MOST_REVOKED_BYTES, follows_links=True)
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    listed = run_ssh_keygen("-Q", "-l", "-f", str(path))
    if not content.strip() or not listed.is_ok:
        raise _unusable(path, "is no revocation list")
    for key in trusted:
        with in_file(f"{key.kind} {key.base64}\n".encode()) as public:
            if not run_ssh_keygen("-Q", "-f", str(path), str(public)).is_ok:
                raise _unusable(path, f"revokes the key of {key.owner}, whose releases are to count")
    lines = (line.partition("#")[0].strip() for line in listed.output.decode("utf-8", "replace").splitlines())
    return Revocations(content=content, entries=frozenset(filter(None, lines)))


def _unusable(path: Path, problem: str) -> DeployError:
    return DeployError("request.revoked", f"{path} {problem}", hint="make it with ssh-keygen -k -f revoked.krl KEY.pub")


def _wrong(path: Path, problem: str, hint: str) -> DeployError:
    return DeployError("request.key", f"{path}: {problem}", hint=hint)


_NAMES = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


def find_key(given: Path | None) -> Path:
    """Return `given`, or the first of the usual keys in ~/.ssh; raise DeployError `bundle.key` if there is none."""
    if given is not None:
        if not given.is_file():
            why = "is a folder" if given.is_dir() else "no such file"
            raise DeployError("bundle.key", f"{given}: {why}", hint="name an SSH key, private or public")
        return given
    folder = Path.home() / ".ssh"
    for name in _NAMES:
        for path in (folder / name, folder / f"{name}.pub"):  # the public half alone: the agent has the other
            if path.is_file():
                return path
    raise DeployError(
        "bundle.key",
        f"no SSH key in {folder} ({', '.join(_NAMES)}), and a bundle is always signed",
        hint="name one with --key, or make one: ssh-keygen -t ed25519",
    )


_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustChange:
    """Changes of the next trust document: keys that come, by namespace, keys that go, revoked keys."""

    added: Sequence[tuple[PublicKey, tuple[str, ...]]] = ()
    removed: Sequence[PublicKey] = ()
    revoked: Sequence[PublicKey] = ()

    def lines(self, before: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the lines of those who count after `before`, and of those who go."""
        gone = {key.base64 for key in self.removed}
        fresh = {key.base64: key.signer_line(*namespaces) for key, namespaces in self.added}
        kept = [line for line in before if not gone & set(line.split()) and not fresh.keys() & set(line.split())]
        return (*kept, *fresh.values()), tuple(line for line in before if gone & set(line.split()))


def read_chain(path: Path) -> tuple[SignedTrust, ...]:
    """Return the chain in a file, unverified, at least one document of which can be read; DeployError `bundle.file`."""
    try:
        chain = decode_chain(read_file(path, follows_links=True))
        chain[-1].document  # noqa: B018 - raises if it cannot be read
        return chain
    except OSError as error:
        why = error.strerror or str(error)
    except DeployError as error:
        why = error.problem
    raise DeployError(
        "bundle.file", f"{path}: is not who counts: {why}", hint="give a file that edge-deploy trust sign has written"
    )


def public_of(key: Path) -> str:
    """Return kind and base64 of a key's public half, which lies beside it or is it."""
    path = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    found = read_public_key(path)
    return f"{found.kind} {found.base64}"


def next_chain(
    chain: Sequence[SignedTrust], change: TrustChange, *, root: Path, now: datetime, new_root: Path | None = None
) -> tuple[SignedTrust, ...]:
    """Return a chain with one document more (after none: the first), signed by the present root.

    `new_root` takes over where given.

    DeployError `request.key` if `root` is not the root of the last document, what is removed does not count there, or
    what is added goes by the same change or was revoked; `bundle.key`.
    """
    none: tuple[str, ...] = ()
    version, signers, former, revoked = 0, none, none, none
    if chain:
        last = chain[-1].document
        version, signers, former, revoked = last.version, last.signers, last.former, last.revoked
        _require_successor(last, change, root)
    revoked = tuple(dict.fromkeys((*revoked, *(key.base64 for key in change.revoked))))
    _require_no_contradiction(change, revoked)
    counting, gone = change.lines(signers)
    follower = root if new_root is None else new_root
    document = TrustDocument(
        version=version + 1,
        created_at=now.strftime(_TIME),
        root=public_of(follower),
        signers=counting,
        former=tuple(dict.fromkeys((*former, *gone))),
        revoked=revoked,
    )
    content = encode_document(document)
    signed = SignedTrust(content, tuple(sign(content, one, TRUST) for one in dict.fromkeys((root, follower))))
    return (*(one for one in chain if len(one.signatures) > 1), signed)


def _require_no_contradiction(change: TrustChange, revoked: Sequence[str]) -> None:
    gone = {*revoked, *(key.base64 for key in change.removed)}
    if refused := [key.owner for key, _ in change.added if key.base64 in gone]:
        raise DeployError(
            "request.key",
            f"{', '.join(refused)}: is to count, and is removed or revoked here or by a version before",
            hint="say one of both; a key that was revoked never counts again: add another one",
        )


def _require_successor(last: TrustDocument, change: TrustChange, root: Path) -> None:
    if public_of(root) != last.root:
        raise DeployError(
            "request.key", f"{root} is not the root of version {last.version}", hint="give the root key: --root KEY"
        )
    counted = {word for line in last.signers for word in line.split()}
    if strangers := [key.owner for key in change.removed if key.base64 not in counted]:
        raise DeployError(
            "request.key",
            f"{', '.join(strangers)}: does not count in version {last.version}, so it cannot be removed",
            hint="give a key that counts there; --revoke also takes others",
        )
