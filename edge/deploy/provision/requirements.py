"""Whether wheels need anything that is not among them, on the device and not on this machine.

Sources: the core metadata's Requires-Dist and the environment markers of
https://packaging.python.org/en/latest/specifications/dependency-specifiers/.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edge.deploy.provision.facts import ProvisionFacts

__all__ = ["unmet_requirements"]

_OURS = canonicalize_name("edge-deploy")


def unmet_requirements(wheels: Iterable[Path], facts: ProvisionFacts, *, extra: str | None = None) -> list[str]:
    """Return what `wheels` require on a device and none of them gives, without markers, in order and once each.

    `extra` is asked of edge-deploy itself. pip asks the machine that it runs on when it evaluates a marker, whatever
    machine it downloads for.
    """
    found = {canonicalize_name(one.metadata["Name"]): one for one in map(_distribution, wheels)}
    unmet: dict[str, None] = {}
    asked = [(name, "") for name in sorted(found)]
    asked += [(_OURS, extra)] if extra is not None and _OURS in found else []
    seen = set(asked)
    for name, extra in asked:  # grows while it is walked
        for requirement in map(Requirement, found[name].requires or ()):
            if requirement.marker is not None and not requirement.marker.evaluate(_environment(facts, extra)):
                continue
            requirement.marker = None
            wanted = canonicalize_name(requirement.name)
            if wanted not in found or not requirement.specifier.contains(found[wanted].version, prereleases=True):
                unmet[str(requirement)] = None
                continue
            new = [(wanted, more) for more in sorted(requirement.extras) if (wanted, more) not in seen]
            asked += new
            seen.update(new)
    return list(unmet)


def _distribution(wheel: Path) -> importlib.metadata.Distribution:
    return next(iter(importlib.metadata.distributions(path=[str(wheel)])))


def _environment(facts: ProvisionFacts, extra: str) -> dict[str, str]:
    python = f"{facts.python[0]}.{facts.python[1]}"
    return {
        "extra": extra,
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": facts.architecture,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
