"""What a subscriber is told beside the messages themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from edge.publish.ledger import AccountKey
from edge.publish.messages import DetectionsMessage, EventMessage, GapReason, NumberedKind

__all__ = ["Late", "Missing", "Numbered", "Ordered"]

Numbered: TypeAlias = DetectionsMessage | EventMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Numbers `first` to `last`, both included, that have not come; `last` None: as far as they do not come.

    `reason` is the device's own where it has declared them lost, and None where nobody has: a broker lost them. Unless
    `is_exact`, some may still come, as `Late`. What nobody had declared, and the device declares later, is told again.
    """

    device: str
    stream: str
    epoch: int
    of: NumberedKind
    first: int
    last: int | None
    reason: GapReason | None
    is_exact: bool

    @classmethod
    def of_account(
        cls, key: AccountKey, first: int, last: int | None, *, reason: GapReason | None = None, is_exact: bool = False
    ) -> Missing:
        """Return the numbers of one account."""
        return cls(
            device=key.device,
            stream=key.stream,
            epoch=key.epoch,
            of=key.of,
            first=first,
            last=last,
            reason=reason,
            is_exact=is_exact,
        )


@dataclass(frozen=True, slots=True)
class Late:
    """A message out of order: its number was given up already, belongs to an older epoch, or lies before your start."""

    message: Numbered


Ordered: TypeAlias = Numbered | Missing | Late
