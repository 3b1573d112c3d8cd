"""A listener in the place of systemd: the datagrams of a service, on a real socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path


class NotifySocket:
    """Collects the lines that are sent; `environ` is what systemd would give the service."""

    def __init__(
        self, path: Path | None = None, *, abstract: str | None = None, watchdog_s: float | None = None
    ) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{abstract}" if abstract else str(path))
        self.environ = {"NOTIFY_SOCKET": f"@{abstract}" if abstract else str(path)}
        if watchdog_s is not None:
            self.environ["WATCHDOG_USEC"] = str(round(watchdog_s * 1e6))
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def count(self, line: str) -> int:
        return self.lines.count(line)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._socket.close()

    def __enter__(self) -> NotifySocket:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _listen(self) -> None:
        while content := self._socket.recv(4096):
            self.lines += content.decode().split("\n")
