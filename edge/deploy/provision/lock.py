"""The lock: the one wheel of each library for each kind of device, by its SHA-256 (docs/adr/0018).

`make lock` writes it; nothing here asks a package index.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from edge.errors import DeployError
from edge.reading import json_object

__all__ = ["ENVIRONMENTS", "FORMAT", "Environment", "Lock", "LockedWheel", "Use", "read_lock"]

FORMAT = "edge.lock/1"
Use = Literal["serve", "jetson", "install"]


@dataclass(frozen=True, slots=True, order=True)
class Environment:
    """Facts that decide which wheels a device can use; all have a glibc of 2.35 or newer."""

    architecture: str
    python: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.architecture}-cp{self.python[0]}{self.python[1]}"

    @property
    def title(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]} on {self.architecture}"


# JetPack 6 and Ubuntu 22.04, Debian 12, JetPack 7 and Ubuntu 24.04, Debian 13, Ubuntu 26.04.
ENVIRONMENTS = tuple(
    Environment(architecture, (3, minor)) for architecture in ("aarch64", "x86_64") for minor in (10, 11, 12, 13, 14)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedWheel:
    """One wheel of one library; `use`: `serve` (all devices), `jetson` (with pycuda) or `install` (pip, not installed).

    `requires`: on this kind of device, without markers. `supplier`, `license`: as stated, None: they are not.
    """

    name: str
    version: str
    wheel: str
    sha256: str
    use: Use
    requires: tuple[str, ...] = ()
    supplier: str | None = None
    license: str | None = None

    def __post_init__(self) -> None:
        if self.use not in get_args(Use) or len(self.sha256) != 64 or "/" in self.wheel:
            raise ValueError(f"{self} is no locked wheel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The wheels of each environment, sorted by name; `made_at`: when they were last chosen, UTC as in RFC 3339."""

    made_at: str
    environments: Mapping[Environment, Sequence[LockedWheel]]

    def wheels_for(self, environment: Environment, *, is_jetson: bool) -> tuple[LockedWheel, ...]:
        """DeployError `request.wheels`, if the lock does not know such devices."""
        if environment not in self.environments:
            raise DeployError(
                "request.wheels",
                f"no wheels are locked for {environment.title}, only for {', '.join(map(str, self.environments))}",
                hint="a newer edge-deploy may know them; a checkout can be taught by `make lock`",
            )
        return tuple(one for one in self.environments[environment] if is_jetson or one.use != "jetson")


def read_lock(content: bytes | None = None) -> Lock:
    """Return the lock in `content`, or the one that this edge-deploy brings; DeployError `request.wheels`."""
    if content is None:
        content = (importlib.resources.files("edge.deploy.provision") / "lock.json").read_bytes()
    try:
        values = json_object(content)
        if values["format"] != FORMAT:
            raise ValueError(f"expected {FORMAT}, got {values['format']!r}")
        named = {str(environment): environment for environment in ENVIRONMENTS}
        environments = {
            named[name]: tuple(_locked(one) for one in wheels) for name, wheels in values["environments"].items()
        }
        return Lock(made_at=str(values["made_at"]), environments=environments)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeployError("request.wheels", f"the lock of wheels cannot be used: {error}") from None


def _locked(values: Mapping[str, Any]) -> LockedWheel:
    return LockedWheel(**{**values, "requires": tuple(values.get("requires", ()))})
