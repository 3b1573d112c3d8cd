"""`edge-runtime pull`: settings, login and record of this device, and what a person or the journal reads.

A pull never reads from the network as root. Started by hand it has the environment that systemd gives edge-pull.service
(`proxy.env`).
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pwd
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from edge.deadline import age_s
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.outcome import INTERRUPTED, NOTE, Event, Outcome
from edge.device.units import unit_folder
from edge.errors import DeployError
from edge.reading import read_file
from edge.registry.client import RegistryClient
from edge.registry.login import Login, read_login
from edge.registry.reference import read_pull_settings
from edge.runtime.agent.session import in_background
from edge.runtime.pull.pull import Pulled, pull, unasked
from edge.runtime.pull.record import PullRecord, read_pull_record, write_record
from edge.stdout import write_stdout
from edge.transport.channel import Channel, ChildChannel, connect_socket

__all__ = ["become", "connector_of", "read_environment", "run_pull", "sentence_of"]

# Source: systemd.exec(5), EnvironmentFile=. A quote counts at the beginning of a value, and a value may be several.
_QUOTED = re.compile(r"""'([^']*)'\s*|"((?:[^"\\]|\\.)*)"\s*""")
_ESCAPED_IN_QUOTES = re.compile(r'\\(["\\`$])')
_CONTINUED = re.compile(r"\\\n")
_ESCAPED = re.compile(r"\\(.)")
_AGENT = (sys.executable, "-I", "-m", "edge.cli.edge_runtime", "agent", "--for-pull")
_USER = "edge-pull"
_SOCKET = Path("/run/edge-agent.sock")
_LOCK_WAIT_S = 60.0
_STEP_S = 0.2
_JUST_NOW_S = 60


def become(name: str) -> None:
    """Give up root, for good, for the user `name`. Raises `DeployError` `device.settings`, if there is none of that
    name; `OSError` if root may not become another user here.
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        hint = "edge-deploy provision makes it"
        raise DeployError(
            "device.settings", f"there is no user {name}, as whom releases are fetched", hint=hint
        ) from None
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


def read_environment(path: Path) -> Mapping[str, str]:
    """Return the variables of a file; none where there is no file, or it is not for us: then systemd has read it.
    Raises `DeployError` `device.settings` with the line, and nothing of what stands in it, which may be a password.
    """
    try:
        text = read_file(path, follows_links=True).decode("utf-8-sig")  # root's folder
    except (FileNotFoundError, PermissionError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(str(path), str(getattr(error, "strerror", None) or "expected UTF-8")) from None
    found = {}
    for number, line in enumerate(_CONTINUED.sub("", text).splitlines(), start=1):
        name, equals, value = line.partition("=")
        if equals and name.strip()[:1] not in ("#", ";"):
            found[name.strip()] = _unquoted(value.strip(), f"{path}:{number}")
    return found


def _unquoted(value: str, where: str) -> str:
    whole = ""
    while match := _QUOTED.match(value):
        single, double = match.groups()
        whole += _ESCAPED_IN_QUOTES.sub(r"\1", double) if single is None else single
        value = value[match.end() :]
    if value[:1] in ("'", '"'):
        raise _wrong(where, "a quote that is not closed")
    return whole + _ESCAPED.sub(r"\1", value)


def _wrong(where: str, what: str) -> DeployError:
    return DeployError("device.settings", f"{where}: {what}", hint="write https_proxy=http://proxy.lan:3128")


def run_pull(root: Path, *, is_plan: bool, is_forced: bool, retry_bad: bool, as_json: bool) -> int:
    """Pull once and return the exit code. Raises `DeployError` `device.settings`, `request.registry`, `registry.login`,
    `registry.tls`, before anything is asked, and remembers it; `OSError` if root cannot become edge-pull.
    """
    etc = root / "etc/edge-deploy"
    record_path = (unit_folder("STATE_DIRECTORY") or root / "var/lib/edge-pull") / "pull.json"
    said = ""
    try:
        settings = read_pull_settings(etc / "pull.toml")
        said = str(settings.reference)
        login = _login(etc)
        os.environ.update(read_environment(etc / "proxy.env"))  # as systemd does for the unit
        _give_up_root(root)
        last = read_pull_record(record_path)
        client = RegistryClient(
            settings.reference,
            login=login,
            ca=ca if (ca := etc / "registry-ca.pem").exists() else None,
            is_ca_alone=settings.authorities == "registry-ca",
            is_basic=last is not None and last.reference == said and last.is_basic is True,
        )
    except DeployError as error:
        _give_up_root(root)
        if not is_plan:
            last = read_pull_record(record_path)
            said = said or (str(etc / "pull.toml") if last is None else last.reference)
            _remember(record_path, unasked(error, said, last))
        raise
    stop = threading.Event()
    options = DeliveryOptions(
        is_plan=is_plan, retry_bad=retry_bad, lock_wait_s=_LOCK_WAIT_S, who=f"pull of {said}"[:200]
    )
    pulled = _unless_stopped(
        lambda: pull(
            client,
            connector_of(root),
            last=last,
            options=options,
            on_event=_tell,
            stop=stop,
            is_forced=is_forced,
            has_root=(etc / "trust_root").exists(),
        ),
        stop,
    )
    if pulled is None:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    if not is_plan:
        _remember(record_path, pulled.record)
    return _told(pulled, as_json=as_json)


def _give_up_root(root: Path) -> None:
    if root == Path("/") and os.geteuid() == 0:
        become(_USER)


def _unless_stopped(work: Callable[[], Pulled], stop: threading.Event) -> Pulled | None:
    """Return what `work` returns; None, soon, after a SIGINT or SIGTERM, whatever a registry lets us wait for."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    future = in_background(work)
    while not stop.is_set():
        with suppress(concurrent.futures.TimeoutError):
            return future.result(timeout=_STEP_S)
    return None


def _login(etc: Path) -> Login | None:
    """Return the login that systemd gives; to a person with sudo, that of which systemd would give a copy."""
    folder = Path(os.environ.get("CREDENTIALS_DIRECTORY") or etc / "credentials")
    # Not Path.exists(): only root may look into the folder, and other users have no login.
    return read_login(folder / "registry-login") if os.path.exists(folder / "registry-login") else None


def connector_of(root: Path) -> Callable[[], Channel]:
    if root == Path("/"):
        return lambda: connect_socket(_SOCKET)
    return lambda: ChildChannel([*_AGENT, "--root", str(root)])


def _remember(path: Path, record: PullRecord) -> None:
    try:
        write_record(path, record)
    except DeployError as error:  # what serves does not rest on it
        words = f"WARNING {path} cannot be written ({error.problem}); the next pull asks for all again\n"
        sys.stderr.write(words)


def _tell(event: Event) -> None:
    if event.event == NOTE:
        sys.stderr.write(f"{event.phase}: {event.hint}\n")


def _told(pulled: Pulled, *, as_json: bool) -> int:
    outcome = pulled.outcome
    if as_json:
        looked = {"looked_at": pulled.record.looked_at, "looked_age_s": age_s(pulled.record.looked_at)}
        write_stdout(json.dumps({**asdict(outcome), **looked}, default=str) + "\n")
    sys.stderr.write(sentence_of(pulled, outcome) + _looked(pulled.record) + "\n")
    return outcome.exit_code


def _looked(record: PullRecord) -> str:
    """Return when the registry last said what the ring has, where that is not just now."""
    ago_s = age_s(record.looked_at)
    if ago_s is None:
        return "; the registry has never said what the ring has"
    return "" if ago_s < _JUST_NOW_S else f"; what the ring has was said last at {record.looked_at}, {ago_s} s ago"


def sentence_of(pulled: Pulled, outcome: Outcome) -> str:
    release = outcome.release or "no release"
    if not pulled.is_asked:
        return f"{outcome.target}: left alone, as the registry has asked; --force asks all the same"
    if outcome.result == "kept":
        return f"{outcome.target}: {release} serves on: {outcome.problem}"
    if outcome.problem is not None:
        named = f"{outcome.release}: " if outcome.release else ""
        code, hint = f" ({outcome.code})" if outcome.code else "", f"; {outcome.hint}" if outcome.hint else ""
        return f"{outcome.target}: {outcome.result}, {named}{outcome.problem}{code}{hint}"
    if outcome.result == "unchanged" and pulled.record.result == "rolled-back":
        return f"{outcome.target}: still {release}, which was rolled back here: {pulled.record.problem}"
    return f"{outcome.target}: {outcome.result}, {release}"
