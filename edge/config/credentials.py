"""Secrets by name: read from systemd's credentials or from files that only their owner can read; never logged."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge.errors import ConfigError

__all__ = ["Credential", "read_credential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A user and a password; the password is not part of its `repr`."""

    user: str
    password: str = field(repr=False)


def read_credential(name: str, *, environ: Mapping[str, str] = os.environ) -> Credential:
    """Return the secret `name`, a file with one line `user:password`.

    It is looked for in `$CREDENTIALS_DIRECTORY` (systemd's LoadCredential=), then in
    `$XDG_CONFIG_HOME/edge-deploy/credentials` (by default under `~/.config`), where it must be closed to others.

    Raises:
        ConfigError: if there is none, others can read it, or it is no `user:password`.
    """
    path = _find(name, environ)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"credential {name!r}: {path} cannot be read: {type(error).__name__}") from None
    user, colon, password = text.partition(":")
    if not colon or "\n" in text:
        raise ConfigError(f"credential {name!r}: {path} has to hold one line, user:password")
    return Credential(user=user, password=password)


def _find(name: str, environ: Mapping[str, str]) -> Path:
    if "/" in name or name.startswith("."):
        raise ConfigError(f"credential {name!r}: expected a name, not a path")
    given = Path(environ["CREDENTIALS_DIRECTORY"]) / name if "CREDENTIALS_DIRECTORY" in environ else None
    if given is not None and given.is_file():
        return given
    own = _config_home(environ) / "edge-deploy" / "credentials" / name
    if not own.is_file():
        raise ConfigError(f"credential {name!r} is not here", hint=f"write user:password to {own} and chmod 600 it")
    if stat.S_IMODE(own.stat().st_mode) & 0o077:
        raise ConfigError(f"credential {name!r}: others can read {own}", hint=f"chmod 600 {own}")
    return own


def _config_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
