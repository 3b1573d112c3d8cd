"""The name of an artifact, as docker and podman write it, and pull.toml: from where a device takes its releases."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from edge.errors import DeployError
from edge.settings import decode_settings_text, read_settings_file

__all__ = [
    "TRUST_TAG",
    "PullSettings",
    "Reference",
    "decode_pull_settings",
    "encode_pull_settings",
    "parse_reference",
    "read_pull_settings",
    "ring_tag",
    "withdrawal_tag",
]

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


_WORD = re.compile(r"[a-z0-9-]{1,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Where a device's releases are: `repository` is `host[:port]/repository`, without a tag, `channel` as in
    `device.toml`.

    `authorities`: `registry-ca` has the certificates of that file count alone, `system` beside the system's.
    DeployError `request.registry`, for a repository that is none; ValueError for a channel or a ring that is none.
    """

    repository: str
    channel: str = "stable"
    ring: str = "all"
    authorities: str = "system"

    def __post_init__(self) -> None:
        if parse_reference(self.repository, where="repository").tag is not None:
            raise ValueError(f"repository: expected no tag, got {self.repository!r}; channel and ring make the tag")
        for name in ("channel", "ring"):
            if not _WORD.fullmatch(getattr(self, name)):
                got = getattr(self, name)
                raise ValueError(f"{name}: expected a-z, 0-9 and '-', at most 32 characters, got {got[:80]!r}")
        if self.authorities not in ("system", "registry-ca"):
            raise ValueError(f"authorities: expected system or registry-ca, got {self.authorities[:80]!r}")

    @property
    def reference(self) -> Reference:
        found = parse_reference(self.repository, where="repository")
        return Reference(found.host, found.repository, ring_tag(self.channel, self.ring))


def encode_pull_settings(settings: PullSettings) -> str:
    told = {one.name: getattr(settings, one.name) for one in fields(settings)}
    if settings.authorities == "system":
        del told["authorities"]  # what provision has written until now says the same
    return "".join(f'{name} = "{value}"\n' for name, value in told.items())


_HINT = "correct the file, or run: edge-deploy provision TARGET --pull-from REGISTRY/REPOSITORY, which writes it"


def decode_pull_settings(text: str, *, origin: str) -> PullSettings:
    """DeployError `device.settings` with `origin` and line or key, or `request.registry`."""
    return decode_settings_text(PullSettings, text, origin=origin, hint=_HINT)


def read_pull_settings(path: Path) -> PullSettings:
    """DeployError as `decode_pull_settings`."""
    try:
        return read_settings_file(PullSettings, path, hint=_HINT)
    except OSError as error:
        raise DeployError("device.settings", f"{path}: {error.strerror or error}", hint=_HINT) from None
