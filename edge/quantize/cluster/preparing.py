"""Workers are given a job before they get parts of it: the work, and each model once in a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from edge.quantize.cluster import site
from edge.quantize.cluster.binding import Future, is_killed_worker, submit
from edge.quantize.cluster.members import Members
from edge.quantize.cluster.wire import Packed

__all__ = ["Preparing"]

_AT_ONCE = 4  # models lie in the scheduler's memory while they are on their way


class Preparing:
    """The workers that know one job.

    Args:
        client: of the scheduler.
        session: that the job belongs to.
        job: its number.
        packed: the work and its models.
        members: who takes part.
        given: digests of the models that each worker has, by its address; shared by the jobs of a session.
        on_end: called by another thread when a worker has taken it in.
    """

    def __init__(
        self,
        client: Any,
        session: str,
        job: int,
        packed: Packed,
        members: Members,
        *,
        given: dict[str, set[str]],
        on_end: Callable[[Future], None],
    ) -> None:
        self._client = client
        self.session = session
        self.job = job
        self._packed = packed
        self._members = members
        self._given = given
        self._on_end = on_end
        self._asked: dict[str, Future] = {}
        self._ready: set[str] = set()
        self._attempts = 0

    @property
    def ready(self) -> Mapping[str, int]:
        """Threads of the workers that know the job, by their addresses."""
        return {address: self._members.threads[address] for address in sorted(self._ready)}

    @property
    def workers(self) -> int:
        """How many take part, whether they know the job already or not; at least one."""
        return max(1, len(self._members.threads))

    def go_on(self) -> None:
        """See who has come and gone, and prepare who is not.

        Raises:
            EdgeError: as `Members.look`, or if a worker cannot take the job in.
        """
        self._members.look()
        threads = self._members.threads
        self._ready &= threads.keys()
        for address in self._given.keys() - threads.keys():
            del self._given[address]
        self._asked = {address: future for address, future in self._asked.items() if address in threads}
        for address in [address for address, future in self._asked.items() if future.done()]:
            self._hear(address, self._asked.pop(address))
        for address in sorted(threads.keys() - self._ready - self._asked.keys()):
            if len(self._asked) < _AT_ONCE:
                self._ask(address, threads[address])

    def forget(self, address: str) -> None:
        """Prepare a worker again that does not know the job any more, nor anything else."""
        self._ready.discard(address)
        self._given.pop(address, None)

    def cancel(self) -> None:
        """Prepare nobody any more."""
        for future in self._asked.values():
            future.cancel()
        self._asked.clear()

    def _ask(self, address: str, threads: int) -> None:
        self._attempts += 1
        has = self._given.get(address, set())
        models = {sha256: content for sha256, content in self._packed.models.items() if sha256 not in has}
        self._asked[address] = submit(
            self._client,
            site.prepare,
            self.session,
            os.getcwd(),
            self.job,
            self._packed.work,
            models,
            threads,
            key=f"{self.session}-{self.job}-prepare-{self._attempts}",
            workers=[address],
            on_end=self._on_end,
        )

    def _hear(self, address: str, future: Future) -> None:
        if future.status == "finished":
            self._ready.add(address)
            self._given.setdefault(address, set()).update(self._packed.models)
            return
        error = None if future.status == "cancelled" else future.exception()
        if error is not None and not is_killed_worker(error) and not isinstance(error, KeyError):
            raise error
        self.forget(address)  # it died meanwhile, or has lost its models: all of it once more
