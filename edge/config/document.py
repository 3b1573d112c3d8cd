"""A YAML file whose every value remembers its line. The only module that imports yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edge.errors import ConfigError

__all__ = ["Document", "Location", "read_document"]

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Plain values of a YAML file, and the line of each."""

    path: Path
    content: Any
    lines: dict[Location, int]

    def at(self, location: Location) -> Any:
        """Return the value at `location`, which has to be in the file."""
        value = self.content
        for step in location:
            value = value[step]
        return value

    def error(self, location: Location, problem: str) -> ConfigError:
        """Return an error that points at `location`, or at its nearest parent that stands in the file."""
        known = location
        while known not in self.lines:
            known = known[:-1]
        return ConfigError(f"{self.path}:{self.lines[known]}: {_spell(location)}{problem}")


def read_document(path: Path) -> Document:
    """Return the YAML in `path`; only plain scalars, lists and mappings, and no key twice.

    Raises:
        ConfigError: if it is unreadable or is no such YAML.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}", hint="give the path of a pipeline file"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(f"{path}:{mark.line + 1 if mark else 1}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
    if root is None:
        raise ConfigError(f"{path}: is empty", hint="see pipelines/reference.yaml")
    lines: dict[Location, int] = {}
    return Document(path=path, content=_plain(root, (), lines, path), lines=lines)


def _plain(node: yaml.Node, location: Location, lines: dict[Location, int], path: Path) -> Any:
    lines[location] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, location, lines, path)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*location, index), lines, path) for index, item in enumerate(node.value)]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"{path}:{lines[location]}: {_spell(location)}cannot read {node.value!r}; quote it") from None


def _mapping(node: yaml.MappingNode, location: Location, lines: dict[Location, int], path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        here = (*location, key)
        if key in values:
            raise ConfigError(
                f"{path}:{key_node.start_mark.line + 1}: {_spell(here)}"
                f"given twice, first in line {lines[here]}; keep one"
            )
        values[key] = _plain(value_node, here, lines, path)
        lines[here] = key_node.start_mark.line + 1
    return values


def _spell(location: Location) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
    return f"{text}: " if text else ""
