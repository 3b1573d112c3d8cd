"""Which MQTT version to speak: v5 first, v3.1.1 where the broker has no other."""

from __future__ import annotations

from typing import Literal

from edge.publish.mqtt.trouble import Trouble

__all__ = ["V5", "V311", "ProtocolChoice"]

V5 = 5
V311 = 4
# So often a broker may close or be silent at CONNECT before we take it for one that does not know MQTT v5.
_CLOSED_BEFORE_FALLBACK = 2


class ProtocolChoice:
    """The version of the next CONNECT, as packet number (5, or 4 for v3.1.1).

    A broker that says it does not know v5 is believed for good. One that closes or says nothing twice is only guessed
    at, in turns with v5, and never once it has accepted v5: then it is merely restarting.
    """

    def __init__(self, protocol: Literal["auto", "v5", "v3.1.1"]) -> None:
        self.version = V311 if protocol == "v3.1.1" else V5
        self._is_open = protocol == "auto"
        self._closed = 0

    @property
    def name(self) -> str:
        """For people."""
        return "MQTT v5" if self.version == V5 else "MQTT v3.1.1"

    def accepted(self) -> None:
        """The broker has accepted the version."""
        self._is_open = self._is_open and self.version != V5
        self._closed = 0

    def failed(self, kind: Trouble, *, patience: int = _CLOSED_BEFORE_FALLBACK) -> None:
        """Think about another version after a failed CONNECT."""
        if not self._is_open:
            return
        if kind is Trouble.VERSION:
            self.version = V311
            self._is_open = False
        elif kind in (Trouble.CLOSED, Trouble.UNANSWERED):
            self._closed += 1
            if self._closed >= patience:
                self._closed = 0
                self.version = V311 if self.version == V5 else V5
