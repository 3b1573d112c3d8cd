"""What the last pull has come to, so that the next one need not ask again, and overrules nobody who went back by hand.

It is written before a release goes on trial, and once its verdict is known: a pull that is killed leaves the former.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge.device.durable import Durable
from edge.reading import json_object, read_file

__all__ = ["ON_TRIAL", "PullRecord", "decode_record", "read_record", "write_record"]

ON_TRIAL = "on-trial"
"""The result of a pull that has not seen the verdict; the device has it."""
_FORMAT = 1
_JUDGED = ("committed", "unchanged", "rolled-back")


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

    def is_judged(self, reference: str, *, digest: str | None = None, release: str | None = None) -> bool:
        """Return whether what lies there had its verdict here; it is known by its digest, or by the release it holds.

        A digest is what a registry says it is, and the same release may lie in another artifact: so both are asked.
        """
        is_same = self.digest == digest if release is None else self.release == release
        return self.reference == reference and is_same and self.result in _JUDGED

    def is_on_trial(self, reference: str, *, release: str) -> bool:
        """Return whether the release was put on trial here, and nobody has written down how that ended."""
        return self.reference == reference and self.release == release and self.result == ON_TRIAL


def read_record(path: Path) -> PullRecord | None:
    """Return the record; None where there is none that can be read."""
    try:
        return decode_record(read_file(path))
    except OSError:
        return None


def decode_record(content: bytes) -> PullRecord | None:
    """Return the record in a file's content; None if it is none."""
    try:
        values = json_object(content)
        if values.pop("format", None) != _FORMAT:
            return None
        return _checked(values)
    except (ValueError, TypeError):
        return None


def write_record(path: Path, record: PullRecord, durable: Durable | None = None) -> None:
    """Write the record, whole or not at all; it is on the disk when this returns. DeployError `device.disk.*`."""
    content = json.dumps({"format": _FORMAT, **asdict(record)}, indent=1).encode() + b"\n"
    (durable or Durable()).put(path, content)


def _checked(values: dict[str, Any]) -> PullRecord:
    record = PullRecord(**values)
    texts = (record.reference, record.result, record.at)
    if not all(isinstance(one, str) for one in texts) or not isinstance(record.not_before_s, (int, float)):
        raise ValueError("no record")
    return record
