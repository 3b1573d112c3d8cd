"""Passwords for sudo: who wants one is found out side by side, a person is asked target by target."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from edge.errors import DeployError

if TYPE_CHECKING:
    from edge.deploy.provision.admin import AdminShell

__all__ = ["sudo_passwords"]

_AT_ONCE = 16


def sudo_passwords(shells: Mapping[str, AdminShell]) -> dict[str, str | DeployError | None]:
    """Return what sudo takes on each target, by its name: None where it asks nobody, the error where it failed.

    Targets that cannot be reached are waited for together, not one after the other.
    """
    passwords = _Passwords()

    def password(name: str, found: DeployError | bool) -> str | DeployError | None:
        return passwords.known(shells[name], name) if found is True else found or None

    with ThreadPoolExecutor(min(_AT_ONCE, len(shells) or 1)) as pool:
        wants = dict(zip(shells, pool.map(_wants, shells.values()), strict=True))
    return {name: password(name, found) for name, found in wants.items()}


def _wants(shell: AdminShell) -> DeployError | bool:
    try:
        return shell.wants_password()
    except DeployError as error:
        return error


class _Passwords:
    """Each target has its own password: what was typed for one goes to another only if the person says so."""

    def __init__(self) -> None:
        self._before: str | None = None

    def known(self, shell: AdminShell, name: str) -> str | DeployError:
        """Return the password that sudo takes on the target `name`, which wants one, or why there is none."""
        try:
            self._before = shell.ask_password(lambda is_again: self._ask(name, is_again=is_again))
        except DeployError as error:
            return error
        return self._before

    def _ask(self, name: str, *, is_again: bool) -> str:
        is_offered = self._before is not None and not is_again
        question = f"sudo on {name} does not take it. Once more" if is_again else f"Password for sudo on {name}"
        typed: str = click.prompt(
            question + (" (Enter: the same as before)" if is_offered else ""),
            hide_input=True,
            err=True,
            default=self._before if is_offered else None,
            show_default=False,
        )
        return typed
