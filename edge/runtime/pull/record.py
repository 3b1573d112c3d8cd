"""How the last pull ended, so that the next one need not ask again, and does not overrule a rollback by hand.

It is written once all is over. A pull that is killed in a trial leaves nothing of it: the device says what it has left.
A pull that came to nothing, as the registry was away or a trial in its way, keeps what was settled before.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edge.codec import Most, decode_known, encode
from edge.device.durable import Durable
from edge.reading import json_object, read_file

__all__ = ["KEPT", "PullRecord", "Settled", "decode_pull_record", "read_pull_record", "settled_by", "write_record"]

KEPT = "kept"
"""The result where what serves goes on, because nothing that is newer is to be had, and that is no fault."""
_FORMAT = 1
_LONG = 1 << 16
_JUDGED = ("committed", "unchanged", "rolled-back", KEPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Result of the last pull: a release that was brought here, or why none is.

    Attributes:
        result: as that of a push.
        code, problem: of what undid it.
    """

    digest: str | None
    release: str | None
    result: str
    code: str | None = None
    problem: Annotated[str, Most(_LONG)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecord:
    """How the last pull ended.

    Attributes:
        reference: what was asked for.
        digest: of the artifact that was found; None if none was.
        release: that it holds; None as above.
        result: as that of a push.
        code, problem: of the error that ended it.
        at: when, UTC as in RFC 3339.
        looked_at: when the registry last said what the ring has, as `at`; None: it never has.
        is_basic: the registry asks for user and password themselves, so that they are sent before it asks.
        not_before_s: seconds since 1970; the registry wants to be left alone until then.
        settled: what became of the last release that was brought from there; None where none was.
        trust_digest: of the last list of trusted signers that was taken; None: none was.
        statement, statement_signature: that lie beside what `digest` names, in base64; None: there are none.
    """

    reference: str
    digest: str | None = None
    release: str | None = None
    result: str
    code: str | None = None
    problem: Annotated[str, Most(_LONG)] | None = None
    at: str
    is_basic: bool = False
    not_before_s: float = 0.0
    settled: Settled | None = None
    trust_digest: str | None = None
    statement: Annotated[str, Most(_LONG)] | None = None
    statement_signature: Annotated[str, Most(_LONG)] | None = None
    looked_at: str | None = None

    def release_in(self, digest: str | None) -> str | None:
        """Return the release that an artifact holds; None: that is not known."""
        settled = self.settled
        if settled is not None and settled.digest == digest:
            return settled.release
        return self.release if self.digest == digest else None

    def is_judged(self, *, digest: str | None = None, release: str | None = None) -> bool:
        """Return whether what lies there had its verdict here; it is known by its digest, or by the release it holds.

        A digest is what a registry says it is, and the same release may lie in another artifact: so both are asked.
        """
        last = self.settled
        if last is None or last.result not in _JUDGED:
            return False
        # What is kept may be taken when it is signed again.
        is_same = release is not None and last.release == release and last.result != KEPT
        return is_same or (digest is not None and last.digest == digest)


def settled_by(record: PullRecord, *, before: PullRecord | None) -> Settled | None:
    """Return what is settled once a pull has ended as `record` says; that it came to nothing settles nothing anew."""
    if record.result in _JUDGED and record.result != KEPT:  # which may be lifted
        return Settled(
            digest=record.digest, release=record.release, result=record.result, code=record.code, problem=record.problem
        )
    return before.settled if before is not None and before.reference == record.reference else None


def read_pull_record(path: Path) -> PullRecord | None:
    """None where there is none that can be read."""
    try:
        return decode_pull_record(read_file(path))
    except OSError:
        return None


def decode_pull_record(content: bytes) -> PullRecord | None:
    """None where `content` is no record; what later software says besides is its own."""
    try:
        values = json_object(content)
        return decode_known(PullRecord, values, where="record") if values.get("format") == _FORMAT else None
    except ValueError:
        return None


def write_record(path: Path, record: PullRecord, durable: Durable | None = None) -> None:
    """Write the whole record or nothing; it is on the disk when this returns. DeployError `device.disk.*`."""
    content = json.dumps({"format": _FORMAT, **encode(record)}, indent=1).encode() + b"\n"
    # For users of other groups: the service and the agent tell it. Nothing in it is secret.
    (durable or Durable()).put(path, content, mode=0o644)
