"""An administrator's ssh and sudo on a device: what they run there, they run as root.

Child processes are in sessions of their own, and ended when somebody says stop or a deadline comes.
A password is written once sudo's own question for it was seen, and what the program reads once the program itself
has said that it runs. So a sudo that asks for none gets no password that it could hand on to a shell, and one that
asks again gets nothing that is meant for the program.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import itertools
import json
import os
import secrets
import selectors
import shlex
import signal
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Annotated, Any

from edge.codec import Most, decode
from edge.deadline import Deadline
from edge.delivery.link import Interrupted
from edge.deploy.provision.facts import FACTS_SCRIPT, ProvisionFacts, facts_from_text
from edge.errors import DeployError
from edge.reading import json_value
from edge.transport.ssh import SSH_FAILED, SshAddress, ssh_command, ssh_failed
from edge.untrusted import cleaned
from edge.wire.peer import REVISION

__all__ = ["AdminShell", "StepsAnswer", "contents", "run_until"]

_WRONG_PASSWORD = "request.sudo.password"
_NO_SUCH_COMMAND = 127
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
        free = self._sudo(["true"], (), timeout_s=_FACTS_S)
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
            replace(self, sudo_password=password)._as_root(["true"], (), timeout_s=_FACTS_S)
        except DeployError as error:
            if error.code != _WRONG_PASSWORD:
                raise
            password = ask(True)
            replace(self, sudo_password=password)._as_root(["true"], (), timeout_s=_FACTS_S)
        return password

    def facts(self) -> ProvisionFacts:
        """DeployError `transfer.ssh`, `request.sudo`, `preflight.device`."""
        told = self._as_root(["sh", "-s"], [FACTS_SCRIPT.encode()], timeout_s=_FACTS_S)
        try:
            lines = told.decode(errors="replace").splitlines()
            return facts_from_text("\n".join(map(cleaned, lines)), target=self.address.host)
        except DeployError as error:
            raise DeployError(error.code, self._hidden(error.problem.encode()), hint=error.hint) from None

    def steps(self, request: Mapping[str, Any]) -> StepsAnswer:
        """Have the steps checked, applied or undone; DeployError `transfer.ssh`, `request.sudo`, `device.provision`."""
        return self._asked(request, (), _STEPS_S)

    def stock(self, store: str, paths: Sequence[Path], *, on_bytes: Callable[[int], None]) -> StepsAnswer:
        """Have root write files into its folder `store`; DeployError as `steps`. A thread calls `on_bytes`."""
        request = {"store": store, "files": {path.name: path.stat().st_size for path in paths}}
        return self._asked(request, contents(paths, on_bytes), _UPLOAD_S)

    def _asked(self, request: Mapping[str, Any], files: Iterable[bytes], timeout_s: float) -> StepsAnswer:
        program = _program()
        head = b"%d\n" % len(program) + program + json.dumps(request).encode() + b"\n"
        content = itertools.chain([head], files)
        told = self._as_root(["python3", "-I", "-c", _START], content, timeout_s=timeout_s)
        try:
            values = json_value(told.splitlines()[-1])
            return decode(StepsAnswer, values, where="provision", revision=REVISION, ours=REVISION)
        except (ValueError, IndexError):
            raise DeployError(
                "device.provision",
                f"{self.address.host} answered {self._hidden(told)[-300:]!r}",
                hint="run the command again with -v",
            ) from None

    def _as_root(self, command: Sequence[str], content: Iterable[bytes], *, timeout_s: float) -> bytes:
        ran = self._sudo(command, content, timeout_s=timeout_s)
        if ran.code or not ran.has_run:
            raise self._refused(ran)
        return ran.out

    def _sudo(self, command: Sequence[str], content: Iterable[bytes], *, timeout_s: float) -> RanAsRoot:
        if len((self.sudo_password or "").splitlines()) > 1:
            raise DeployError(_WRONG_PASSWORD, "a password has one line", hint="type it again")
        looks = _looks(self.address.host, timeout_s=timeout_s, stop=self.stop)
        ran = run_as_root(self.address, command, content, password=self.sudo_password, looks=looks)
        if ran.code == SSH_FAILED:
            raise self._ended(ran.error)
        return ran

    def _refused(self, ran: RanAsRoot) -> DeployError:
        if ran.has_run:
            return self._failed(ran.error)
        host = self.address.host
        if ran.is_wrong:
            return DeployError(
                _WRONG_PASSWORD, f"{host}: sudo does not take the password", hint="it is the administrator's, there"
            )
        said = self._hidden(ran.error)[-300:]
        problem, hint = f"sudo refuses: {said}", "let this user use sudo there, or name one who may: --admin USER"
        if ran.code == _NO_SUCH_COMMAND:
            problem, hint = f"sudo is not installed: {said}", "install it there with its package manager"
        elif not said:
            problem = "sudo was not started, and nothing says why"
            hint = "ForceCommand in sshd_config there, command= at the key, or the user's shell may run something else"
        elif b"required" in ran.error:
            hint = f"give --ask-sudo-password; or {hint}"
        return DeployError("request.sudo", f"{host}: {problem}", hint=hint)

    def _ended(self, words: bytes) -> DeployError:
        lines = [self._hidden(line)[:500] for line in words.splitlines()[-20:] if line.strip()]
        return ssh_failed(self.address, lines, is_admin=True)

    def _failed(self, words: bytes) -> DeployError:
        problem = f"{self.address.host}: {self._hidden(words)[-600:]}"
        return DeployError("device.provision", problem, hint="nothing more was changed")

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


_LOOK_S = 0.2
Ran = subprocess.CompletedProcess[bytes]


def run_until(
    command: Sequence[str], content: Iterable[bytes], *, host: str, timeout_s: float, stop: threading.Event
) -> Ran:
    """Return how it ended, given `content`; raise Interrupted within a second of `stop`.

    DeployError `transfer.timeout` of `host` after `timeout_s`.
    """
    with _child_of(command) as child:
        out, error = _told(child, content, _looks(host, timeout_s=timeout_s, stop=stop))
        return Ran(command, child.returncode, out, error)


def contents(paths: Sequence[Path], on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the contents of files, one after the other; `on_bytes` is told how many bytes of them were taken."""
    count = 0
    for path in paths:
        with path.open("rb") as file:
            while part := file.read(1 << 18):
                yield part
                count += len(part)
                on_bytes(count)


def _feed(pipe: IO[bytes], content: Iterable[bytes]) -> None:
    with contextlib.suppress(OSError), pipe:  # the command has ended; how, its status says
        for part in content:
            pipe.write(part)


@contextlib.contextmanager
def _child_of(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command that Ctrl-C at the terminal does not reach; nothing of it outlives the block."""
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _told(child: subprocess.Popen[bytes], content: Iterable[bytes], looks: Iterator[None]) -> tuple[bytes, bytes]:
    """Give a command its content; return its output and its errors, once it has ended."""
    stdin, child.stdin = child.stdin, None  # the feeder's own: nothing closes it while it writes
    feeder = threading.Thread(target=_feed, args=(stdin, content), daemon=True)
    if stdin is not None:
        feeder.start()
    for _ in looks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            told = child.communicate(timeout=_LOOK_S)
            if stdin is not None:
                feeder.join()
            return told
    raise AssertionError("the looks do not end")


def _looks(host: str, *, timeout_s: float, stop: threading.Event) -> Iterator[None]:
    until = Deadline.after(timeout_s)
    while True:
        yield
        if stop.is_set():
            raise Interrupted
        if until.is_over:
            raise DeployError("transfer.timeout", f"{host} has not answered within {timeout_s:g} s", hint="try again")


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
    content: Iterable[bytes],
    *,
    password: str | None,
    looks: Iterator[None],
) -> RanAsRoot:
    """Return how `command` (words, not quoted) ended as root, given `content` on stdin; `password` None: sudo without.

    The password has one line: a second one would not be sudo's. Raises what `looks` does.
    """
    prompt, ready = (f"edge-{word}-{secrets.token_hex(16)}" for word in ("password", "ready"))
    # -k: what was typed before, by whomever, does not count, and what we type does not either, afterwards.
    sudo = ["sudo", "-n"] if password is None else ["sudo", "-k", "-S", "-p", prompt]
    words = ["env", "LC_ALL=C", *sudo, "--", *_ANNOUNCE, ready, *command]
    mark = ready.encode() + b"\n"
    with _child_of(ssh_command(address, [shlex.quote(word) for word in words])) as child:
        before, questions, asked = _until_it_runs(child, prompt.encode(), mark, password, looks)
        has_run = mark in before
        out, error = _told(child, content if has_run else (), looks)
        error = (questions + error).replace(prompt.encode(), b"")
        return RanAsRoot(
            code=child.returncode,
            out=before.partition(mark)[2] + out if has_run else b"",
            error=error,
            has_run=has_run,
            is_wrong=asked > 0 and not has_run and (asked > 1 or b"incorrect password" in error),
        )


def _until_it_runs(
    child: subprocess.Popen[bytes], prompt: bytes, mark: bytes, password: str | None, looks: Iterator[None]
) -> tuple[bytes, bytes, int]:
    """Answer sudo's first question until the program has written `mark`, or never will; a second question ends it.

    Return what came on stdout and stderr, and how often sudo has asked.
    """
    out, error, asked = bytearray(), bytearray(), 0
    with selectors.DefaultSelector() as pipes:
        for pipe, told in ((child.stdout, out), (child.stderr, error)):
            assert pipe is not None
            pipes.register(pipe, selectors.EVENT_READ, told)
        while mark not in out and pipes.get_map():
            for key, _ in pipes.select(_LOOK_S):
                part = os.read(key.fd, 1 << 16)
                key.data.extend(part)
                if not part or len(key.data) > _MOST_BYTES:
                    pipes.unregister(key.fileobj)
            before, asked = asked, error.count(prompt)
            stdin = child.stdin
            if asked > before and stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    if asked == 1 and password is not None:
                        stdin.write(password.encode() + b"\n")
                        stdin.flush()
                    else:
                        child.stdin = None
                        stdin.close()
            next(looks)
    return bytes(out), bytes(error), asked
