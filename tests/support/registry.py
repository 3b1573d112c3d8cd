"""A real OCI registry (Debian's docker-registry) over TLS on a free loopback port, with one user."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from edge.registry.login import Login
from edge.registry.reference import Reference
from tests.support.certificates import make_certificates
from tests.support.ports import free_port
from tests.support.wait import wait_until

LOGIN = Login("edge", "secret-of-the-lab")
_HASH = "$2y$05$9GWRuRDFgGQQorkzWV1RKOu3CbLYKURixb2vXaImcON88BT2gYu0."  # of its password


class Reachable:
    """A registry on a port of this machine, with a log."""

    port: int
    _log_path: Path

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def reference(self, tag: str | None = None, repository: str = "farms/gates") -> Reference:
        return Reference(self.host, repository, tag)


class Registry(Reachable):
    """Started by `with`; `log` is what it wrote, `folder` where its blobs lie; `also`: other names of this machine."""

    login = LOGIN

    def __init__(self, directory: Path, *, host: str = "127.0.0.1", also: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.certificates = make_certificates(directory / "tls", also=also)
        self.port = free_port()
        self.folder, self._log_path = directory / "blobs", directory / "registry.log"
        self._process: subprocess.Popen | None = None
        (directory / "htpasswd").write_text(f"{LOGIN.user}:{_HASH}\n")
        self._config = directory / "config.yml"
        tls = {"certificate": str(self.certificates.certificate), "key": str(self.certificates.key)}
        self._config.write_text(
            json.dumps(  # YAML, too
                {
                    "version": "0.1",
                    "log": {"level": "info"},
                    "storage": {"filesystem": {"rootdirectory": str(self.folder)}, "delete": {"enabled": True}},
                    "http": {"addr": f"{host}:{self.port}", "tls": tls},
                    "auth": {"htpasswd": {"realm": "lab", "path": str(directory / "htpasswd")}},
                }
            )
        )

    def __enter__(self) -> Registry:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(["docker-registry", "serve", self._config], stdout=log, stderr=log)
        wait_until(lambda: "listening on" in self.log, what=f"registry on {self.port}")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
