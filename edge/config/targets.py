"""The targets of a site: the inventory file `targets.toml`, strictly read. docs/fleet.md explains its keys."""

from __future__ import annotations

import math
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from edge.config.convert import convert
from edge.config.credentials import configuration
from edge.config.schema import Host, Port, Strict, TopicLevel
from edge.document import Document, Location
from edge.errors import ConfigError
from edge.mistaken import mistaken
from edge.reading import read_file

__all__ = [
    "ALL",
    "DEFAULT_MAX_PARALLEL",
    "Inventory",
    "Part",
    "Target",
    "Wave",
    "find_inventory",
    "is_more_than",
    "load_inventory",
    "part_of",
]

_MAX_BYTES = 4 * 1024 * 1024  # ten thousand targets
_TABLE = re.compile(r"\s*\[(?P<array>\[)?\s*(?P<key>[^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*(?P<key>[A-Za-z0-9_.\- "']+?)\s*=""")


def read_toml(path: Path) -> Document[ConfigError]:
    """Raise `ConfigError` if it is unreadable or is no TOML."""
    text = _text(path)
    return Document(path=path, content=_parse(text, path), lines=dict(_lines(text)), misfit=ConfigError)


def _text(path: Path) -> str:
    try:
        content = read_file(path, most_bytes=_MAX_BYTES, follows_links=True)
        if (found := mistaken(content)) is not None:
            raise ConfigError(f"{path}: expected an inventory (TOML), this is {found.what}", hint=found.todo)
        return content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="see docs/fleet.md") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None


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

    The parser tells no lines. The text is known to be TOML, so its lines can be read one by one; nothing that stands
    in an inventory has several.
    """
    yield (), 1
    tables: dict[Location, int] = defaultdict(int)
    here: Location = ()
    for number, line in enumerate(text.splitlines(), start=1):
        table = _TABLE.match(line)
        if table is not None:
            here = _steps(table["key"])
            if table["array"]:
                tables[here] += 1
                yield here, number
                here = (*here, tables[here] - 1)
            yield here, number
        elif (key := _KEY.match(line)) is not None:
            yield (*here, *_steps(key["key"])), number


def _steps(key: str) -> Location:
    return tuple(step.strip().strip("\"'") for step in key.split("."))


_SHARE = r"^(100|[0-9]{1,2}(\.[0-9]{1,2})?)%(?!\n)$"


Part = Annotated[int, msgspec.Meta(ge=0, le=10_000)] | Annotated[str, msgspec.Meta(pattern=_SHARE)]
"""So many of them, or a share of them, as it is written: `3`, `"10%"`."""


def part_of(part: Part, total: int) -> int:
    """Return how many of `total` it is, at most all; a share of some is at least one."""
    return min(total, math.ceil(_exact(part, total)))


def is_more_than(part: Part, count: int, total: int) -> bool:
    """Return whether `count` of `total` are more than this; nothing is rounded."""
    return count > _exact(part, total)


def _exact(part: Part, total: int) -> Fraction:
    return Fraction(part) if isinstance(part, int) else Fraction(part[:-1]) * total / 100


ALL = "all"
DEFAULT_MAX_PARALLEL = 16
_REFERENCE = "docs/fleet.md"

User = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}(?!\n)$")]
Compatible = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}(?!\n)$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device and how to reach it; what is None is as ssh and its configuration say, `user` as the command says."""

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    ssh_config: Path | None = None
    compatible: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Wave(Strict, frozen=True, kw_only=True):
    """The order of a rollout.

    canary: names of those that go first; None: the first target, or the next one where that cannot be reached.
    steps: how many of the others have been attempted after each wave, rising, the last one all of them.
    max_failed: the rollout stops when more of those attempted have failed; who was not reached is not counted.
    soak_s: how long the targets of a wave serve, seconds, before the next wave begins.
    """

    canary: tuple[str, ...] | None = None
    steps: Annotated[tuple[Part, ...], msgspec.Meta(min_length=1)] = ("10%", "100%")
    max_failed: Part = "5%"
    soak_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The targets by name, in the order of the file; `path` is None where there is no file."""

    path: Path | None = None
    targets: Mapping[str, Target] = field(default_factory=lambda: MappingProxyType({}))
    wave: Wave = field(default_factory=Wave)
    max_parallel: int = DEFAULT_MAX_PARALLEL


class _Reached(Strict, frozen=True, kw_only=True):
    user: User | None = None
    port: Port | None = None
    identity: str | None = None
    ssh_config: str | None = None
    compatible: Compatible | None = None


class _Defaults(_Reached, frozen=True, kw_only=True):
    max_parallel: Annotated[int, msgspec.Meta(ge=1, le=256)] = DEFAULT_MAX_PARALLEL


class _Target(_Reached, frozen=True, kw_only=True):
    name: TopicLevel
    host: Host
    labels: dict[TopicLevel, str] = msgspec.field(default_factory=dict)


class _File(Strict, frozen=True, kw_only=True):
    target: Annotated[list[_Target], msgspec.Meta(min_length=1)]
    defaults: _Defaults = msgspec.field(default_factory=_Defaults)
    wave: Wave = msgspec.field(default_factory=Wave)


def find_inventory(given: Path | None) -> Inventory:
    """Return the inventory in `given`, else in ./targets.toml, else in the user's configuration; else an empty one.

    One that was found in the current folder may be anybody's: it names no ssh_config, because that runs commands here
    (ProxyCommand).

    Raises `ConfigError` if the file cannot be used.
    """
    if given is not None:
        return load_inventory(given)
    here, kept = Path("targets.toml"), configuration() / "targets.toml"
    if here.is_file():
        return load_inventory(here, is_found=here.resolve() != kept.resolve())
    return load_inventory(kept) if kept.is_file() else Inventory()


def load_inventory(path: Path, *, is_found: bool = False) -> Inventory:
    """`is_found`: not named by a person, see `find_inventory`.
    Raises `ConfigError` naming file, line and key, if it cannot be used as written.
    """
    document = read_toml(path)
    file = convert(document, _File, see=_REFERENCE)
    for location, problem in (*_name_problems(file), *_wave_problems(file)):
        raise document.error(location, problem)
    inventory = Inventory(
        path=path,
        targets=MappingProxyType({target.name: _target(target, file.defaults, document) for target in file.target}),
        wave=file.wave,
        max_parallel=file.defaults.max_parallel,
    )
    if is_found and any(target.ssh_config is not None for target in inventory.targets.values()):
        raise document.error(
            _first_ssh_config(file),
            "an ssh_config can run commands on this machine, and this inventory was found here, not named; if it is "
            f"yours, name it: --targets {path}",
        )
    return inventory


def _first_ssh_config(file: _File) -> Location:
    named = [index for index, target in enumerate(file.target) if target.ssh_config is not None]
    return ("defaults", "ssh_config") if file.defaults.ssh_config is not None else ("target", named[0], "ssh_config")


def _target(target: _Target, defaults: _Defaults, document: Document[ConfigError]) -> Target:
    def path(text: str | None) -> Path | None:
        return None if text is None else (document.path.parent / os.path.expanduser(text)).absolute()

    return Target(
        name=target.name,
        host=target.host,
        user=target.user or defaults.user,
        port=target.port or defaults.port,
        identity=path(target.identity or defaults.identity),
        ssh_config=path(target.ssh_config or defaults.ssh_config),
        compatible=target.compatible or defaults.compatible,
        labels=MappingProxyType(dict(target.labels)),
    )


def _name_problems(file: _File) -> Iterator[tuple[Location, str]]:
    seen: dict[str, int] = {}
    for index, target in enumerate(file.target):
        here = ("target", index, "name")
        if target.name == ALL:
            yield here, f"{ALL!r} means every target; give this one another name"
        if target.name in seen:
            yield here, f"{target.name!r} is already target[{seen[target.name]}]; give each target its own name"
        seen[target.name] = index
        for label, value in target.labels.items():
            if not value or any(c.isspace() or c in "=," for c in value):
                yield ("target", index, "labels", label), f"got {value!r}, expected text without spaces, '=' and ','"


def _wave_problems(file: _File) -> Iterator[tuple[Location, str]]:
    names = {target.name for target in file.target}
    for name in file.wave.canary or ():
        if name not in names:
            yield ("wave", "canary"), f"no target has the name {name!r}; name one of this file, or none: []"
    steps = file.wave.steps
    if steps[-1] != "100%":
        yield ("wave", "steps"), f"the last step is {steps[-1]}, expected '100%', so that nobody is forgotten; add it"
    for kind in (str, int):
        values = [_exact(step, 100) for step in steps if isinstance(step, kind)]
        if values != sorted(set(values)) or 0 in values:
            yield ("wave", "steps"), "each step is more than the one before, and the first is more than 0"
