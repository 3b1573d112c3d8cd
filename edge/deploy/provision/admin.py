"""An administrator's ssh and sudo on a device: what they run there, they run as root."""

from __future__ import annotations

import importlib.resources
import io
import json
import shlex
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from edge.codec import Most, decode
from edge.deploy.provision.facts import FACTS_SCRIPT, ProvisionFacts, facts_from_text
from edge.deploy.provision.process import RanAsRoot, run_as_root, run_until, send_tar
from edge.errors import DeployError
from edge.reading import json_value
from edge.transport.ssh import SshAddress, ssh_command
from edge.untrusted import cleaned
from edge.wire.peer import REVISION

__all__ = ["AdminShell", "StepsAnswer"]

_WRONG_PASSWORD = "request.sudo.password"
_FACTS_S = 60.0
_STEPS_S = 1800.0  # installing the libraries on a slow card
_UPLOAD_S = 3600.0
_REMOTE = "edge.deploy.provision.remote"
_START = (
    "import sys,tempfile,runpy;b=sys.stdin.buffer;f=tempfile.NamedTemporaryFile(suffix='.zip');"
    "f.write(b.read(int(b.readline())));f.flush();sys.path.insert(0,f.name);"
    f"runpy.run_module('{_REMOTE}.main',run_name='__main__')"
)

_CHANGE = 64 * 1024  # a file that is shown line by line


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsAnswer:
    """The answer of `edge.deploy.provision.remote`; `told`: what a person has to know of how the device stands now."""

    changes: tuple[Annotated[str, Most(_CHANGE)], ...]
    conflicts: tuple[Annotated[str, Most(_CHANGE)], ...]
    failed: Annotated[str, Most(_CHANGE)] | None
    applied: bool
    told: tuple[Annotated[str, Most(_CHANGE)], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminShell:
    """`address` is the administrator's; `sudo_password` None: sudo has to work without one.

    Once `stop` is set, each method raises `Interrupted` within a second.
    """

    address: SshAddress
    sudo_password: str | None = field(default=None, repr=False)
    stop: threading.Event = field(default_factory=threading.Event)

    def wants_password(self) -> bool:
        """Return whether sudo there wants a password, asking no person; DeployError `transfer.ssh`, `request.sudo`."""
        free = self._sudo(["true"], b"", timeout_s=_FACTS_S)
        if free.has_run:
            return False
        if b"required" not in free.error:  # "a password is required": about anything else no password would help
            raise self._refused(free)
        return True

    def ask_password(self, ask: Callable[[bool], str]) -> str:
        """Return the password that sudo takes there, tried; `ask(True)` asks a person once more after a wrong one.

        Raises `DeployError`: `transfer.ssh`, `request.sudo`; `request.sudo.password` if the second one was wrong, too.
        """
        password = ask(False)
        try:
            replace(self, sudo_password=password)._as_root(["true"], b"", timeout_s=_FACTS_S)
        except DeployError as error:
            if error.code != _WRONG_PASSWORD:
                raise
            password = ask(True)
            replace(self, sudo_password=password)._as_root(["true"], b"", timeout_s=_FACTS_S)
        return password

    def facts(self) -> ProvisionFacts:
        """DeployError `transfer.ssh`, `request.sudo`, `preflight.device`."""
        told = self._as_root(["sh", "-s"], FACTS_SCRIPT.encode(), timeout_s=_FACTS_S)
        try:
            lines = told.decode(errors="replace").splitlines()
            return facts_from_text("\n".join(map(cleaned, lines)), target=self.address.host)
        except DeployError as error:
            raise DeployError(error.code, self._hidden(error.problem.encode()), hint=error.hint) from None

    def steps(self, request: Mapping[str, Any]) -> StepsAnswer:
        """Have the steps checked, applied or undone; DeployError `transfer.ssh`, `request.sudo`, `device.provision`."""
        program = _program()
        content = b"%d\n" % len(program) + program + json.dumps(request).encode() + b"\n"
        told = self._as_root(["python3", "-I", "-c", _START], content, timeout_s=_STEPS_S)
        try:
            values = json_value(told.splitlines()[-1])
            return decode(StepsAnswer, values, where="provision", revision=REVISION, ours=REVISION)
        except (ValueError, IndexError):
            raise DeployError(
                "device.provision",
                f"{self.address.host} answered {self._hidden(told)[-300:]!r}",
                hint="run the command again with -v",
            ) from None

    def upload(self, paths: Sequence[Path], *, on_bytes: Callable[[int], None]) -> tuple[str, int]:
        """Copy files into a new folder of the administrator's; return its path and the bytes. DeployError `transfer.*`.

        `discard` removes it.
        """
        told = self._run("mktemp -d /tmp/edge-provision.XXXXXX")
        place = cleaned(told.decode(errors="replace").strip())
        line = ssh_command(self.address, [f"tar -C {shlex.quote(place)} -xf -"])
        host = self.address.host
        done, sent = send_tar(line, paths, on_bytes=on_bytes, host=host, timeout_s=_UPLOAD_S, stop=self.stop)
        if done.returncode:
            self.discard(place)
            raise self._unreachable(done.stderr)
        return place, sent

    def discard(self, place: str) -> None:
        """Remove what `upload` copied."""
        self._run(f"rm -rf -- {shlex.quote(place)}")

    def _as_root(self, command: Sequence[str], content: bytes, *, timeout_s: float) -> bytes:
        ran = self._sudo(command, content, timeout_s=timeout_s)
        if ran.code or not ran.has_run:
            raise self._refused(ran)
        return ran.out

    def _sudo(self, command: Sequence[str], content: bytes, *, timeout_s: float) -> RanAsRoot:
        if len((self.sudo_password or "").splitlines()) > 1:
            raise DeployError(_WRONG_PASSWORD, "a password has one line", hint="type it again")
        ran = run_as_root(
            self.address, command, content, password=self.sudo_password, timeout_s=timeout_s, stop=self.stop
        )
        if ran.code == 255:
            raise self._unreachable(ran.error)
        return ran

    def _run(self, line: str) -> bytes:
        command, host = ssh_command(self.address, [line]), self.address.host
        done = run_until(command, b"", host=host, timeout_s=_FACTS_S, stop=self.stop)
        if done.returncode == 255:
            raise self._unreachable(done.stderr)
        if done.returncode:
            raise self._failed(done.stderr)
        return done.stdout

    def _refused(self, ran: RanAsRoot) -> DeployError:
        if ran.has_run:
            return self._failed(ran.error)
        host = self.address.host
        if ran.is_wrong:
            return DeployError(
                _WRONG_PASSWORD, f"{host}: sudo does not take the password", hint="it is the administrator's, there"
            )
        return DeployError(
            "request.sudo",
            f"{host}: sudo refuses: {self._hidden(ran.error)[-300:]}",
            hint="give --ask-sudo-password, or an administrator who may use sudo by --admin",
        )

    def _failed(self, words: bytes) -> DeployError:
        problem = f"{self.address.host}: {self._hidden(words)[-600:]}"
        return DeployError("device.provision", problem, hint="nothing more was changed")

    def _unreachable(self, words: bytes) -> DeployError:
        return DeployError(
            "transfer.ssh",
            f"{self.address.host}: {self._hidden(words)[-400:]}",
            hint=f"ssh {self.address.host} has to work without a question first: key, user and host key",
        )

    def _hidden(self, words: bytes) -> str:
        """Return what was said there as one line, without the password: a device could say it, and logs are kept."""
        text = words.decode(errors="replace").strip()
        return cleaned(text.replace(self.sudo_password, "(hidden)") if self.sudo_password else text)


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
