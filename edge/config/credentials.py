r"""Secrets by name: read from systemd's credentials or from files that only their owner can read; never logged.

A secret is one line, `user:password`; a colon in the user is written `\:`, as in `vhost\:user:password`.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

from edge.errors import ConfigError, LackingError

__all__ = [
    "NOT_A_NAME",
    "SECRET_NAME",
    "Credential",
    "configuration",
    "credential_from_line",
    "line_from_credential",
    "own_path",
    "read_credential",
]

# A login has a colon, which no name has: what does not match may be a secret, and is never told.
SECRET_NAME = r"^(?!\.)[^:/\x00-\x1f]{1,255}(?!\n)$"
NOT_A_NAME = (
    "expected the name of a secret, not the secret itself; write user:password to a file of that name "
    "(a text without ':' and '/', no dot first)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A user and a password; the password is not part of its `repr`."""

    user: str
    password: str = field(repr=False)


def read_credential(name: str) -> Credential:
    """Return the secret `name`, a file with one line `user:password`.

    It is looked for in `$CREDENTIALS_DIRECTORY` (systemd's LoadCredential=), then in
    `$XDG_CONFIG_HOME/edge-deploy/credentials` (by default under `~/.config`), where it must be closed to others.

    Raises `LackingError` if there is none, others can read it, or it is no `user:password`.
    """
    path = _find(name)
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise LackingError(f"credential {name!r}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LackingError(f"credential {name!r}: {path} is not UTF-8 text", hint="save it as UTF-8") from None
    return credential_from_line(text, where=f"credential {name!r}: {path}")


def credential_from_line(line: str, *, where: str) -> Credential:
    """Return what `line` holds, the content of `where`, which an error names instead of it.
    Raises `LackingError` if it is no `user:password`.
    """
    found = re.fullmatch(r"((?:[^:\\\n]|\\:|\\(?!:))*):(.*)", line)
    if found is None:
        raise LackingError(f"{where} has to hold one line, user:password; a colon in the user is written \\:")
    return Credential(user=found[1].replace("\\:", ":"), password=found[2])


def line_from_credential(credential: Credential, *, where: str) -> bytes:
    """Return the content of a file that `read_credential` reads as `credential`.
    Raises `ConfigError` if one line cannot hold it: blanks at an end, a line break, a backslash before a colon.
    """
    line = credential.user.replace(":", "\\:") + f":{credential.password}"
    if "\\:" in f"{credential.user}:" or line != line.strip() or not line.isprintable():
        raise ConfigError(
            f"{where}: expected no blanks at the ends, nothing unprintable, no backslash before a colon",
            hint="such a login cannot be kept as user:password; give the camera or the broker another one",
        )
    return f"{line}\n".encode()


def configuration() -> Path:
    """Return the user's folder for our settings: below $XDG_CONFIG_HOME where that is absolute, else ~/.config."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "edge-deploy"


def own_path(name: str) -> Path:
    """Return where the user's own secret `name` is kept, if it is there."""
    return configuration() / "credentials" / name


def _find(name: str) -> Path:
    if re.search(SECRET_NAME, name) is None:
        raise ConfigError(f"credential: {NOT_A_NAME}")
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder and (given := Path(folder) / name).is_file():
        return given
    own = own_path(name)
    if not own.is_file():
        raise LackingError(f"credential {name!r} is not here", hint=_how_to_keep(name, own))
    if stat.S_IMODE(own.stat().st_mode) & 0o077:
        raise LackingError(f"credential {name!r}: others can read {own}", hint=f"chmod 600 {shlex.quote(str(own))}")
    return own


def _how_to_keep(name: str, own: Path) -> str:
    if "NOTIFY_SOCKET" in os.environ:  # the service of a device: systemd hands it what provision has named
        return (
            f"on the device write user:password to /etc/edge-deploy/credentials/{name}, then run edge-deploy provision "
            "again (docs/first-device.md)"
        )
    return f"write user:password to {own} and chmod 600 it"
