"""`stage`, `build`, `switch`, `confirm`, `rollback` and `gc`: what is done with a release that is on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "BuildAnswer",
    "BuildRequest",
    "CollectedAnswer",
    "ConfirmRequest",
    "Golden",
    "ReleaseAnswer",
    "RollbackAnswer",
    "RollbackRequest",
    "StageRequest",
    "SwitchAnswer",
    "SwitchRequest",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAnswer:
    """The release that it was done to."""

    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRequest:
    """Make a release of its blobs; with `retry_bad` it is forgotten that it has failed before."""

    release: str
    retry_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """Build the engine; with `detach` the device goes on alone and switches."""

    release: str
    detach: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """What the gate found: of the `expected` sure detections of the float model `found`, and `extra` others."""

    expected: int
    found: int
    extra: int
    score_error: float
    passed: bool = True
    images: int = 0
    recall: float | None = None
    mean_iou: float | None = None
    per_class: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildAnswer:
    """The engine: `skipped`, it was there and proven; `detached`, nothing is known yet, the device goes on alone.

    `engine` says what runs and why, in words; `seconds` is how long it took.
    """

    detached: bool = False
    key: str | None = None
    seconds: float | None = None
    golden: Golden | None = None
    skipped: bool = False
    engine: str = ""
    precision: str | None = None
    report: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRequest:
    """Put the release on trial; with `confirm` a person has to confirm it, too."""

    release: str
    confirm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAnswer:
    """`note` says what went wrong at the restart; the trial judges that."""

    release: str
    confirm: bool
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRequest:
    """The release on trial may stay; None: whichever that is."""

    release: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """Go back to the release before, or `to` one that is kept."""

    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAnswer:
    """Where it went; None: to nothing, because nothing served before. `on_trial`: it is judged like a push."""

    release: str | None
    on_trial: bool
    note: str
    confirm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedAnswer:
    """What was removed, by name."""

    releases: tuple[str, ...]
    engines: tuple[str, ...]
    blobs: tuple[str, ...]
    partials: tuple[str, ...]
    temporaries: tuple[str, ...]
