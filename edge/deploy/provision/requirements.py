"""Whether packages need anything that is not among them, on the device and not on this machine.

Sources: the core metadata's Requires-Dist and the environment markers of
https://packaging.python.org/en/latest/specifications/dependency-specifiers/.
"""

from __future__ import annotations

import importlib.metadata
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edge.errors import DeployError

__all__ = ["Needs", "Package", "needs_of", "plain_name", "unmet_requirements"]

_OURS = canonicalize_name("edge-deploy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One distribution: its version and its Requires-Dist, markers and all."""

    version: str
    requires: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What was reached from those asked for: `edges` by name, as requirements without markers; and what is `unmet`."""

    edges: Mapping[str, tuple[str, ...]]
    unmet: tuple[str, ...]


def plain_name(name: str) -> str:
    """Return the one spelling of a package's name."""
    return canonicalize_name(name)


def needs_of(
    found: Mapping[str, Package], asked: Iterable[tuple[str, str]], *, architecture: str, python: tuple[int, int]
) -> Needs:
    """Return what those `asked` for (name and extra, "" for none) need on a device.

    pip asks the machine that it runs on when it evaluates a marker, whatever machine it downloads for.
    """
    edges: dict[str, dict[str, None]] = {}
    unmet: dict[str, None] = {}
    waiting = list(asked)
    seen = set(waiting)
    for name, extra in waiting:  # grows while it is walked
        mine = edges.setdefault(name, {})
        for requirement in map(Requirement, found[name].requires):
            if requirement.marker is not None:
                if not requirement.marker.evaluate(_environment(architecture, python, extra)):
                    continue
                requirement.marker = None
            wanted = canonicalize_name(requirement.name)
            mine[str(requirement)] = None
            if wanted not in found or not requirement.specifier.contains(found[wanted].version, prereleases=True):
                unmet[str(requirement)] = None
                continue
            new = [(wanted, more) for more in ("", *sorted(requirement.extras)) if (wanted, more) not in seen]
            waiting += new
            seen.update(new)
    return Needs(edges={name: tuple(mine) for name, mine in edges.items()}, unmet=tuple(unmet))


def unmet_requirements(
    wheels: Iterable[Path], *, architecture: str, python: tuple[int, int], extra: str | None = None
) -> list[str]:
    """Return what `wheels` require on a device and none of them gives, without markers, in order and once each.

    `extra` is asked of edge-deploy itself.

    Raises:
        DeployError: `request.wheels`, if one is no wheel.
    """
    found = dict(map(_package, wheels))
    asked = [(name, "") for name in sorted(found)]
    asked += [(_OURS, extra)] if extra is not None and _OURS in found else []
    return list(needs_of(found, asked, architecture=architecture, python=python).unmet)


def _package(wheel: Path) -> tuple[str, Package]:
    try:
        stated = next(iter(importlib.metadata.distributions(path=[str(wheel)])))
        return canonicalize_name(stated.metadata["Name"]), Package(
            version=stated.version, requires=tuple(stated.requires or ())
        )
    except (StopIteration, zipfile.BadZipFile, KeyError, TypeError):
        raise DeployError("request.wheels", f"{wheel} is no wheel, or is damaged", hint="remove it") from None


def _environment(architecture: str, python: tuple[int, int], extra: str) -> dict[str, str]:
    version = f"{python[0]}.{python[1]}"
    return {
        "extra": extra,
        "implementation_name": "cpython",
        "implementation_version": f"{version}.0",
        "os_name": "posix",
        "platform_machine": architecture,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{version}.0",
        "python_version": version,
        "sys_platform": "linux",
    }
