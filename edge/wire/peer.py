"""The other end of a connection: which revision of the protocol it speaks, and how what it says is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from edge.errors import DeployError
from edge.wire.codec import Misfit, decode, newer_than

__all__ = ["PROTOCOL", "PROVISION", "REVISION", "UPDATE", "Peer"]

PROTOCOL = 1
"""Peers of different numbers do not understand each other."""

REVISION = 3
"""What fields there are; 0 is the first one, which did not say so. Add one with each release that adds fields."""

PROVISION = "run: edge-deploy provision, with the same edge-deploy that pushes"
UPDATE = "update edge-deploy on the workstation: pip install --upgrade edge-deploy"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who speaks; `is_device` False: a workstation."""

    is_device: bool
    revision: int = REVISION
    software: str = ""

    def read(self, kind: type[T], values: object, *, where: str) -> T:
        """Return the `kind` that the peer means.

        Raises:
            DeployError: `transfer.protocol` if a device does not say that, `request.value` if a workstation does not.
        """
        try:
            return decode(kind, values, where=where, revision=self.revision, ours=REVISION)
        except Misfit as misfit:
            raise self._unreadable(misfit) from None

    def _unreadable(self, misfit: Misfit) -> DeployError:
        evidence = {"field": misfit.where, "expected": misfit.expected, "got": misfit.got}
        if self.is_device:
            hint = UPDATE if self.revision > REVISION else PROVISION
            problem = f"the device's answer cannot be read: {misfit}"
            return DeployError("transfer.protocol", problem, hint=hint, evidence=evidence)
        return DeployError("request.value", str(misfit), evidence=evidence)

    def check_knows(self, request: Any, *, verb: str) -> None:
        """Pass if the peer knows all that the request asks for.

        Raises:
            DeployError: `transfer.version`.
        """
        unknown = newer_than(request, self.revision)
        if unknown:
            raise DeployError(
                "transfer.version",
                f"the device's software{f' ({self.software})' if self.software else ''} is too old for "
                f"{', '.join(unknown)} of {verb!r}",
                hint=PROVISION,
            )
