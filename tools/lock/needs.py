"""What packages need, on a device and not on this machine.

Sources: the core metadata's Requires-Dist and the environment markers of
https://packaging.python.org/en/latest/specifications/dependency-specifiers/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["Needs", "Package", "needs_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One distribution: its version and its Requires-Dist, markers and all."""

    version: str
    requires: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Requirements reached from wanted ones: `edges` by name, as requirements without markers; and what is `unmet`."""

    edges: Mapping[str, tuple[str, ...]]
    unmet: tuple[str, ...]


def needs_of(
    found: Mapping[str, Package], asked: Iterable[tuple[str, str]], *, architecture: str, python: tuple[int, int]
) -> Needs:
    """Return what `asked` (name and extra, "" for none) need on a device; pip's markers would ask this machine."""
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
