"""A real mosquitto, on a free loopback port unless told otherwise, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.wait import wait_until


class Mosquitto:
    """Started by `start` or `with`; `options` are further lines of its configuration."""

    def __init__(
        self,
        directory: Path,
        *,
        options: tuple[str, ...] = (),
        tls: Certificates | None = None,
        users: dict[str, str] | None = None,
        is_persistent: bool = False,
        host: str = "127.0.0.1",
        port: int | None = None,
        is_verbose: bool = True,
    ) -> None:
        self.directory = directory
        self.host, self.port = host, port or free_port()
        self._process: subprocess.Popen | None = None
        self._verbosity = ["-v"] if is_verbose else []
        directory.mkdir(parents=True, exist_ok=True)
        lines = [f"listener {self.port} {self.host}", "user root", "max_queued_messages 100000", *options]
        if tls is not None:
            lines += [f"cafile {tls.ca}", f"certfile {tls.certificate}", f"keyfile {tls.key}"]
        if users is None:
            lines.append("allow_anonymous true")
        else:
            lines += ["allow_anonymous false", f"password_file {self._password_file(users)}"]
        if is_persistent:
            lines += ["persistence true", f"persistence_location {directory}/"]
        self._config = directory / "mosquitto.conf"
        self._config.write_text("\n".join(lines) + "\n")

    def _password_file(self, users: dict[str, str]) -> Path:
        path = self.directory / "passwords"
        path.touch(mode=0o600)
        for name, password in users.items():
            subprocess.run(["mosquitto_passwd", "-b", str(path), name, password], check=True, capture_output=True)
        return path

    def start(self) -> Mosquitto:
        log = (self.directory / "mosquitto.log").open("ab")
        self._process = subprocess.Popen(
            ["mosquitto", "-c", str(self._config), *self._verbosity], stdout=log, stderr=log
        )
        log.close()
        wait_until(self._is_listening, what=f"mosquitto listens; see {self.directory}/mosquitto.log")
        return self

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def stop(self) -> None:
        """SIGTERM: it keeps what is persistent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, *, pause_s: float = 0.0) -> None:
        self.stop()
        time.sleep(pause_s)
        self.start()

    def save(self) -> None:
        """Write down now what is persistent, the sessions of subscribers too: a kill does not take them then."""
        os.kill(self._process.pid, signal.SIGUSR1)

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def log(self) -> str:
        return (self.directory / "mosquitto.log").read_text(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(60)
        self._process = None

    def __enter__(self) -> Mosquitto:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
