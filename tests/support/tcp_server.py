"""What TCP servers of tests share: they listen on loopback, and serve each connection in a thread of its own."""

import contextlib
import socket
import threading
from typing import TypeVar

_Server = TypeVar("_Server", bound="TcpServer")


class TcpServer:
    """Listens on a free port from the start, and serves from `with` on; a subclass says how."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen, daemon=True)]

    def __enter__(self: _Server) -> _Server:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Refuse connections from now on; those that are open go on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def serve(self, link: socket.socket) -> None:
        """Serve one connection until it ends; `OSError` ends it, too."""
        raise NotImplementedError

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(link,), daemon=True))
                self._threads[-1].start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            self.serve(link)
