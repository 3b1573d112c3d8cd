"""A second OCI registry, of another making: django-oci over gunicorn, with TLS on a free loopback port and no login.

`.ci/setup rest` puts it into `.cache/django-oci`. Its logins are not those of the distribution specification
(its challenge names no scheme), so it is asked without.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.certificates import make_certificates
from tests.support.ports import free_port
from tests.support.registry import Reachable
from tests.support.wait import wait_until

PYTHON = Path(__file__).parents[2] / ".cache" / "django-oci" / "bin" / "python"
_SITE = Path(__file__).with_name("django_registry_site.py")


class DjangoRegistry(Reachable):
    """Started by `with`; `log` is what it wrote, a line per request."""

    login = None

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.certificates = make_certificates(directory / "tls")
        self.port = free_port()
        self._folder, self._log_path = directory / "kept", directory / "registry.log"
        self._folder.mkdir()
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> DjangoRegistry:
        environment = {**os.environ, "REGISTRY_URL": f"https://{self.host}"}
        subprocess.run([PYTHON, _SITE], check=True, env=environment, cwd=self._folder)
        tls = ["--certfile", self.certificates.certificate, "--keyfile", self.certificates.key]
        serve = [PYTHON, "-m", "gunicorn", "--bind", f"127.0.0.1:{self.port}", *tls, "--pythonpath", _SITE.parent]
        quiet = ["--access-logfile", "-", "--no-control-socket", f"{_SITE.stem}:application"]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*serve, *quiet], stdout=log, stderr=log, env=environment, cwd=self._folder
            )
        wait_until(lambda: "Booting worker" in self.log, what=f"django-oci on {self.port}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
