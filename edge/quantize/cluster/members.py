"""The workers that take part: each is looked at before it gets anything to do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.errors import ClusterError, ConfigError, EdgeError
from edge.quantize.cluster import site
from edge.quantize.cluster.binding import Future, submit, threads_of
from edge.quantize.cluster.likeness import PROCESSOR, differences, likeness_here

__all__ = ["Members", "Settings"]

_LISTED = 5
_LOOK_EVERY_S = 1.0
_GREETED_WITHIN_S = 30.0  # of those that were there at first
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
        session: begins the names of what is asked.
        kinds: of engines that are needed.
        settings: how the cluster is used.
        on_end: called by another thread when somebody has answered, so that it is worth looking.
    """

    def __init__(
        self, client: Any, session: str, kinds: Sequence[str], settings: Settings, on_end: Callable[[Future], None]
    ) -> None:
        self._client = client
        self._session = session
        self._kinds = tuple(kinds)
        self._settings = settings
        self._on_end = on_end
        self._here = likeness_here(kinds)
        self._asked: dict[str, Future] = {}
        self._fit: dict[str, int] = {}
        self._refused: dict[str, _Refusal] = {}
        self._began_at = self._last_seen_at = time.monotonic()
        self._looked_at = -math.inf
        self._has_begun = self._has_told_to_wait = False

    @property
    def threads(self) -> Mapping[str, int]:
        """Threads of each, by its address; nobody before all that were there at first have been looked at."""
        return self._fit if self._has_begun else {}

    def look(self) -> None:
        """See who has come and gone, where that was not done just now.

        Raises:
            ConfigError: if a worker does not fit that was there at first.
            ClusterError: if the scheduler is gone, or there has been no worker for too long.
        """
        answered = [address for address, future in self._asked.items() if future.done()]
        if time.monotonic() - self._looked_at < _LOOK_EVERY_S and not answered:
            return
        there = threads_of(self._client)
        self._looked_at = time.monotonic()
        self._forget_who_is_not_among(there)
        self._hear([address for address in answered if address in there], there)
        for address in there.keys() - self._asked.keys() - self._fit.keys() - self._refused.keys():
            self._ask(address)
        self._begin()
        self._require_somebody()

    def _forget_who_is_not_among(self, there: Mapping[str, int]) -> None:
        self._asked = {address: future for address, future in self._asked.items() if address in there}
        self._fit = {address: threads for address, threads in self._fit.items() if address in there}
        self._refused = {address: refusal for address, refusal in self._refused.items() if address in there}

    def _ask(self, address: str) -> None:
        key = f"{self._session}-greet-{address}-{self._looked_at}"
        args = (self._client, site.greet, self._kinds)
        self._asked[address] = submit(*args, key=key, workers=[address], on_end=self._on_end)

    def _hear(self, answered: Sequence[str], there: Mapping[str, int]) -> None:
        for address in answered:
            future = self._asked.pop(address)
            if future.status == "cancelled":
                continue  # it is asked again where it is still there
            refusal = self._judge(address, future)
            if refusal is None:
                self._fit[address] = there[address]
                continue
            self._refused[address] = refusal
            if self._has_begun:
                self._settings.tell(refusal.text)

    def _judge(self, address: str, future: Future) -> _Refusal | None:
        error = future.exception()
        if error is not None:
            why = error.problem if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
            return _Refusal(text=f"worker {address} cannot take part: it has not this edge-deploy: {why}")
        found = dict(future.result())
        name = f"{address} on {found.pop('host')}"
        unlike = differences(self._here, found)
        if self._settings.may_mix_processors:
            unlike = {what: text for what, text in unlike.items() if what not in PROCESSOR}
        if not unlike:
            return None
        text = f"worker {name} cannot take part: {'; '.join(unlike.values())}"
        return _Refusal(text=text, is_by_processor=unlike.keys() <= set(PROCESSOR))

    def _begin(self) -> None:
        """Begin when all that were there at first have answered, or have had the time to."""
        is_early = time.monotonic() - self._began_at < _GREETED_WITHIN_S
        if self._has_begun or (self._asked and is_early):
            return
        if self._refused:
            raise _not_alike(list(self._refused.values()))
        self._has_begun = bool(self._fit)

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
        if waited_s > _TOLD_AFTER_S and not self._asked and not self._has_told_to_wait:
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
