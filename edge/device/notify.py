"""What a service tells systemd of itself (sd_notify): one datagram each; where nobody listens, nothing happens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

__all__ = ["Notifier"]

_SEND_TIMEOUT_S = 1.0  # systemd's socket has room for many; a full one must not hold up the service


class Notifier:
    """Speaks to `$NOTIFY_SOCKET`, a path or an abstract name that starts with `@`; never raises.

    Source: sd_notify(3) for the words, sd_watchdog_enabled(3) for `$WATCHDOG_USEC` and `$WATCHDOG_PID`.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        name = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._watchdog_usec = _watchdog_usec(environ)

    @property
    def watchdog_s(self) -> float | None:
        """Within which time systemd wants to hear `WATCHDOG=1` again, in seconds; None: it does not watch us."""
        return self._watchdog_usec / 1e6 if self._watchdog_usec and self._address else None

    def tell(self, *assignments: str) -> bool:
        """Send `NAME=value` lines; return whether somebody has taken them."""
        if not self._address:
            return False
        content = "\n".join(one.replace("\n", " ") for one in assignments).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_SEND_TIMEOUT_S)
                sender.sendto(content, self._address)
        except (OSError, ValueError):  # the socket is gone, full, or no name for one: the service goes on
            return False
        return True


def _watchdog_usec(environ: Mapping[str, str]) -> int:
    """Return 0 where the watchdog is off, or meant for another process (we were started by the one it is for)."""
    is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    given = environ.get("WATCHDOG_USEC", "")
    return int(given) if is_for_us and given.isascii() and given.isdigit() else 0
