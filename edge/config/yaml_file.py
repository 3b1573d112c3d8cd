"""A YAML file whose every value remembers its line. The only module that imports yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from edge.document import Document, Location, spell
from edge.errors import ConfigError
from edge.mistaken import mistaken
from edge.reading import read_file

__all__ = ["read_yaml", "scalar_text", "yaml_text"]

_MAX_VALUES = 20_000  # a pipeline of a thousand streams has fewer; aliases of aliases soon have billions
_MAX_DEPTH = 12
_MERGE = "tag:yaml.org,2002:merge"
# YAML 1.1 takes 010 for eight, and 1:30 for ninety.
_MISREAD = re.compile(r"[-+]?(0[0-7_]*[0-7]|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
# Before a key or behind it, as text from a web page has them; within a text they are its own.
_ODD_BLANK = re.compile(r"(?m)^[ \t-]*(\w+:)?[\u00a0\u202f]")


def read_yaml(path: Path, *, kind: str = "a pipeline file") -> Document[ConfigError]:
    """Take plain scalars, lists and mappings only, and no key twice; `kind` of file is expected, for errors.
    Raises `ConfigError` if it is unreadable or is no such YAML.
    """
    try:
        content = read_file(path, follows_links=True)
        if (found := mistaken(content)) is not None:
            raise ConfigError(f"{path}: expected {kind} (YAML), this is {found.what}", hint=found.todo)
        text = content.decode("utf-8")
        if (blank := _ODD_BLANK.search(text)) is not None:
            line = text.count("\n", 0, blank.end()) + 1
            raise ConfigError(f"{path}:{line}: a non-breaking space where YAML takes plain ones only; type it anew")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint=f"give the path of {kind}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        hint = "YAML takes no tabs here: write blanks" if "'\\t'" in (error.problem or "") else None
        raise ConfigError(f"{path}:{mark.line + 1 if mark else 1}: not YAML: {error.problem}", hint=hint) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply for {kind}") from None
    if root is None:
        raise ConfigError(f"{path}: is empty", hint="see pipelines/reference.yaml")
    reader = _Reader(path, kind)
    return Document(path=path, content=reader.plain(root, ()), lines=reader.lines, misfit=ConfigError)


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return `content`, plain values as a document has them, as YAML that `read_yaml` reads back, keys in order."""
    text: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)
    return text


def scalar_text(value: str) -> str:
    """Return a text as it is written behind a key, in one line, with quotes where YAML wants them."""
    style = None if value.isprintable() else '"'
    text: str = yaml.safe_dump(value, default_style=style, allow_unicode=True, width=float("inf"))
    return text.removesuffix("...\n").rstrip("\n")


class _Reader:
    """Turns nodes into plain values, and remembers their lines. Aliases are values like others, but not without end."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._kind = kind
        self.lines: dict[Location, int] = {}

    def plain(self, node: yaml.Node, here: Location) -> Any:
        line = node.start_mark.line + 1
        if len(here) > _MAX_DEPTH or len(self.lines) > _MAX_VALUES:
            raise ConfigError(
                f"{self._path}:{line}: more than {_MAX_VALUES} values or {_MAX_DEPTH} levels; this is not {self._kind}"
            )
        self.lines[here] = line
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, here)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item, (*here, index)) for index, item in enumerate(node.value)]
        try:
            value = yaml.SafeLoader("").construct_object(node)
            if isinstance(value, int | float) and _MISREAD.fullmatch(node.value):
                raise ConfigError(
                    f"{self._path}:{line}: {spell(here)}got {node.value}, which YAML takes for {value}; "
                    "write the number as it is meant, or quote a text"
                )
            return value
        except (yaml.YAMLError, ValueError, LookupError, AttributeError):  # the latter of what a tag like !!bool says
            raise ConfigError(f"{self._path}:{line}: {spell(here)}cannot read {node.value!r}; quote it") from None

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE:
                merged = {**self._merged(value_node, location), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self._path}:{line}: {spell(location)}a key has to be plain text")
            here = (*location, key_node.value)
            if key_node.value in values:
                raise ConfigError(
                    f"{self._path}:{line}: {spell(here)}given twice, first in line {self.lines[here]}; keep one"
                )
            values[key_node.value] = self.plain(value_node, here)
            self.lines[here] = line
        return {**merged, **values}

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        """Return what `<<` takes over from other mappings: keys that stand beside it go before them."""
        found = self.plain(node, (*location, "<<"))
        parts = found if isinstance(found, list) else [found]
        if not all(isinstance(part, dict) for part in parts):
            line = node.start_mark.line + 1
            raise ConfigError(f"{self._path}:{line}: {spell(location)}expected keys with values behind '<<'")
        return {key: value for part in reversed(parts) for key, value in part.items()}
