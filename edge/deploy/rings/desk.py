"""A registry's facts about rings: statements, withdrawals, trusted keys; each at a tag of its own.

A registry has no compare-and-swap. So no fact is written over: each statement lies at the tag of its serial as well,
and who has moved the tag of a ring looks afterwards whether a higher one is there (docs/adr/0019).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.bundle.manifest import MAX_MANIFEST_BYTES, Manifest, decode_manifest
from edge.bundle.sign import MAX_SIGNATURE_BYTES, namespace_of, read_signature
from edge.bundle.statement import (
    MAX_CHAIN_BYTES,
    RingStatement,
    SignedTrust,
    decode_chain,
    decode_statement,
    latest_of,
    names_signer,
)
from edge.deploy.publish import RegistryWriter, kept_login
from edge.errors import DeployError
from edge.reading import json_object
from edge.registry.artifact import (
    EMPTY_CONTENT,
    EMPTY_LAYER,
    NOTHING,
    TRUST_TYPE,
    ArtifactLayer,
    decode_artifact,
    encode_note,
    is_nothing,
    layer_of_note,
    statement_in,
)
from edge.registry.login import Login
from edge.registry.reference import TRUST_TAG, Reference, withdrawal_tag
from edge.untrusted import cleaned

__all__ = ["PublishedRelease", "RingDesk", "Stated", "Withdrawal", "open_desk"]

_FACT = "application/vnd.edge-deploy.fact.v1"
_MOST_BYTES = 4 * 1024**2
_SERIAL = re.compile(r"([a-z0-9-]{1,32}-[a-z0-9-]{1,32})\.([0-9]{16})")


@dataclass(frozen=True, slots=True)
class PublishedRelease:
    """A release that lies in a registry; `oci` is its artifact. Unverified, which is the devices' to do."""

    manifest: Manifest
    oci: bytes


@dataclass(frozen=True, slots=True)
class Stated:
    """A statement as it lies in the registry, in the artifact `oci`; unverified."""

    statement: RingStatement
    oci: bytes


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Why no further device is to take a release, by whom, when."""

    release: str
    why: str
    by: str
    at: str


class RingDesk:
    """Reads and writes facts in a repository, `repository` to devices; all methods raise DeployError `registry.*`."""

    def __init__(self, registry: RegistryWriter, repository: str) -> None:
        self._registry, self.repository = registry, repository

    def release(self, tag: str) -> PublishedRelease:
        content, _ = self._registry.manifest(tag)
        artifact = decode_artifact(content, where=self._registry.name_of(tag))
        return PublishedRelease(
            decode_manifest(self._registry.blob(artifact.manifest, most_bytes=MAX_MANIFEST_BYTES)), content
        )

    def named_by(self, tag: str) -> Stated | None:
        """Return the statement that a ring's tag, or that of a serial, has beside it; None: none."""
        content = self._found(tag)
        lying = None if content is None else statement_in(content)
        if content is None or lying is None:
            return None
        try:
            return Stated(decode_statement(base64.b64decode(lying[0], validate=True)), content)
        except (ValueError, DeployError):
            return None

    def latest(self, tag: str) -> Stated | None:
        """Return the statement with the highest serial that was ever made for a ring; None: there was none."""
        for serial in reversed(self.serials(tag)):
            if (found := self.named_by(_at(tag, serial))) is not None:
                return found
        return self.named_by(tag)

    def serials(self, tag: str) -> list[int]:
        """Return the serials of all statements that were made for a ring, rising."""
        matches = (_SERIAL.fullmatch(one) for one in self._registry.tags(prefix=f"{tag}."))
        return sorted(int(match[2]) for match in matches if match is not None and match[1] == tag)

    def rings(self, channel: str) -> list[str]:
        """Return the tags of the rings of a channel that something was stated for, by name."""
        matches = (_SERIAL.fullmatch(one) for one in self._registry.tags(prefix=f"{channel}-"))
        return sorted({match[1] for match in matches if match is not None})

    def state(self, stated: Stated) -> None:
        """Put a statement where its serial finds it, then have the ring's tag name it."""
        self._registry.tag(stated.oci, _at(stated.statement.tag, stated.statement.serial))
        self._registry.tag(stated.oci, stated.statement.tag)

    def nothing(self) -> bytes:
        """Return an artifact that says that there is nothing to take; what it refers to is there."""
        self._put(EMPTY_LAYER, EMPTY_CONTENT)
        return json.dumps(encode_note(NOTHING)).encode()

    def withdrawal(self, release: str) -> Withdrawal | None:
        """Return why a release is withdrawn; None: it is not. Whatever else lies there withdraws it, too."""
        tag = withdrawal_tag(release)
        content = self._found(tag)
        if content is None or is_nothing(content):
            return None
        try:
            told = self._fact(tag, content)
            texts = (cleaned(str(told[name]))[:300] for name in ("why", "by", "at"))
            return Withdrawal(release, *texts)
        except (DeployError, KeyError):
            return Withdrawal(release, "what is said of it cannot be read", "?", "?")

    def withdraw(self, one: Withdrawal) -> None:
        self._tell(withdrawal_tag(one.release), {"why": one.why, "by": one.by, "at": one.at})

    def lift(self, release: str) -> None:
        self._registry.tag(self.nothing(), withdrawal_tag(release))

    def members(self, tag: str) -> frozenset[str] | None:
        """Return who was named as the devices of a ring, as `site/device`; None: none were."""
        where = f"members.{tag}"
        content = self._found(where)
        if content is None:
            return None
        named = self._fact(where, content).get("devices")
        return frozenset(cleaned(str(one)) for one in named) if isinstance(named, list) else None

    def name_members(self, tag: str, devices: frozenset[str]) -> None:
        self._tell(f"members.{tag}", {"devices": sorted(devices)})

    def tell_trust(self, content: bytes) -> None:
        """Put a chain of trust documents where devices look; DeployError `verify.trust.version` for a step back."""
        chain = decode_chain(content)
        last, ours = self._known_trust(chain[0].document.root), chain[-1]
        if last is not None and last.document.version >= ours.document.version and last.content != ours.content:
            raise DeployError(
                "verify.trust.version",
                f"version {last.document.version} of who counts is at {self.repository}, and this is another one of "
                f"version {ours.document.version}: devices that have seen that one would take nothing any more",
                hint="publish the latest file, or make the next one from it: edge-deploy trust sign",
            )
        self._note(TRUST_TYPE, content, "trust.json", TRUST_TAG)

    def require_counting(self, fingerprint: str, namespace: str) -> None:
        """Raise DeployError `verify.signature.signer` if a trust document here does not let a key sign for that."""
        last = self._known_trust()
        if last is None or last.document.lets(fingerprint, namespace):
            return
        version, counting = last.document.version, last.document.counting
        owners = ", ".join(line.split()[0] for line in counting if names_signer(line, namespace)) or "no key"
        raise DeployError(
            "verify.signature.signer",
            f"{self.repository}: version {version} of who counts lets {owners} sign for {namespace}, and not "
            f"{fingerprint}: devices that follow it would refuse that",
            hint="sign with a key that counts; or let this one count: edge-deploy trust sign, trust publish",
        )

    def require_signed(self, release: PublishedRelease) -> None:
        """Raise as `require_counting` for the key that has signed a release."""
        artifact = decode_artifact(release.oci, where=self._registry.name_of(release.manifest.release))
        signature = self._registry.blob(artifact.signature, most_bytes=MAX_SIGNATURE_BYTES)
        self.require_counting(read_signature(signature).fingerprint, namespace_of(signature))

    def _known_trust(self, root: str | None = None) -> SignedTrust | None:
        """Return the last document at the registry, signed by a root (None: the one it names) or those that followed.

        None: there is none.
        """
        content = self._found(TRUST_TAG)
        if content is None:
            return None
        try:
            layer = layer_of_note(content, TRUST_TYPE, where=self._registry.name_of(TRUST_TAG))
            chain = decode_chain(self._registry.blob(layer, most_bytes=MAX_CHAIN_BYTES))
            return latest_of(chain, root=root or chain[0].document.root)[-1]
        except DeployError as error:  # what somebody else has put there is written over
            if error.code.startswith(("verify.", "registry.artifact", "registry.missing")):
                return None
            raise

    def _found(self, tag: str) -> bytes | None:
        try:
            return self._registry.manifest(tag)[0]
        except DeployError as error:
            if error.code == "registry.missing":
                return None
            raise

    def _fact(self, tag: str, content: bytes) -> dict[str, Any]:
        where = self._registry.name_of(tag)
        try:
            return json_object(self._registry.blob(layer_of_note(content, _FACT, where=where), most_bytes=_MOST_BYTES))
        except ValueError as error:
            raise DeployError("registry.artifact", f"{where}: {error}", hint="look at what was put there") from None

    def _tell(self, tag: str, values: Mapping[str, object]) -> None:
        self._note(_FACT, json.dumps(values).encode(), "fact.json", tag)

    def _note(self, kind: str, content: bytes, title: str, tag: str) -> None:
        layer = ArtifactLayer(f"{kind}+json", hashlib.sha256(content).hexdigest(), len(content), title)
        self._put(EMPTY_LAYER, EMPTY_CONTENT)
        self._put(layer, content)
        self._registry.put_manifest(encode_note(kind, layer), tag)

    def _put(self, layer: ArtifactLayer, content: bytes) -> None:
        if not self._registry.has(layer):
            self._registry.put(layer, content)


def _at(tag: str, serial: int) -> str:
    return f"{tag}.{serial:016d}"


@contextmanager
def open_desk(
    reference: Reference, *, login: Login | None, ca: Path | None, known_as: Reference | None = None
) -> Iterator[RingDesk]:
    """Give what reads and writes facts of rings in the repository of `reference`, whose tag does not count.

    `login` None: what docker or podman keep. `known_as`: the same repository in the devices' settings, if other.
    DeployError `registry.*`, if the registry does not let us in.
    """
    login, named = login or kept_login(reference), known_as or reference
    with closing(RegistryWriter(reference, login=login, ca=ca)) as registry:
        registry.check()
        yield RingDesk(registry, f"{named.host}/{named.repository}")
