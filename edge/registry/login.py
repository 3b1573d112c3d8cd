"""Who we are to a registry, and what a registry asks for: Basic, or a token of another place."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["Challenge", "Login", "read_challenge", "read_login"]

_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')
_MOST_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, or a token in its place; never part of a text that is shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"

    @property
    def header(self) -> str:
        """As `Authorization` has it (RFC 7617)."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Challenge:
    """What `WWW-Authenticate` asks for; `realm` is an URL where `is_bearer`."""

    is_bearer: bool
    realm: str = ""
    service: str = ""
    scope: str = ""

    @property
    def url(self) -> str:
        """Where the token is."""
        asked = {name: value for name, value in (("service", self.service), ("scope", self.scope)) if value}
        separator = "&" if "?" in self.realm else "?"
        return self.realm + (separator + urlencode(asked) if asked else "")


def read_challenge(header: str) -> Challenge | None:
    """Return what a registry asks for; None if it is neither Basic nor Bearer."""
    kind, _, rest = header.strip().partition(" ")
    if kind.lower() == "basic":
        return Challenge(is_bearer=False)
    if kind.lower() != "bearer":
        return None
    said = dict(_PARAMETER.findall(rest))
    return Challenge(True, said.get("realm", ""), said.get("service", ""), said.get("scope", ""))


def read_login(path: Path) -> Login:
    """Return the login in a file of one line, `user:password`.

    Raises:
        DeployError: `registry.login`, with what is wrong and never with what is in the file.
    """
    try:
        text = read_file(path, follows_links=True)[:_MOST_BYTES].decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_login(path, str(getattr(error, "strerror", "expected UTF-8"))) from None
    user, colon, password = text.partition(":")
    if not user or not colon or not password or not text.isprintable():
        raise _no_login(path, "expected one line, user:password")
    return Login(user, password)


def _no_login(path: Path, what: str) -> DeployError:
    return DeployError(
        "registry.login", f"{path}: {what}", hint="write user:password into it; docs/registry.md says where it lies"
    )
