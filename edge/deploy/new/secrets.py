"""The logins of cameras and of the broker: where they come from, and by which names they are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge.config.credentials import Credential, line_from_credential, own_path, read_credential
from edge.errors import ConfigError

__all__ = ["Ask", "Secrets"]

Ask = Callable[[str], "Credential | None"]
"""Asks a person, or whoever stands in for one, for the login of what the argument names; None: there is none."""


class Secrets:
    """What is kept already, and what is to be kept at the end; a secret that is there keeps what it holds.

    Args:
        replaces: unless it may be replaced.
        environ: where the user's configuration is found.
    """

    def __init__(self, *, replaces: bool, environ: Mapping[str, str]) -> None:
        self._replaces = replaces
        self._environ = environ
        self._used: dict[str, Credential] = {}
        self.new: dict[str, Credential] = {}

    def stated(self, name: str) -> Credential:
        """Return the secret that somebody has named.

        Raises:
            ConfigError: if it is not there, or cannot be used.
        """
        return read_credential(name, environ=self._environ)

    def kept(self, name: str) -> Credential | None:
        """Return the secret `name`; None where there is none.

        Raises:
            ConfigError: if it is there and cannot be used.
        """
        try:
            return read_credential(name, environ=self._environ)
        except ConfigError:
            if own_path(name, environ=self._environ).exists():
                raise
            return None

    def use(self, login: Credential, *, wanted: str) -> str:
        """Return the name by which `login` is kept: `wanted`, with a number where that is another login's.

        Raises:
            ConfigError: if it cannot be kept.
        """
        line_from_credential(login, where=f"the login of {wanted}")
        number = 1
        while True:
            name = wanted if number == 1 else f"{wanted}-{number}"
            before = self._used.get(name) or self.kept(name)
            is_free = before is None or (self._replaces and name not in self._used)
            if before == login or is_free:
                break
            number += 1
        self._used[name] = login
        if before != login:
            self.new[name] = login
        return name
