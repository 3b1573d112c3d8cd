"""`edge.quantize.crew.Crew` of the workers of a Dask cluster.

Work is cut into parts, of which as many are on their way as keep all workers busy. What is found is handed on in the
order of the items, so that memory depends on the number of workers, and sums on the items only.
"""

from __future__ import annotations

import contextlib
import os
import queue
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from edge.quantize.cluster import site
from edge.quantize.cluster.binding import connected, started_here
from edge.quantize.cluster.members import Members, Settings
from edge.quantize.cluster.parts import RoundParts
from edge.quantize.cluster.preparing import Preparing
from edge.quantize.cluster.wire import pack
from edge.quantize.crew import CrewJob, CrewWork

__all__ = ["Cluster", "cluster_at", "workers_here"]

Item = TypeVar("Item")
Found = TypeVar("Found")
_END_S = 5.0
_LOOK_EVERY_S = 0.5


@contextlib.contextmanager
def cluster_at(address: str, kinds: Sequence[str], settings: Settings) -> Iterator[Cluster]:
    """Yield the crew of the cluster whose scheduler is at `address`, for engines of `kinds`.

    Raises:
        ClusterError: if it cannot be reached.
        ConfigError: if TLS is not configured, or a worker does not fit.
        MissingDependencyError: if Dask is not installed.
    """
    with connected(address) as client, Cluster(client, kinds, settings) as crew:
        yield crew


@contextlib.contextmanager
def workers_here(workers: int, kinds: Sequence[str], settings: Settings) -> Iterator[Cluster]:
    """Yield a crew of so many processes on this machine, which share its cores.

    Raises:
        ClusterError: if they cannot be started.
        MissingDependencyError: if Dask is not installed.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // workers)
    with started_here(workers, threads=threads) as client, Cluster(client, kinds, settings) as crew:
        yield crew


class Cluster:
    """Implements `edge.quantize.crew.Crew`.

    Args:
        client: of the scheduler.
        kinds: of engines that will be needed.
        settings: how the cluster is used.
    """

    def __init__(self, client: Any, kinds: Sequence[str], settings: Settings) -> None:
        self._client = client
        self._session = f"edge-{uuid.uuid4().hex}"
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._members = Members(client, kinds, settings)
        self._given: dict[str, set[str]] = {}
        self._jobs = 0

    def take_on(self, work: CrewWork[Item, Found]) -> ClusterJob[Item, Found]:
        """Return a job of all workers, whoever they are by then."""
        self._jobs += 1
        preparing = Preparing(
            self._client,
            self._session,
            self._jobs,
            pack(work),
            self._members,
            given=self._given,
            on_end=self._ended.put,
        )
        return ClusterJob(work, self._client, f"{self._session}-{self._jobs}", preparing, self._ended)

    def __enter__(self) -> Cluster:
        """Wait until all workers that are there have been looked at.

        Raises:
            EdgeError: as `Members.look`.
        """
        while not self._members.threads:
            self._members.look()
            if not self._members.threads:
                _wait(self._ended)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the workers forget what they were given; those that cannot be told do so by themselves."""
        with contextlib.suppress(Exception):  # the scheduler may be what has gone
            self._client.run(site.end, self._session, on_error="ignore", callback_timeout=_END_S)


class ClusterJob(contextlib.AbstractContextManager["ClusterJob[Item, Found]"], CrewJob[Item, Found]):
    """Work that all workers share."""

    def __init__(
        self, work: CrewWork[Item, Found], client: Any, name: str, preparing: Preparing, ended: queue.SimpleQueue[Any]
    ) -> None:
        self._work = work
        self._client = client
        self._name = name
        self._preparing = preparing
        self._ended = ended
        self._rounds = 0
        self._engine = ""

    @property
    def engine(self) -> str:
        """The name of the engine that did it."""
        return self._engine

    def each(self, items: Sequence[Item], *, on_item: Callable[[], None]) -> Iterator[Found]:
        """Yield what is found, in the order of the items."""
        self._rounds += 1
        name, on_end = f"{self._name}-{self._rounds}", self._ended.put
        self._preparing.go_on()
        parts = RoundParts(self._client, name, self._work, items, self._preparing, on_end=on_end)
        try:
            while parts.has_more:
                self._preparing.go_on()
                parts.go_on()
                is_idle = True
                while (done := parts.next_done()) is not None:
                    is_idle = False
                    for _ in range(done.new_items):
                        on_item()
                    self._engine = done.engine or self._engine
                    yield from done.found
                if is_idle:
                    _wait(self._ended)
        finally:
            parts.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Prepare nobody any more; the next job takes the place of this one on each worker."""
        self._preparing.cancel()


def _wait(ended: queue.SimpleQueue[Any]) -> None:
    """Wait until something has ended, whatever it is, or it is time to look around."""
    with contextlib.suppress(queue.Empty):
        ended.get(timeout=_LOOK_EVERY_S)
        while True:
            ended.get_nowait()
