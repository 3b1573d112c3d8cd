"""`edge-runtime pull`: settings, login and record of this device, and what a person or the journal reads."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from edge.delivery.event import NOTE, Event
from edge.delivery.options import DeliveryOptions
from edge.delivery.outcome import INTERRUPTED, Outcome
from edge.device.layout import Layout
from edge.errors import DeployError
from edge.registry.client import RegistryClient
from edge.registry.login import Login, read_login
from edge.registry.pull_settings import read_pull_settings
from edge.runtime.pull.environment import read_environment
from edge.runtime.pull.memory import Memory
from edge.runtime.pull.pull import Pulled, pull
from edge.runtime.pull.record import PullRecord
from edge.runtime.pull.user import become
from edge.stdout import write_stdout
from edge.transport.channel import Channel
from edge.transport.local import LOCAL_AGENT, LocalChannel
from edge.transport.socket import connect_socket

__all__ = ["connector_of", "run_pull", "state_folder"]

_USER = "edge-pull"
_SOCKET = Path("/run/edge-agent.sock")
_LOCK_WAIT_S = 60.0
_STEP_S = 0.2


def run_pull(root: Path, *, is_plan: bool, is_forced: bool, retry_bad: bool, as_json: bool) -> int:
    """Pull once and return the exit code.

    Raises:
        DeployError: `device.settings`, `request.registry`, `registry.login`, `registry.tls`, before anything is asked.
        OSError: if root cannot become edge-pull.
    """
    etc = root / "etc/edge-deploy"
    reference = read_pull_settings(etc / "pull.toml").reference
    login = _login(etc)
    os.environ.update(read_environment(etc / "proxy.env"))  # as systemd does for the unit
    if root == Path("/") and os.geteuid() == 0:
        become(_USER)
    stop = threading.Event()
    options = DeliveryOptions(
        is_plan=is_plan, retry_bad=retry_bad, lock_wait_s=_LOCK_WAIT_S, who=f"pull of {reference}"[:200]
    )
    memory = Memory(state_folder(root))
    if memory.is_installed:
        with suppress(OSError):  # of a look that was killed: who answers this one is what is installed, too
            Layout(root).pull_by.unlink(missing_ok=True)
    last = memory.last
    client = RegistryClient(
        reference,
        login=login,
        ca=_if_there(etc / "registry-ca.pem"),
        is_basic=last is not None and last.reference == str(reference) and last.is_basic is True,
    )
    pulled = _unless_stopped(
        lambda: pull(
            client,
            connector_of(root),
            last=last,
            options=options,
            on_event=_tell,
            stop=stop,
            remember=lambda told: _remember(memory, told),
            is_forced=is_forced,
            is_hearsay=memory.is_hearsay,
        ),
        stop,
    )
    if pulled is None:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    if not is_plan:
        _remember(memory, pulled.record)
    return _told(pulled, as_json=as_json)


def _unless_stopped(work: Callable[[], Pulled], stop: threading.Event) -> Pulled | None:
    """Return what `work` returns; None, soon, after a SIGINT or SIGTERM, whatever a registry lets us wait for."""
    future: Future[Pulled] = Future()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    threading.Thread(target=_fulfil, args=(future, work), daemon=True).start()
    while not stop.is_set():
        with suppress(concurrent.futures.TimeoutError):
            return future.result(timeout=_STEP_S)
    return None


def _fulfil(future: Future[Pulled], work: Callable[[], Pulled]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # the border of a thread: raised again where the result is taken
        future.set_exception(error)


def state_folder(root: Path) -> Path:
    """Return where edge-pull keeps what it remembers."""
    return Path(os.environ.get("STATE_DIRECTORY", root / "var/lib/edge-pull"))


def _login(etc: Path) -> Login | None:
    """Return the login that systemd gives; to a person with sudo, that of which systemd would give a copy."""
    folder = Path(os.environ.get("CREDENTIALS_DIRECTORY", etc / "credentials"))
    # Not Path.exists(): nobody but root may look into the folder, and who may not has no login.
    return read_login(folder / "registry-login") if os.path.exists(folder / "registry-login") else None


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def connector_of(root: Path) -> Callable[[], Channel]:
    """Return what connects to the agent of a device."""
    if root == Path("/"):
        return lambda: connect_socket(_SOCKET)
    return lambda: LocalChannel([*LOCAL_AGENT, "--root", str(root)])


def _remember(memory: Memory, record: PullRecord) -> None:
    try:
        memory.write(record)
    except DeployError as error:  # what serves does not rest on it
        words = f"WARNING {memory.path} cannot be written ({error.problem}); the next pull asks for all again\n"
        sys.stderr.write(words)


def _tell(event: Event) -> None:
    if event.event == NOTE:
        sys.stderr.write(f"{event.phase}: {event.hint}\n")


def _told(pulled: Pulled, *, as_json: bool) -> int:
    outcome = pulled.outcome
    if as_json:
        write_stdout(json.dumps(asdict(outcome), default=str) + "\n")
    sys.stderr.write(_words(pulled, outcome) + "\n")
    return outcome.exit_code


def _words(pulled: Pulled, outcome: Outcome) -> str:
    release = outcome.release or "no release"
    if not pulled.is_asked:
        return f"{outcome.target}: left alone, as the registry has asked; --force asks all the same"
    if outcome.problem is not None:
        hint = f"; {outcome.hint}" if outcome.hint else ""
        return f"{outcome.target}: {outcome.result}, {release}: {outcome.problem} ({outcome.code}){hint}"
    if outcome.result == "unchanged" and pulled.record.result == "rolled-back":
        return f"{outcome.target}: still {release}, which was rolled back here: {pulled.record.problem}"
    return f"{outcome.target}: {outcome.result}, {release}"
