"""The workers that take part: each is looked at before it gets anything to do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.errors import ClusterError, ConfigError, EdgeError
from edge.quantize.cluster import site
from edge.quantize.cluster.binding import ask_scheduler, ask_workers, threads_of
from edge.quantize.cluster.likeness import CODE, PROCESSOR, differences, likeness_here

__all__ = ["Members", "Settings"]

_LISTED = 5
_LOOK_EVERY_S = 1.0
_ASKED_AGAIN_S = 30.0  # those that have not answered
_TOLD_AFTER_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a cluster is used.

    Attributes:
        may_mix_processors: workers may have other processors than each other and this machine; the result then depends
            on who did what, in its last bits.
        patience_s: how long to wait where there is no worker.
        tell: is told of what a person should know, in a sentence.
    """

    may_mix_processors: bool = False
    patience_s: float = 60.0
    tell: Callable[[str], None] = field(default=lambda text: None)


class Members:
    """Who takes part, as of the last look.

    Args:
        client: of the scheduler.
        kinds: of engines that are needed.
        settings: how the cluster is used.

    Raises:
        ConfigError: if the scheduler has not this edge-deploy, which reads what workers are sent.
        ClusterError: if it is gone.
    """

    def __init__(self, client: Any, kinds: Sequence[str], settings: Settings) -> None:
        self._client = client
        self._kinds = tuple(kinds)
        self._settings = settings
        self._here = likeness_here(kinds)
        self._fit: dict[str, int] = {}
        self._refused: dict[str, _Refusal] = {}
        self._silent: dict[str, float] = {}
        self._last_seen_at = time.monotonic()
        self._looked_at = -math.inf
        self._has_begun = self._has_told_to_wait = False
        refusal = self._judge("scheduler", ask_scheduler(client, site.greet, self._kinds), CODE)
        if refusal is not None:
            raise _not_alike([refusal])

    @property
    def threads(self) -> Mapping[str, int]:
        """Threads of each, by its address."""
        return self._fit

    def look(self) -> None:
        """See who has come and gone, where that was not done just now.

        Raises:
            ConfigError: if a worker does not fit that was there at first.
            ClusterError: if the scheduler is gone, or there has been no worker for too long.
        """
        if time.monotonic() - self._looked_at < _LOOK_EVERY_S:
            return
        there = threads_of(self._client)
        self._fit = {address: threads for address, threads in self._fit.items() if address in there}
        self._refused = {address: refusal for address, refusal in self._refused.items() if address in there}
        new = there.keys() - self._fit.keys() - self._refused.keys() - self._still_silent()
        if new:
            self._greet({address: there[address] for address in sorted(new)})
        self._looked_at = time.monotonic()
        self._require_somebody()

    def _still_silent(self) -> set[str]:
        """Return who did not answer, and is not to be asked again yet."""
        now = time.monotonic()
        return {address for address, since in self._silent.items() if now - since < _ASKED_AGAIN_S}

    def _greet(self, new: Mapping[str, int]) -> None:
        answers = ask_workers(self._client, site.greet, self._kinds, workers=list(new))
        for address, threads in new.items():
            if address not in answers:
                self._silent[address] = time.monotonic()
                continue
            refusal = self._judge(f"worker {address}", answers[address], tuple(self._here))
            if refusal is None:
                self._fit[address] = threads
            else:
                self._refused[address] = refusal
                if self._has_begun:
                    self._settings.tell(refusal.text)
        if self._refused and not self._has_begun:
            raise _not_alike(list(self._refused.values()))
        self._has_begun |= bool(self._fit)

    def _judge(self, called: str, answer: Any, names: Sequence[str]) -> _Refusal | None:
        """Return why somebody does not fit, going by the properties of these `names`; None: it does."""
        if isinstance(answer, BaseException):
            why = answer.problem if isinstance(answer, EdgeError) else f"{type(answer).__name__}: {answer}"
            return _Refusal(text=f"{called} cannot take part: it has not this edge-deploy: {why}")
        unlike = {what: text for what, text in differences(self._here, answer).items() if what in names}
        if self._settings.may_mix_processors:
            unlike = {what: text for what, text in unlike.items() if what not in PROCESSOR}
        if not unlike:
            return None
        text = f"{called} on {answer['host']} cannot take part: {'; '.join(unlike.values())}"
        return _Refusal(text=text, is_by_processor=unlike.keys() <= set(PROCESSOR))

    def _require_somebody(self) -> None:
        now = time.monotonic()
        if self._fit:
            self._last_seen_at = now
        waited_s = now - self._last_seen_at
        if waited_s > self._settings.patience_s:
            raise ClusterError(
                f"cluster: there has been no worker that takes part for {self._settings.patience_s:.0f} s",
                hint="start some with this very edge-deploy: dask worker ADDRESS --nthreads 1",
            )
        if waited_s > _TOLD_AFTER_S and not self._has_told_to_wait:
            self._has_told_to_wait = True
            self._settings.tell(f"there is no worker; waiting for one, {self._settings.patience_s:.0f} s at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    text: str
    is_by_processor: bool = False


def _not_alike(refusals: Sequence[_Refusal]) -> ConfigError:
    more = [f"and {len(refusals) - _LISTED} more"] if len(refusals) > _LISTED else []
    hint = "install the very same on all machines, or take these workers out of the cluster"
    if all(one.is_by_processor for one in refusals):
        hint = "take these workers out of the cluster, or allow them with --mixed-cpus: last digits may differ then"
    return ConfigError("\n".join([*(one.text for one in refusals[:_LISTED]), *more]), hint=hint)
