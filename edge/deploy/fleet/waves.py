"""Who is next in a rollout, and when enough have failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.config.count_or_share import CountOrShare
from edge.config.targets import Target, Wave
from edge.delivery.outcome import Outcome
from edge.errors import DeployError

__all__ = ["Waves", "check_limit", "has_failed"]

_MAX_TRIED = 3  # who stands in for a canary that is not there; with the network down, nobody waits for a whole fleet
_AWAY = ("unreachable", "late")  # nothing is known of the release there
_NO_FAILURES = (*_AWAY, "interrupted", "planned", "detached")


class Waves:
    """Splits targets into waves: canaries, then by the steps; who comes next depends on what became of those before.

    `is_proven`: some target serves this release already, so no canary has to go first unless it is named.
    """

    def __init__(self, targets: Sequence[Target], wave: Wave, *, is_proven: bool = False) -> None:
        named = set(wave.canary or ())
        self._canaries = [target for target in targets if target.name in named]
        self._rest = [target for target in targets if target.name not in named]
        self._stands_in = not self._canaries and wave.canary != () and not is_proven
        self._steps = list(wave.steps)
        self._tried: list[Target] = []
        self._begun = 0

    def next(self, outcomes: Mapping[str, Outcome]) -> Sequence[Target]:
        """Return the next wave, given how all before it ended; empty: there is none.

        Raises:
            DeployError: `fleet.canary`, if no canary serves the release, so that nothing is known of it.
        """
        if not self._tried and self._canaries:
            self._tried = self._canaries
            return self._tried
        if self._stands_in and not self._tried:
            return self._one_more()
        if self._tried and not any(outcomes[target.name].is_done for target in self._tried):
            return self._instead(outcomes)
        return self._step()

    def _instead(self, outcomes: Mapping[str, Outcome]) -> Sequence[Target]:
        results = [outcomes[target.name].result for target in self._tried]
        if self._stands_in and set(results) <= set(_AWAY) and len(results) < _MAX_TRIED:
            return self._one_more()
        if not self._rest:
            return ()
        raise DeployError(
            "fleet.canary",
            f"no canary serves the release: {', '.join(_spelled(self._tried, outcomes))}",
            hint="mend it, or name another target as canary in the inventory, then push again with --resume",
        )

    def _one_more(self) -> Sequence[Target]:
        one, self._rest = self._rest[:1], self._rest[1:]
        self._tried += one
        return one

    def _step(self) -> Sequence[Target]:
        while self._steps:
            until = self._steps.pop(0).of(len(self._rest))
            if until > self._begun:
                wave, self._begun = self._rest[self._begun : until], until
                return wave
        return ()


def _spelled(targets: Sequence[Target], outcomes: Mapping[str, Outcome]) -> list[str]:
    return [f"{target.name} {outcomes[target.name].result}" for target in targets]


def has_failed(outcome: Outcome) -> bool:
    """Return whether a target speaks against going on; one that was not reached, or not let finish, says nothing."""
    return not outcome.is_done and outcome.result not in _NO_FAILURES


def check_limit(outcomes: Mapping[str, Outcome], *, begun: int, most: CountOrShare) -> None:
    """Hold the failures of the `begun` targets, those of all waves so far, against the limit.

    The share is of the whole wave, so that the first failure of many does not look like all of them.

    Raises:
        DeployError: `fleet.stopped`, if there are too many.
    """
    failed = sum(has_failed(outcome) for outcome in outcomes.values())
    attempted = begun - sum(outcome.result in _AWAY for outcome in outcomes.values())
    if most.is_exceeded_by(failed, attempted):
        raise DeployError(
            "fleet.stopped",
            f"{failed} of {attempted} targets failed, at most {most} may",
            hint="mend them or the release; --resume goes on with those that are not done",
            evidence={"failed": failed, "attempted": attempted, "max_failed": str(most)},
        )
