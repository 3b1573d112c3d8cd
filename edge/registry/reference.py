"""The name of an artifact: `host[:port]/repository[:tag]`, as docker and podman write it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edge.errors import DeployError

__all__ = ["TRUST_TAG", "Reference", "parse_reference", "ring_tag", "withdrawal_tag"]

# Source: OCI Distribution Specification 1.1, "Pulling manifests" (name and reference).
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_MOST = 255

TRUST_TAG = "trust"
"""Where a repository says whose signatures count."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where an artifact is, by HTTPS; `host` has its port where that is not 443, `tag` None where none is stated."""

    host: str
    repository: str
    tag: str | None = None

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}" + ("" if self.tag is None else f":{self.tag}")


def parse_reference(text: str, *, where: str) -> Reference:
    """DeployError `request.registry` with `where`, what was expected and what came."""
    if "://" in text:
        raise _wrong(where, text, "no scheme: a registry is always reached by HTTPS")
    host, slash, rest = text.partition("/")
    repository, colon, tag = rest.partition(":")
    if not slash or not _HOST.fullmatch(host) or ("." not in host and ":" not in host and host != "localhost"):
        raise _wrong(where, text, "a host with a domain or a port first")
    if not _REPOSITORY.fullmatch(repository) or len(rest) > _MOST:
        raise _wrong(where, text, "a repository of a-z, 0-9 and . _ - between slashes")
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(where, text, "a tag of letters, digits and . _ -, at most 128 of them")
    return Reference(host, repository, tag if colon else None)


def ring_tag(channel: str, ring: str) -> str:
    return f"{channel}-{ring}"


def withdrawal_tag(release: str) -> str:
    """Return the tag that says, where it names anything, that no further device is to take a release."""
    return f"withdrawn.{release}"


def _wrong(where: str, text: str, expected: str) -> DeployError:
    shown = re.sub(r".*@(?!sha256:)", "...@", text)[:100]  # what stands before it may be a login
    return DeployError(
        "request.registry",
        f"{where}: {shown!r} names no artifact: expected {expected}",
        hint="write HOST[:PORT]/REPOSITORY[:TAG], such as registry.example/farms/gates:stable-canary",
    )
