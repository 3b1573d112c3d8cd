"""A click group that imports a command only when it is run, so that `--help` answers at once."""

from __future__ import annotations

import importlib
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    _Handler = logging.StreamHandler[TextIO]
else:
    _Handler = logging.StreamHandler  # not generic before Python 3.11

__all__ = ["LazyCommand", "LazyGroup", "verbosity_option"]


_VERBOSITY = "edge.cli.verbosity"


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, and its one line of help."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """`commands` by name, in the order in which a user meets them."""

    def __init__(self, *args: object, lazy: dict[str, LazyCommand], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in order."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        found = self._lazy.get(cmd_name)
        if found is None:
            return None
        command = getattr(importlib.import_module(found.module), found.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{found.module}.{found.attribute} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self._lazy.items()])


class _StderrHandler(_Handler):
    """Writes to what `sys.stderr` is at that moment: a bar that is shown lets lines stand above it, not in it."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """Take no other one."""


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: int) -> None:
    value = ctx.meta[_VERBOSITY] = max(value, ctx.meta.get(_VERBOSITY, 0))  # before the subcommand it counts, too
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(value, 2)]
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", handlers=[_StderrHandler()])
    logging.getLogger("edge").setLevel(level)


verbosity_option = click.option(
    "-v",
    "--verbose",
    count=True,
    expose_value=False,
    is_eager=True,
    callback=_set_verbosity,
    help="Log more; -vv with tracebacks.",
)
