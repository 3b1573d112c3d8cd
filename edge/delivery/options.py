"""What a person asks of a push."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass, field

__all__ = ["DeliveryOptions"]


def _me() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """How to push.

    Attributes:
        is_plan: say what would be done, and do nothing.
        detach: leave once everything is on the device; it builds, switches and judges alone.
        confirm: the release stays only if this workstation can reach the device after the switch and says so.
        retry_bad: also a release that has failed on the device before, or a device that has stopped trying.
        lock_wait_s: how long to wait for another push.
        reconnect_s: how long, from its last progress on, to try to reach a device that was lost before the switch.
        deadline_s: how long all of it may take, whatever the device says meanwhile; None: what a push usually takes
            at most, see `edge.delivery.deliver`.
        who: for the device's audit log.
    """

    is_plan: bool = False
    detach: bool = False
    confirm: bool = False
    retry_bad: bool = False
    lock_wait_s: float = 0.0
    reconnect_s: float = 60.0
    deadline_s: float | None = None
    who: str = field(default_factory=_me)
