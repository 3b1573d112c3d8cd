"""The login that docker or podman keep for a registry, in files that either of them has written."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.registry.login import Login
from edge.registry.reference import Reference

__all__ = ["kept_login"]

_HELPER_S = 60.0  # it may ask a person
_NONE_KEPT = b"credentials not found"


def kept_login(reference: Reference) -> Login | None:
    """Return the login for a repository from the first file that has one; None where none has.

    Each file's own helpers are asked (`credHelpers`, `credsStore`); a key may name a part of a registry (podman).
    DeployError `registry.login`, for a file or a helper that is not what it should be; never with a secret.
    """
    for path in _kept_in():
        if path.exists():
            found = _login_of(path, reference)
            if found is not None:
                return found
    return None


def _login_of(path: Path, reference: Reference) -> Login | None:
    try:
        told = json_object(read_file(path, follows_links=True))
    except (OSError, ValueError) as error:
        raise _unfit(path, str(getattr(error, "strerror", None) or "it is no JSON object")) from None
    auths, helpers = (told.get(name) or {} for name in ("auths", "credHelpers"))
    if not isinstance(auths, dict) or not isinstance(helpers, dict):
        raise _unfit(path, "expected objects under auths and credHelpers")
    keys = list(_keys(reference))
    for key in keys:
        if isinstance(auths.get(key), dict) and auths[key].get("auth"):
            return _decoded(path, auths[key]["auth"])
    for key in keys:
        if key in helpers:
            return _asked(path, helpers[key], key, is_needed=True)
    store = told.get("credsStore")
    return None if not store else _asked(path, store, reference.host, is_needed=any(key in auths for key in keys))


def _keys(reference: Reference) -> Iterator[str]:
    """Yield the names under which a login may be kept, the nearest first."""
    parts = [reference.host, *reference.repository.split("/")]
    for count in range(len(parts), 0, -1):
        yield "/".join(parts[:count])
    yield from (f"https://{reference.host}{rest}" for rest in ("", "/", "/v2/", "/v1/"))


def _decoded(path: Path, auth: Any) -> Login:
    try:
        user, colon, password = base64.b64decode(auth, validate=True).decode("utf-8").partition(":")
    except (ValueError, TypeError):
        user, colon, password = "", "", ""
    if not user or not colon or not password:
        raise _unfit(path, "the login that it keeps for this registry is not user:password in base64")
    return Login(user, password)


def _asked(path: Path, suffix: Any, host: str, *, is_needed: bool) -> Login | None:
    """Return what a helper knows of `host`; `is_needed`: the file says that it knows something."""
    program = f"docker-credential-{suffix}"
    try:
        done = subprocess.run(
            [program, "get"], input=host.encode(), capture_output=True, timeout=_HELPER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _unfit(path, f"{program} has not answered within {_HELPER_S:.0f} s") from None
    except (OSError, ValueError) as error:
        if not is_needed:
            return None
        raise _unfit(path, f"{program}: {getattr(error, 'strerror', None) or error}") from None
    if done.returncode != 0:
        if not is_needed or _NONE_KEPT in done.stdout + done.stderr:
            return None
        raise _unfit(path, f"{program} has failed ({done.returncode})")
    try:
        told = json_object(done.stdout)
    except ValueError:
        told = {}
    user, secret = told.get("Username"), told.get("Secret")
    if not isinstance(user, str) or not isinstance(secret, str) or not user or not secret or user == "<token>":
        raise _unfit(path, f"{program} gives no user and password")
    return Login(user, secret)


def _kept_in() -> Iterator[Path]:
    """Yield where docker and podman keep logins, in the order in which podman looks; empty counts as not set."""
    home = Path.home()
    if file := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(file)
    if folder := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(folder) / "containers/auth.json"
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json"
    yield Path(os.environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _unfit(path: Path, what: str) -> DeployError:
    return DeployError("registry.login", f"{path}: {what}", hint="log in once more, or give --login FILE")
