"""What is not signed: a release that a device would refuse, or one that would lock all later ones out."""

from __future__ import annotations

from datetime import datetime, timedelta

from edge.bundle.checks import read_time
from edge.bundle.manifest import Manifest
from edge.bundle.succession import MOST_AHEAD_S, ahead, permission_gaps
from edge.errors import DeployError

__all__ = ["check_signable"]


def check_signable(manifest: Manifest, *, now: datetime) -> None:
    """Pass if a release may be signed at `now`, which is this machine's clock.

    Raises:
        DeployError: `bundle.ahead` for times and sequences that devices would have to catch up with,
            `bundle.downgrade` for a permission to go back without its bounds.
    """
    if read_time("created_at", manifest.created_at) > now + timedelta(seconds=MOST_AHEAD_S):
        raise DeployError(
            "bundle.ahead",
            f"the release would be made at {manifest.created_at}, more than a day ahead of this machine's clock",
            hint="set the clock, or SOURCE_DATE_EPOCH",
        )
    for error in ahead(manifest, at=now, is_clock_sure=True):
        raise DeployError(
            "bundle.ahead",
            error.problem,
            hint="leave --sequence out; if a bundle in the output folder has such a sequence, move it away",
        )
    for error in permission_gaps(manifest) if manifest.downgrade_from is not None else ():
        raise DeployError("bundle.downgrade", error.problem, hint=error.hint)
