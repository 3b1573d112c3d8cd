"""An administrator's ssh and sudo on a device: what they run there, they run as root."""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import json
import os
import secrets
import selectors
import shlex
import subprocess
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from edge.codec import Most, decode
from edge.deadline import Deadline
from edge.delivery.link import Interrupted
from edge.deploy.provision.facts import FACTS_SCRIPT, ProvisionFacts, facts_from_text
from edge.deploy.provision.process import child_of, run_until, send_tar
from edge.errors import DeployError
from edge.reading import json_value
from edge.transport.ssh import SshAddress, ssh_command
from edge.untrusted import cleaned
from edge.wire.peer import REVISION

__all__ = ["AdminShell", "StepsAnswer"]

# Programs that root runs on a target, by its own sudo, which gets a password only where and when it asks for one.
#
# A password is written once sudo's own question for it was seen, and what the program reads once the program itself
# has said that it runs. So a sudo that asks for none gets no password that it could hand on to a shell, and one that
# asks again gets nothing that is meant for the program.

_LOOK_S = 0.2
_MOST_BYTES = 1 << 20  # what a login and sudo may say before the program runs
# Says that it runs, and becomes the program, to which it leaves its stdin.
_ANNOUNCE = ("sh", "-c", 'printf "%s\\n" "$0"; exec "$@"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RanAsRoot:
    """How it ended: `code` is the program's, sudo's, or 255: ssh's own; `out` and `error` its output, sudo's and ssh's.

    `has_run`: sudo let the program run. `is_wrong`: sudo did not take the password.
    """

    code: int
    out: bytes
    error: bytes
    has_run: bool
    is_wrong: bool


def run_as_root(
    address: SshAddress,
    command: Sequence[str],
    content: bytes,
    *,
    password: str | None,
    timeout_s: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> RanAsRoot:
    """Return how `command` (words, not quoted) ended as root, given `content` on stdin; `password` None: sudo without.

    Raises `ValueError` if the password has more than one line: the second one would not be sudo's; TimeoutError after
    `timeout_s` for all of it, InterruptedError once stopped: nothing of ours runs on this side then.
    """
    if password is not None and len(password.splitlines()) > 1:
        raise ValueError("a password has one line")
    prompt, ready = (f"edge-{word}-{secrets.token_hex(16)}" for word in ("password", "ready"))
    # -k: what was typed before, by whomever, does not count, and what we type does not either, afterwards.
    sudo = ["sudo", "-n"] if password is None else ["sudo", "-k", "-S", "-p", prompt]
    words = ["env", "LC_ALL=C", *sudo, "--", *_ANNOUNCE, ready, *command]
    deadline = Deadline.after(timeout_s)
    with child_of(ssh_command(address, [shlex.quote(word) for word in words])) as child:
        talk = _Talk(child=child, prompt=prompt.encode(), ready=ready.encode() + b"\n", password=password)
        while not talk.is_over:
            talk.hear()
            _look(deadline, is_stopped)
        given: bytes | None = content if talk.has_run else None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, error = child.communicate(given, timeout=_LOOK_S)
                return talk.ended(out, error)
            given = None
            _look(deadline, is_stopped)


class _Talk:
    """Dialogue before the program runs: sudo's questions, our answer."""

    def __init__(self, *, child: subprocess.Popen[bytes], prompt: bytes, ready: bytes, password: str | None) -> None:
        self._child, self._prompt, self._ready, self._password = child, prompt, ready, password
        self._out, self._error = bytearray(), bytearray()
        self._open = {child.stdout: self._out, child.stderr: self._error}
        self._asked = 0

    @property
    def has_run(self) -> bool:
        return self._ready in self._out

    @property
    def is_over(self) -> bool:
        """Whether the program runs, or never will."""
        return self.has_run or not self._open

    def hear(self) -> None:
        """Hear for a moment what is said, and answer sudo's first question; a second one ends it."""
        with selectors.DefaultSelector() as selector:
            for pipe in self._open:
                selector.register(pipe, selectors.EVENT_READ)  # type: ignore[arg-type]
            for key, _ in selector.select(_LOOK_S):
                pipe = next(one for one in self._open if one is key.fileobj)
                part = os.read(key.fd, 1 << 16)
                self._open[pipe].extend(part)
                if not part or len(self._open[pipe]) > _MOST_BYTES:
                    del self._open[pipe]
        asked = self._error.count(self._prompt)
        if asked > self._asked and self._child.stdin is not None:
            self._asked = asked
            with contextlib.suppress(BrokenPipeError):
                if asked == 1 and self._password is not None:
                    self._child.stdin.write(self._password.encode() + b"\n")
                    self._child.stdin.flush()
                else:
                    self._child.stdin.close()
            if asked > 1:
                self._child.stdin = None

    def ended(self, out: bytes, error: bytes) -> RanAsRoot:
        """Return how it ended; `out` and `error` are what came after the program had said that it runs."""
        told = (bytes(self._error) + error).replace(self._prompt, b"")
        return RanAsRoot(
            code=self._child.returncode,
            out=bytes(self._out).partition(self._ready)[2] + out if self.has_run else b"",
            error=told,
            has_run=self.has_run,
            is_wrong=self._asked > 0 and not self.has_run and (self._asked > 1 or b"incorrect password" in told),
        )


def _look(deadline: Deadline, is_stopped: Callable[[], bool]) -> None:
    if is_stopped():
        raise InterruptedError
    if deadline.is_over:
        raise TimeoutError


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
        told = self._run(["mktemp -d /tmp/edge-provision.XXXXXX"], b"", timeout_s=_FACTS_S)
        place = cleaned(told.decode(errors="replace").strip())
        line = ssh_command(self.address, [f"tar -C {shlex.quote(place)} -xf -"])
        try:
            done, sent = send_tar(line, paths, on_bytes=on_bytes, timeout_s=_UPLOAD_S, stop=self.stop)
        except subprocess.TimeoutExpired:
            raise self._silent(_UPLOAD_S) from None
        if done.returncode:
            self.discard(place)
            raise self._unreachable(done.stderr)
        return place, sent

    def discard(self, place: str) -> None:
        """Remove what `upload` copied."""
        self._run([f"rm -rf -- {shlex.quote(place)}"], b"", timeout_s=_FACTS_S)

    def _as_root(self, command: Sequence[str], content: bytes, *, timeout_s: float) -> bytes:
        ran = self._sudo(command, content, timeout_s=timeout_s)
        if ran.code or not ran.has_run:
            raise self._refused(ran)
        return ran.out

    def _sudo(self, command: Sequence[str], content: bytes, *, timeout_s: float) -> RanAsRoot:
        try:
            ran = run_as_root(
                self.address,
                command,
                content,
                password=self.sudo_password,
                timeout_s=timeout_s,
                is_stopped=self.stop.is_set,
            )
        except InterruptedError:
            raise Interrupted from None
        except TimeoutError:
            raise self._silent(timeout_s) from None
        except ValueError as error:
            raise DeployError(_WRONG_PASSWORD, str(error), hint="type it again") from None
        if ran.code == 255:
            raise self._unreachable(ran.error)
        return ran

    def _run(self, words: Sequence[str], content: bytes, *, timeout_s: float) -> bytes:
        try:
            done = run_until(ssh_command(self.address, words), content, timeout_s=timeout_s, stop=self.stop)
        except subprocess.TimeoutExpired:
            raise self._silent(timeout_s) from None
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

    def _silent(self, timeout_s: float) -> DeployError:
        return DeployError(
            "transfer.timeout", f"{self.address.host} has not answered within {timeout_s:g} s", hint="try again"
        )

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
