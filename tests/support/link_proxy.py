"""A TCP proxy whose link can be cut, or fall silent as when a cable is pulled: nothing arrives, nothing ends."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading


class LinkProxy:
    """Forwards to `port`; `cut` resets what is open, `pull` swallows everything until `plug`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._pulled: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.connections = 0

    def __enter__(self) -> LinkProxy:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            doomed, self._open = self._open, []
        for one in doomed:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)

    def pull(self) -> None:
        """Let the connections that are open now fall silent; later ones work."""
        with self._lock:
            self._pulled.update(self._open)

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._open += [client, server]
                self.connections += 1
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65_536):
                if source not in self._pulled:
                    sink.sendall(content)
        if source not in self._pulled:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        source.close()  # each socket is the source of exactly one thread
