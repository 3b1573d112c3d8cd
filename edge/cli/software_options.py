"""The options of software that travels in a release; no device has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from edge.deploy.provision.lock import Environment

    _Environment = click.ParamType[Environment]
else:
    _Environment = click.ParamType  # not generic in older versions

__all__ = ["software_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


class _DeviceKind(_Environment):
    """A kind of device by machine and Python, as the lock of wheels names it."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Environment:
        from edge.deploy.provision.lock import ENVIRONMENTS

        known = {str(one): one for one in ENVIRONMENTS}
        if str(value) not in known:
            self.fail(f"wheels are locked for no {value!r}; expected one of {', '.join(known)}", param, ctx)
        return known[str(value)]


def software_options(command: _F) -> _F:
    """Add `--software` and `--libraries`: what the release runs with travels in it."""
    libraries = click.option(
        "--libraries",
        type=_DeviceKind(),
        metavar="KIND",
        help="With --software, also its libraries, for one kind of device: aarch64-cp310 (JetPack 6), ...",
    )
    software = click.option(
        "--software",
        "has_software",
        is_flag=True,
        help="The software that runs here travels in the release, which then runs with it: docs/push.md.",
    )
    return software(libraries(command))
