"""A signed statement of which release a ring of a channel is to run (docs/adr/0019). Standard library only.

It is signed by a key that may promote, in a namespace of its own; its registry can neither make nor change one. Its
serial never sinks on a device, and it expires, so that a registry that says nothing new is noticed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime

from edge.bundle.checks import canonical, check_between, check_text, read_object, read_time
from edge.bundle.fit import ahead_of, most_sequence
from edge.errors import DeployError

__all__ = [
    "MAX_STATEMENT_BYTES",
    "RING",
    "RingStatement",
    "asks_for_statements",
    "decode_statement",
    "encode_statement",
]

RING = "edge-ring"
"""Namespace of the signatures over statements."""

MAX_STATEMENT_BYTES = 4 * 1024
_FORMAT = "edge.ring/1"
_NAME = r"[a-z0-9-]{1,32}"
_NAMESPACES = re.compile(r'namespaces="([^"]*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingStatement:
    """Statement of the release that a ring of a channel is to run; one that exists is well formed.

    `release`, `sequence` (in its channel) None: nothing, whatever the ring had. The same content may be signed again.
    `serial`: never sinks; at most the second in which it was made, and a day.
    `created_at`, `valid_until`: RFC 3339 in UTC, whole seconds.
    """

    channel: str
    ring: str
    release: str | None
    sequence: int | None
    serial: int
    created_at: str
    valid_until: str

    def __post_init__(self) -> None:
        check_text("channel", self.channel, _NAME)
        check_text("ring", self.ring, _NAME)
        if (self.release is None) != (self.sequence is None):
            raise _wrong("it names a release without a sequence, or the other way round")
        if self.release is not None:
            check_text("release", self.release, r"[0-9a-f]{12}")
            check_between("sequence", self.sequence, 0, 2**53, whole=True)
        check_between("serial", self.serial, 1, most_sequence(read_time("created_at", self.created_at)), whole=True)
        if read_time("valid_until", self.valid_until) <= read_time("created_at", self.created_at):
            raise _wrong("it ends before it begins")

    @property
    def tag(self) -> str:
        """The tag that devices of the ring look at; no channel and no ring has a dot."""
        return f"{self.channel}-{self.ring}"

    def unfit(self, *, seen_serial: int, at: datetime, is_clock_sure: bool) -> Iterator[DeployError]:
        """Yield why a device that has seen `seen_serial` does not follow it at the time `at`; its signature counts."""
        if self.serial < seen_serial:
            yield DeployError(
                "verify.ring.serial",
                f"{self.tag}: statement {self.serial} is older than {seen_serial}, which was seen here",
                hint="promote again: edge-deploy promote gives a higher serial; if it was not, look at the registry",
                evidence={"serial": self.serial, "seen": seen_serial},
            )
        yield from ahead_of(self.created_at, at=at, is_clock_sure=is_clock_sure)
        if at >= read_time("valid_until", self.valid_until):
            yield DeployError(
                "verify.ring.expired",
                f"{self.tag}: statement {self.serial} ended at {self.valid_until}; what serves goes on",
                hint="promote the same release again; if somebody has, the registry does not show it",
                evidence={"valid_until": self.valid_until, "serial": self.serial},
            )

    def misses(self, *, channel: str, release: str, sequence: int) -> DeployError | None:
        """Return why a release is not the one of this ring; None: it is."""
        if (channel, release, sequence) == (self.channel, self.release, self.sequence):
            return None
        named = "no release" if self.release is None else f"release {self.release}, sequence {self.sequence}"
        return DeployError(
            "verify.ring.release",
            f"{self.tag}: the statement names {named}, what lies there is {release}, sequence {sequence} of {channel}",
            hint="look who writes to the registry; edge-deploy promote puts both there in one go",
        )


def encode_statement(statement: RingStatement) -> bytes:
    """Return its one spelling, which is what gets signed."""
    return canonical({"format": _FORMAT, **asdict(statement)})


def decode_statement(content: bytes) -> RingStatement:
    """Return the statement in `content`; DeployError `verify.ring.field`, `verify.manifest.*`."""
    values = read_object(content, max_bytes=MAX_STATEMENT_BYTES)
    if values.pop("format", None) != _FORMAT:
        raise _wrong(f"the format is not {_FORMAT}")
    try:
        return RingStatement(**values)
    except TypeError as error:
        raise _wrong(str(error)[:200]) from None


def asks_for_statements(allowed_signers: str) -> bool:
    """Return whether a list of signers has a key that may state what rings run: then each release needs a statement."""
    lines = (line for line in allowed_signers.splitlines() if not line.lstrip().startswith("#"))
    named = (match[1].split(",") for line in lines if (match := _NAMESPACES.search(line)))
    return any(fnmatch.fnmatchcase(RING, pattern) for patterns in named for pattern in patterns)


def _wrong(why: str) -> DeployError:
    return DeployError("verify.ring.field", f"the statement of a ring: {why}", hint="make it with edge-deploy promote")
