"""What the pages print is there: links, anchors, commands, options, targets of make; and the pages that code names."""

import argparse
import ast
import functools
import importlib.util
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from unittest import mock

import click
import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.runtime_commands import edge_runtime
from edge.runtime.entry import COMMANDS
from edge.types import DropReason
from tests.support.pages import ROOT, Page, our_calls, pages, read_page

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


PAGES = pages()
INDEX = read_page("docs/README.md")
# Of all top-level pages, docs and decision records, without the bars of tables. It sinks; what raises it is named.
MAX_WORDS = 28_000
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
# Options of other people's programs that are named in a sentence.
OF_OTHERS = {
    "CONTRIBUTING.md": {"--shuffle", "--rooms", "--sample", "--seed"},
    "docs/container.md": {"--platform", "--runtime", "--group-add", "--privileged", "--time", "--no-deps"},
    "docs/models.md": {"--include", "--dynamic", "--grid", "--output-name", "--end2end"},
    "docs/engines.md": {"--system-site-packages"},
    "docs/subscribers.md": {"--cafile"},
    "edge/demo/model/README.md": {"--minutes"},
}


# What follows the name of a program in a sentence, and is no command of it.
SENTENCES = {"again", "anew", "detections", "is", "may", "needs", "on", "pipeline", "that"}


@dataclass(frozen=True)
class Text:
    """A text of the product, with `…` for what is put in; `is_prose`: a docstring, which may be a command's help."""

    where: str
    text: str
    is_prose: bool


@functools.cache
def texts() -> list[Text]:
    return list(texts_of_the_code())


def texts_of_the_code() -> Iterator[Text]:
    for path in sorted((ROOT / "edge").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        prose = {id(one.value) for one in nodes if isinstance(one, ast.Expr)}
        for node in nodes:
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield Text(where, re.sub(r"%[.\d]*[a-z]", "…", node.value), id(node) in prose)
            elif isinstance(node, ast.JoinedStr):
                parts = [str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values]
                yield Text(where, "".join(parts), False)


def test_every_link_leads_to_a_file_and_a_heading_that_is_there():
    assert [told for page in PAGES for told in wrong_links(page)] == []


def wrong_links(page: Page) -> Iterator[str]:
    for link in page.links:
        path, _, anchor = link.partition("#")
        target = (ROOT / page.name).parent / path if path else ROOT / page.name
        if not target.exists():
            yield f"{page.name}: {link}"
        elif anchor:
            other = Page(target.name, target.read_text(encoding="utf-8"))
            if anchor not in other.anchors:
                yield f"{page.name}: {link}; there are {sorted(other.anchors)}"


def test_the_pages_together_stay_short():
    texts = [
        path.read_text(encoding="utf-8")
        for folder in (".", "docs", "docs/adr")
        for path in (ROOT / folder).glob("*.md")
    ]

    assert len(re.findall(r"\S*\w\S*", " ".join(texts))) <= MAX_WORDS


def test_every_page_is_reached_from_the_index():
    folder = ROOT / "docs"
    listed = {(folder / link.partition("#")[0]).resolve() for link in INDEX.links}

    assert listed >= {path.resolve() for path in folder.glob("*.md")} - {(folder / "README.md").resolve()}
    assert "docs/README.md" in read_page("README.md").links


@pytest.mark.promised(reason="pages name what is there")
def test_every_page_that_the_code_names_is_there():
    pattern = re.compile(r"[\w/.-]*[\w-]+\.md(?:#[\w-]+)?")
    named = [(text.where, found) for text in texts() for found in pattern.findall(text.text)]

    assert len(named) >= 15
    for where, found in named:
        path, _, anchor = found.partition("#")
        assert (ROOT / path).exists(), f"{where} names {found}; give the path from the root of the checkout"
        assert not anchor or anchor in read_page(path).anchors, f"{where} names {found}"


def test_the_page_on_operating_explains_every_reason_to_drop_a_frame():
    _, _, section = read_page("docs/operating.md").text.partition("### Dropped frames")
    explained = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)))

    assert sorted(explained) == sorted(reason.value for reason in DropReason)


def test_every_command_that_is_printed_can_be_typed():
    calls = [(command, call) for page in PAGES for command in page.commands for call in our_calls(command.typed)]
    refused = [f"{command}\n{said}" for command, call in calls if (said := refusal(call)) is not None]
    assert refused == []


def test_every_command_and_option_in_a_sentence_is_there():
    assert [told for page in PAGES for told in wrong_spans(page)] == []


def wrong_spans(page: Page) -> Iterator[str]:
    known = all_options() | OF_OTHERS.get(page.name, set())
    for span in page.spans:
        calls = our_calls(span) if span.startswith(("edge-deploy ", "edge-runtime ")) else []
        refused = [said for call in calls if (said := refusal_of_options(call))]
        strange = set() if calls or span.startswith("make ") else set(OPTION.findall(span)) - known
        if refused or strange:
            yield f"{page.name}: {span}: {refused}, {strange}"


def test_every_target_of_make_and_every_module_that_is_named_is_there():
    typed = [(page.name, one) for page in PAGES for one in (*page.spans, *(command.typed for command in page.commands))]
    wrong = [
        f"{name}: {text}"
        for name, text in typed
        if not set(re.findall(r"\bmake ([a-z0-9-]+)", text)) <= TARGETS
        or not all(map(importlib.util.find_spec, re.findall(r"python3? -m ((?:tests|tools|edge)[\w.]*)", text)))
    ]
    assert wrong == []


def test_every_example_of_the_help_can_be_typed():
    helps = [(text.where, text.text) for text in texts()] + [
        (str(one.name), one.epilog or "") for one in all_commands()
    ]
    shown = [(where, text.partition("Examples:\n")[2].partition("\n\n")[0]) for where, text in helps]
    examples = [
        (where, call) for where, part in shown for line in part.splitlines() for call in our_calls(line.strip())
    ]

    assert len(examples) > 50
    bare = [
        one.name
        for one in all_commands()
        if not isinstance(one, click.Group) and one.name not in (one.epilog or "").partition("Examples:\n")[2].split()
    ]
    assert set(bare) <= set(COMMANDS), "a command shows how it is typed; the light ones by their own parser"
    for where, call in examples:
        assert refusal(call) is None, f"{where}: {call}: {refusal(call)}"


def test_every_command_that_a_message_tells_to_run_is_there():
    pattern = re.compile(r"\b(edge-deploy|edge-runtime) ([a-z][\w-]*)([^`;,)\n]*)")
    said = [text for text in texts() if not text.is_prose]
    named = [(text.where, found) for text in said for found in pattern.findall(text.text) if found[1] not in SENTENCES]

    assert len(named) > 100
    for where, (program, command, rest) in named:
        call = [program, command, *rest.split()]
        assert refusal_of_options(call) is None, f"{where}: {call}: {refusal_of_options(call)}"


def test_the_headings_of_the_troubleshooting_page_are_messages_of_the_product():
    headings = [one.strip("`") for one in read_page("docs/troubleshooting.md").headings if one.startswith("`")]
    logged = re.findall(r"^\| `[\w-]+` \| (.+?) \|", read_page("docs/log-events.md").text, re.MULTILINE)
    said = [*(text.text for text in texts() if not text.is_prose), *logged]

    assert len(headings) >= 25
    for heading in headings:
        words = [re.escape(part) for part in heading.split("…") if part]
        assert max(len(part) for part in words) >= 8, f"{heading}: too little to be found by"
        assert any(re.search(".*".join(words), text, re.DOTALL) for text in said), f"{heading} is no message any more"
