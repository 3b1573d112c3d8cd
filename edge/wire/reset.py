"""`reset`: a signed order to count anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from edge.wire.codec import Most

__all__ = ["ResetAnswer", "ResetRequest"]

_BASE64 = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """A reset and the signature over it, both in base64; see `edge.bundle.reset`."""

    reset: Annotated[str, Most(_BASE64)]
    signature: Annotated[str, Most(_BASE64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetAnswer:
    """What the device counts from now on, by channel, and by which name it knows the signer."""

    signer: str
    sequences: Mapping[str, Annotated[int, Most(2**53)]]
