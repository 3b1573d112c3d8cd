"""A TOML file whose tables and keys remember their lines. The only module that imports tomli."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge.document import Document, Location
from edge.errors import ConfigError
from edge.mistaken import mistaken
from edge.reading import read_file

__all__ = ["read_toml"]

_MAX_BYTES = 4 * 1024 * 1024  # ten thousand targets
_TABLE = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<key>[^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*(?P<key>[A-Za-z0-9_.\- "']+?)\s*=""")


def read_toml(path: Path) -> Document[ConfigError]:
    """Return the TOML in `path`.

    Raises:
        ConfigError: if it is unreadable or is no TOML.
    """
    text = _text(path)
    return Document(path=path, content=_parse(text, path), lines=dict(_lines(text)), misfit=ConfigError)


def _text(path: Path) -> str:
    try:
        content = read_file(path, most_bytes=_MAX_BYTES, follows_links=True)
        if (found := mistaken(content)) is not None:
            raise ConfigError(f"{path}: expected an inventory (TOML), this is {found.what}", hint=found.todo)
        return content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="see docs/targets.md") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _parse(text: str, path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        line = int(place.group(1)) if place else text.count("\n") + 1
        problem = str(error)[: place.start()] if place else str(error).removesuffix(" (at end of document)")
        raise ConfigError(f"{path}:{line}: not TOML: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply") from None
    return content


def _lines(text: str) -> Iterator[tuple[Location, int]]:
    """Yield where each table and each key of a table begins; keys of inline tables are found at their table's line.

    The parser tells no lines. The text is known to be TOML, so its lines can be read one by one; a line inside of a
    text of several lines is left out.
    """
    yield (), 1
    tables: dict[Location, int] = defaultdict(int)
    here: Location = ()
    quote = ""
    for number, line in enumerate(text.splitlines(), start=1):
        was_inside, quote = quote, _open_quote(line, quote)
        table = _TABLE.match(line)
        if was_inside:
            continue
        if table is not None:
            here = _steps(table["key"])
            if table["array"]:
                tables[here] += 1
                yield here, number
                here = (*here, tables[here] - 1)
            yield here, number
        elif (key := _KEY.match(line)) is not None:
            yield (*here, *_steps(key["key"])), number


def _open_quote(line: str, quote: str) -> str:
    """Return the mark of the text of several lines that is open after `line`, where `quote` was open before it."""
    for mark in re.findall(r'"""|\'\'\'', line):
        quote = "" if quote == mark else quote or mark
    return quote


def _steps(key: str) -> Location:
    return tuple(step.strip().strip("\"'") for step in key.split("."))
