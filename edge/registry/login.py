"""A login to a registry, and what a registry asks for: Basic, or a token of another place."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from edge.errors import DeployError
from edge.reading import read_file

__all__ = ["Challenge", "Login", "host_of", "read_challenge", "read_login"]

_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')
_LOGIN = re.compile(r"([^:\n]+):([^\n]+?)(?:\r?\n\s*realm=([A-Za-z0-9.:\[\]-]+))?")
_MOST_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, or a token, never shown; `realm`: host of its tokens, None: the registry's own."""

    user: str
    password: str
    realm: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"

    @property
    def header(self) -> str:
        """As `Authorization` has it (RFC 7617)."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def header_for(self, url: str, registry: str) -> str:
        """Return the same for where the registry says that its tokens are.

        DeployError `registry.login` if the login was not stored for that place: a registry may name any.
        """
        asked = urlsplit(url)
        own = urlsplit(f"//{registry}").hostname
        if asked.hostname != own if self.realm is None else host_of(asked.netloc) != host_of(self.realm):
            raise DeployError(
                "registry.login",
                f"{registry} wants its login sent to {asked.netloc}, and it was stored for {self.realm or own}",
                hint=f"if that is right, have the login in a file whose second line is realm={asked.netloc}",
            )
        return self.header


@dataclass(frozen=True, slots=True)
class Challenge:
    """The demand of `WWW-Authenticate`; `realm` is an URL where `is_bearer`."""

    is_bearer: bool
    realm: str = ""
    service: str = ""
    scope: str = ""

    @property
    def url(self) -> str:
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


def host_of(netloc: str) -> str:
    """Return a host as two that are the same are written alike: its port where that is not 443."""
    return netloc.lower().removesuffix(":443")


def read_login(path: Path) -> Login:
    """Return the login in a file of one line, `user:password`, or two: `realm=HOST` says who gives tokens for it.

    DeployError `registry.login`, with what is wrong and never with what is in the file.
    """
    try:
        text = read_file(path, follows_links=True)[:_MOST_BYTES].decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_login(path, str(getattr(error, "strerror", "expected UTF-8"))) from None
    match = _LOGIN.fullmatch(text)
    if match is None or not match[1].isprintable() or not match[2].isprintable():
        raise _no_login(path, "expected one line, user:password, and perhaps another one, realm=HOST")
    return Login(*match.groups())


def _no_login(path: Path, what: str) -> DeployError:
    where = path if ":" not in str(path) or os.path.lexists(path) else "not shown, as it may be a login"
    return DeployError(
        "registry.login", f"{where}: {what}", hint="write user:password into it; docs/fleet.md says where it lies"
    )
