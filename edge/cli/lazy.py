"""A click group that imports a command only when it is run, so that `--help` answers at once."""

from __future__ import annotations

import difflib
import importlib
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    _Handler = logging.StreamHandler[TextIO]
else:
    _Handler = logging.StreamHandler  # not generic before Python 3.11

__all__ = ["HintingGroup", "LazyCommand", "LazyGroup", "verbosity_option"]


_VERBOSITY = "edge.cli.verbosity"


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, and its one line of help."""

    module: str
    attribute: str
    summary: str

    def load(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(self.module), self.attribute)
        return command


class HintingGroup(click.Group):
    """Where there is no command of a name, the similar one is named: click itself does not before 8.2."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command and its arguments; click.UsageError with similar names if there is none of that name."""
        name = args[0]
        if name in self.list_commands(ctx) or name.startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"there is no command {name!r}; {self.hint(ctx, name)}", ctx)

    def hint(self, ctx: click.Context, name: str) -> str:
        near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
        return f"did you mean: {ctx.command_path} {near[0]}" if near else f"see {ctx.command_path} --help"


class LazyGroup(HintingGroup):
    """`lazy`: commands by name, in the order in which a user meets them; `other`: the other program, by its name."""

    def __init__(self, *args: object, lazy: dict[str, LazyCommand], other: LazyCommand, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._lazy = lazy
        self._other = other

    def invoke(self, ctx: click.Context) -> object:
        """As any, but a closed pipe stays to be told from others: click would end with 1, without its error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise SystemExit(1) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._lazy.get(cmd_name)
        return None if found is None else found.load()

    def hint(self, ctx: click.Context, name: str) -> str:
        """Return the other program or the group of commands that has the very command, else what is similar here."""
        try:
            other = self._other.load()
        except ImportError:  # the workstation's does not travel to devices
            return super().hint(ctx, name)
        if isinstance(other, click.Group) and name in other.list_commands(ctx):
            return f"did you mean: {self._other.summary} {name}"
        for own in self._lazy:
            group = self.get_command(ctx, own)
            if isinstance(group, click.Group) and name in group.list_commands(ctx):
                return f"did you mean: {ctx.command_path} {own} {name}"
        return super().hint(ctx, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer them without importing them."""
        begun = [(name, command.summary) for name, command in self._lazy.items() if name.startswith(incomplete)]
        named = [CompletionItem(name, help=summary) for name, summary in begun]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


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
