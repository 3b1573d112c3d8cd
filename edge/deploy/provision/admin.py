"""An administrator's ssh and sudo on a device: what they run there, they run as root."""

from __future__ import annotations

import importlib.resources
import io
import json
import shlex
import subprocess
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.deploy.provision.facts import FACTS_SCRIPT, ProvisionFacts, facts_from_text
from edge.errors import DeployError
from edge.transport.ssh_command import SshAddress, ssh_command

__all__ = ["AdminShell"]

_FACTS_S = 60.0
_STEPS_S = 1800.0  # installing the libraries on a slow card
_UPLOAD_S = 3600.0
_REMOTE = "edge.deploy.provision.remote"
_START = (
    "import sys,tempfile,runpy;b=sys.stdin.buffer;f=tempfile.NamedTemporaryFile(suffix='.zip');"
    "f.write(b.read(int(b.readline())));f.flush();sys.path.insert(0,f.name);"
    f"runpy.run_module('{_REMOTE}.main',run_name='__main__')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminShell:
    """`address` is the administrator's; `sudo_password` None: sudo has to work without one."""

    address: SshAddress
    sudo_password: str | None = field(default=None, repr=False)

    def facts(self) -> ProvisionFacts:
        """Ask for the facts.

        Raises:
            DeployError: `transfer.ssh`, `request.sudo`, `preflight.device`.
        """
        told = self._as_root(["sh", "-s"], FACTS_SCRIPT.encode(), timeout_s=_FACTS_S)
        return facts_from_text(told.decode(errors="replace"), target=self.address.host)

    def steps(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Have the steps of a request checked, applied or undone; return the answer.

        Raises:
            DeployError: `transfer.ssh`, `request.sudo`, `device.provision`.
        """
        program = _program()
        content = b"%d\n" % len(program) + program + json.dumps(request).encode() + b"\n"
        told = self._as_root(["python3", "-I", "-c", _START], content, timeout_s=_STEPS_S)
        try:
            answer: dict[str, Any] = json.loads(told.splitlines()[-1])
        except (ValueError, IndexError):
            raise DeployError(
                "device.provision",
                f"{self.address.host} answered {told[-300:]!r}",
                hint="run the command again with -v",
            ) from None
        return answer

    def upload(self, paths: Iterable[Path]) -> str:
        """Copy files into a new folder of the administrator's and return its path; `discard` removes it.

        Raises:
            DeployError: `transfer.ssh`.
        """
        place = self._run(["mktemp -d /tmp/edge-provision.XXXXXX"], b"", timeout_s=_FACTS_S).decode().strip()
        tar = ["tar", "-cf", "-", *(word for path in paths for word in ("-C", str(path.parent), path.name))]
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as packing:
            line = ssh_command(self.address, [f"tar -C {shlex.quote(place)} -xf -"])
            done = subprocess.run(line, stdin=packing.stdout, capture_output=True, timeout=_UPLOAD_S, check=False)
        if done.returncode or packing.returncode:
            self.discard(place)
            raise self._unreachable(done.stderr)
        return place

    def discard(self, place: str) -> None:
        """Remove what `upload` copied."""
        self._run([f"rm -rf -- {shlex.quote(place)}"], b"", timeout_s=_FACTS_S)

    def _as_root(self, command: Sequence[str], content: bytes, *, timeout_s: float) -> bytes:
        # With a password, -k makes sudo ask for it even where it would not, so that the first line is always its own.
        sudo = ["sudo", "-n"] if self.sudo_password is None else ["sudo", "-k", "-S", "-p", ""]
        first = b"" if self.sudo_password is None else self.sudo_password.encode() + b"\n"
        words = [shlex.quote(word) for word in (*sudo, "--", *command)]
        return self._run(words, first + content, timeout_s=timeout_s)

    def _run(self, words: Sequence[str], content: bytes, *, timeout_s: float) -> bytes:
        try:
            done = subprocess.run(
                ssh_command(self.address, words), input=content, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise DeployError(
                "transfer.timeout", f"{self.address.host} has not answered within {timeout_s:g} s", hint="try again"
            ) from None
        if done.returncode == 255:
            raise self._unreachable(done.stderr)
        if done.returncode:
            raise self._refused(done.stderr.decode(errors="replace").strip())
        return done.stdout

    def _refused(self, words: str) -> DeployError:
        if "sudo" in words or "password" in words:
            return DeployError(
                "request.sudo",
                f"{self.address.host}: sudo refuses: {words[-300:]}",
                hint="give --ask-sudo-password, or an administrator who may use sudo by --admin",
            )
        return DeployError("device.provision", f"{self.address.host}: {words[-600:]}", hint="nothing more was changed")

    def _unreachable(self, words: bytes) -> DeployError:
        return DeployError(
            "transfer.ssh",
            f"{self.address.host}: {words.decode(errors='replace').strip()[-400:]}",
            hint=f"ssh {self.address.host} has to work without a question first: key, user and host key",
        )


def _program() -> bytes:
    """Return the remote package as a zip that Python can import from."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        parts = _REMOTE.split(".")
        for depth in range(1, len(parts)):
            archive.writestr("/".join([*parts[:depth], "__init__.py"]), "")
        for file in importlib.resources.files(_REMOTE).iterdir():
            if file.name.endswith(".py"):
                archive.writestr("/".join([*parts, file.name]), file.read_text(encoding="utf-8"))
    return packed.getvalue()
