"""What the last pull has come to, so that the next one need not ask again, and overrules nobody who went back by hand.

It is written before a release goes on trial, and once its verdict is known: a pull that is killed leaves the former.
A pull that came to nothing, as the registry was away or a trial in its way, keeps what was settled before.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge.device.durable import Durable
from edge.reading import json_object, read_file

__all__ = ["ON_TRIAL", "PullRecord", "Settled", "decode_pull_record", "read_pull_record", "settled_by", "write_record"]

ON_TRIAL = "on-trial"
"""The result of a pull that has not seen the verdict; the device has it."""
_FORMAT = 1
_JUDGED = ("committed", "unchanged", "rolled-back")
_SETTLED = (*_JUDGED, ON_TRIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of the last release that was brought here; `result` is a verdict, or `ON_TRIAL`.

    Attributes:
        digest: of the artifact it lay in.
        release: its name.
        result: as that of a push, or `ON_TRIAL`.
        code, problem: of what undid it.
    """

    digest: str | None
    release: str | None
    result: str
    code: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecord:
    """How the last pull ended.

    Attributes:
        reference: what was asked for.
        digest: of the artifact that was found; None if none was.
        release: that it holds; None as above.
        result: as that of a push, or `ON_TRIAL`.
        code, problem: of the error that ended it.
        at: when, UTC as in RFC 3339.
        is_basic: the registry asks for user and password themselves, so that they are sent before it asks.
        not_before_s: seconds since 1970; the registry wants to be left alone until then.
        settled: what became of the last release that was brought from there; None where none was.
    """

    reference: str
    digest: str | None = None
    release: str | None = None
    result: str
    code: str | None = None
    problem: str | None = None
    at: str
    is_basic: bool = False
    not_before_s: float = 0.0
    settled: Settled | None = None

    def is_judged(self, reference: str, *, digest: str | None = None, release: str | None = None) -> bool:
        """Return whether what lies there had its verdict here; it is known by its digest, or by the release it holds.

        A digest is what a registry says it is, and the same release may lie in another artifact: so both are asked.
        """
        last = self.settled
        if last is None or self.reference != reference or last.result not in _JUDGED:
            return False
        return last.digest == digest if release is None else last.release == release

    def is_settled(self, reference: str, *, release: str) -> bool:
        """Return whether the release was brought here, whatever became of it."""
        return self.reference == reference and self.settled is not None and self.settled.release == release

    def is_on_trial(self, reference: str, *, release: str) -> bool:
        """Return whether the release was put on trial here, and nobody has written down how that ended."""
        last = self.settled
        is_same = last is not None and last.release == release and last.result == ON_TRIAL
        return self.reference == reference and is_same


def settled_by(record: PullRecord, *, before: PullRecord | None) -> Settled | None:
    """Return what is settled once a pull has ended as `record` says; that it came to nothing settles nothing anew."""
    if record.result in _SETTLED:
        return Settled(
            digest=record.digest,
            release=record.release,
            result=record.result,
            code=record.code,
            problem=record.problem,
        )
    return before.settled if before is not None and before.reference == record.reference else None


def read_pull_record(path: Path) -> PullRecord | None:
    """Return the record; None where there is none that can be read."""
    try:
        return decode_pull_record(read_file(path))
    except OSError:
        return None


def decode_pull_record(content: bytes) -> PullRecord | None:
    """Return the record in a file's content; None if it is none."""
    try:
        values = json_object(content)
        if values.pop("format", None) != _FORMAT:
            return None
        return _checked(values)
    except (ValueError, TypeError, KeyError):
        return None


def write_record(path: Path, record: PullRecord, durable: Durable | None = None) -> None:
    """Write the record, whole or not at all; it is on the disk when this returns. DeployError `device.disk.*`."""
    content = json.dumps({"format": _FORMAT, **asdict(record)}, indent=1).encode() + b"\n"
    (durable or Durable()).put(path, content)


def _checked(values: dict[str, Any]) -> PullRecord:
    settled = values.pop("settled", None)
    if settled is None and values["result"] in _SETTLED:  # as written by software that kept the last result alone
        settled = {name: values.get(name) for name in ("digest", "release", "result", "code", "problem")}
    record = PullRecord(**values, settled=None if settled is None else Settled(**settled))
    texts = (record.reference, record.result, record.at)
    if not all(isinstance(one, str) for one in texts) or not isinstance(record.not_before_s, (int, float)):
        raise ValueError("no record")
    return record
