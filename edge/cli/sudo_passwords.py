"""Passwords for sudo, asked of a person target by target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edge.deploy.provision.admin import AdminShell

__all__ = ["SudoPasswords"]


class SudoPasswords:
    """Each target has its own password: what was typed for one goes to another only if the person says so."""

    def __init__(self) -> None:
        self._before: str | None = None

    def of(self, shell: AdminShell, name: str) -> str | None:
        """Return the password that sudo takes on the target `name`; None: it asks nobody there.

        Raises:
            DeployError: as `AdminShell.ask_password`.
        """
        password = shell.ask_password(lambda is_again: self._ask(name, is_again=is_again))
        self._before = password or self._before
        return password

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
