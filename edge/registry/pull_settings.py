"""`pull.toml`: from which registry a device takes its releases, and to which ring it belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from edge.errors import DeployError
from edge.reading import read_file
from edge.registry.reference import Reference, parse_reference, ring_tag

__all__ = ["PullSettings", "decode_pull_settings", "encode_pull_settings", "read_pull_settings"]

_LINE = re.compile(r'([a-z]+)\s*=\s*"([^"\\]*)"\s*(?:#.*)?')
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


def decode_pull_settings(text: str, *, origin: str) -> PullSettings:
    """DeployError `device.settings` or `request.registry`, with `origin` and line."""
    known = [one.name for one in fields(PullSettings)]
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise _wrong(f"{origin}:{number}", f'expected key = "text", got {line.strip()[:80]!r}')
        if match[1] not in known or match[1] in values:
            what = "is stated twice" if match[1] in values else f"is not known; known: {', '.join(known)}"
            raise _wrong(f"{origin}:{number}", f"{match[1]} {what}")
        values[match[1]] = match[2]
    if "repository" not in values:
        raise _wrong(origin, "repository is missing")
    try:
        return PullSettings(**values)
    except ValueError as error:
        raise _wrong(origin, str(error)) from None


def read_pull_settings(path: Path) -> PullSettings:
    """DeployError as `decode_pull_settings`."""
    try:
        # Root's folder: what is linked there, root has linked.
        return decode_pull_settings(read_file(path, follows_links=True).decode("utf-8-sig"), origin=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(str(path), str(getattr(error, "strerror", None) or error)) from None


def _wrong(where: str, what: str) -> DeployError:
    hint = "correct the file, or run: edge-deploy provision TARGET --pull-from REGISTRY/REPOSITORY, which writes it"
    return DeployError("device.settings", f"{where}: {what}", hint=hint)
