"""Which edge-deploy answers, and which may take a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edge.wire.codec import Most

__all__ = ["AgentReport", "TurnAnswer"]

_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """Who answers, see docs/adr/0046.

    Attributes:
        version: of the edge-deploy that answers.
        software: first digits of the key of the software that answers; None: it is what provision installed.
        installed: version of what provision installed; None: that is not known.
        owed: what the software of the release that serves has not done well, so that what is installed goes first.
    """

    version: Annotated[str, Most(_NAME)]
    software: Annotated[str, Most(_NAME)] | None
    installed: Annotated[str, Most(_NAME)] | None
    owed: Annotated[str, Most(_NAME)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAnswer:
    """The name of the installed software that may look at the registry now; None: what provision installed."""

    software: Annotated[str, Most(_NAME)] | None
