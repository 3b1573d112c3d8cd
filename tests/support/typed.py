"""Whether a command line of ours can be typed: by the real parsers, and without running anything."""

import argparse
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, suppress
from unittest import mock

import click

from edge.cli.edge_deploy import edge_deploy
from edge.cli.runtime_commands import edge_runtime
from edge.runtime.entry import COMMANDS

_PROGRAMS: dict[str, click.Group] = {"edge-deploy": edge_deploy, "edge-runtime": edge_runtime}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


class _ParsedError(Exception):
    """The light parser is done; what it would have been used for is not."""


def refusal(call: Sequence[str]) -> str | None:
    """Return what the parser of a whole line says against it, None if nothing; files need not be there."""
    try:
        command, context, rest = _find(call)
        if call[0] == "edge-runtime" and command.name in COMMANDS:
            _parse_light(str(command.name), rest)
        elif not isinstance(command, click.Group) and not {"-h", "--help"} & set(rest):
            _parse(command, context, rest)
    except click.UsageError as error:
        return error.format_message()
    return None


def refusal_of_options(call: Sequence[str]) -> str | None:
    """Return which command or option of a line does not exist, None if all do; it may break off, or have `...`."""
    try:
        command, _, rest = _find(call)
    except click.UsageError as error:
        return error.format_message()
    strange = set(OPTION.findall(" ".join(rest))) - set(options_of(command)) - {"--help"}
    return f"no such option: {sorted(strange)}" if strange else None


def options_of(command: click.Command) -> Iterator[str]:
    """Yield the long options of a command."""
    if command.name in COMMANDS and command in _commands(edge_runtime):
        yield from _options_of_light(str(command.name))
    for parameter in command.params:
        yield from (name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--"))


def all_commands() -> list[click.Command]:
    return [command for program in _PROGRAMS.values() for command in (program, *_commands(program))]


def all_options() -> set[str]:
    """Return the long options of all commands."""
    return {"--help", *(option for command in all_commands() for option in options_of(command))}


def _commands(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from _commands(command)


def _find(call: Sequence[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command that a line names, and the words behind it."""
    command: click.Command = _PROGRAMS[call[0]]
    context, rest = click.Context(command, info_name=call[0]), list(call[1:])
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(rest)
        if not rest:
            break
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=found.name)
    return command, context, rest


def _parse(command: click.Command, context: click.Context, rest: list[str]) -> None:
    values, left, order = command.make_parser(context).parse_args(list(rest))
    is_answered_at_once = any(one.is_eager and not getattr(one, "count", False) for one in order)
    for parameter in command.params:
        value = values.get(str(parameter.name))
        is_given = isinstance(value, (str, int, list, tuple)) and value not in ((), [])  # or it is click's "not given"
        if parameter.required and not is_given and not is_answered_at_once:
            raise click.MissingParameter(ctx=context, param=parameter)
        if is_given and not isinstance(parameter.type, click.Path):
            parameter.type_cast_value(context, value)
    if left:
        raise click.UsageError(f"unexpected: {left}", context)


def _parse_light(name: str, rest: list[str]) -> None:
    told = io.StringIO()

    def only_parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
        _, left = parser.parse_known_args(arguments)
        if left:
            raise click.UsageError(f"unexpected: {left}")
        raise _ParsedError

    try:
        patched = mock.patch.object(argparse.ArgumentParser, "parse_args", only_parse)
        with patched, redirect_stderr(told), suppress(_ParsedError):
            COMMANDS[name][1](rest)
    except SystemExit:
        raise click.UsageError(told.getvalue()) from None


def _options_of_light(name: str) -> list[str]:
    found: list[str] = []

    def look(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
        found.extend(OPTION.findall(parser.format_usage()))
        raise _ParsedError

    with mock.patch.object(argparse.ArgumentParser, "parse_args", look), suppress(_ParsedError):
        COMMANDS[name][1]([])
    return found
