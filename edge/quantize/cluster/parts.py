"""Items in parts: some on their way, some done and waiting for those in front of them, the others still to be sent."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge.errors import ClusterError, DatasetError, EdgeError
from edge.media.images import MAX_FILE_BYTES
from edge.quantize.cluster import site
from edge.quantize.cluster.binding import Future, is_killed_worker, submit
from edge.quantize.cluster.preparing import Preparing
from edge.quantize.crew import CrewWork
from edge.quantize.stills import StillImage
from edge.reading import read_file

__all__ = ["NextDone", "RoundParts"]

_MOST_ITEMS = 8  # of a part: few enough to be lost with a worker
_PARTS_PER_WORKER = 4  # at least, so that the slowest one does not keep all others waiting
_ON_THEIR_WAY = 2  # for each worker: one that is done, one that waits
_MOST_KILLED = 3  # times that Dask gives up on a part, each after several workers
_MOST_AHEAD = 4  # times as many as are on their way: parts that are done before their turn
_RESULT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextDone:
    """What is new: items that are done, wherever they stand; and what is found of those whose turn it is."""

    new_items: int
    found: Sequence[Any]
    engine: str


@dataclass(slots=True, kw_only=True)
class _Part:
    number: int
    items: Sequence[Any]
    sent: dict[str, bytes] = field(default_factory=dict)  # contents of images
    only: str | None = None  # the worker that has asked for them
    killed: int = 0
    workers: frozenset[str] = frozenset()  # those that it was sent to
    future: Future = None


class RoundParts:
    """The parts of one round of a job.

    Args:
        client: of the scheduler.
        name: begins the names of the parts.
        work: what is done.
        items: with which.
        preparing: who can do it.
        on_end: called by another thread when a part has ended.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        work: CrewWork[Any, Any],
        items: Sequence[Any],
        preparing: Preparing,
        *,
        on_end: Callable[[Future], None],
    ) -> None:
        self._client = client
        self._name = name
        self._is_small = work.is_small
        self._preparing = preparing
        self._on_end = on_end
        size = 1 if work.is_small else _size(len(items), work.rows, preparing.workers)
        spans = range(0, len(items), size)
        self._waiting = {n: _Part(number=n, items=items[first : first + size]) for n, first in enumerate(spans)}
        self._running: dict[int, _Part] = {}
        self._done: dict[int, site.Done | EdgeError] = {}
        self._count = len(spans)
        self._next = 0
        self._new_items = 0
        self._attempts = itertools.count()

    @property
    def has_more(self) -> bool:
        """Whether something is still to be handed on."""
        return self._next < self._count

    def go_on(self) -> None:
        """Take in what has ended, and send what can be sent.

        Raises:
            ClusterError: if the scheduler is gone, or workers die again and again with the same part.
            DatasetError: if an image that a worker asks for has changed meanwhile.
        """
        ready = self._preparing.ready
        for part in list(self._running.values()):
            if part.future.done():
                self._take_in(self._running.pop(part.number))
            elif part.workers.isdisjoint(ready):  # nobody is left who was asked
                part.future.cancel()
                self._again(self._running.pop(part.number))
        lanes = sum(ready.values()) if self._is_small else len(ready)
        most = lanes * _ON_THEIR_WAY
        for number in sorted(self._waiting)[: max(0, most - len(self._running))]:
            if number < self._next + most * _MOST_AHEAD:
                self._send(self._waiting.pop(number), ready)

    def next_done(self) -> NextDone | None:
        """Return what is new; None: nothing is.

        Raises:
            EdgeError: if the part whose turn it is could not be done.
        """
        new, self._new_items = self._new_items, 0
        reply = self._done.pop(self._next, None)
        if isinstance(reply, EdgeError):
            raise reply
        if reply is not None:
            self._next += 1
            return NextDone(new_items=new, found=reply.found, engine=reply.engine)
        return NextDone(new_items=new, found=(), engine="") if new else None

    def cancel(self) -> None:
        """Forget what is on its way."""
        for part in self._running.values():
            part.future.cancel()
        self._running.clear()

    def _send(self, part: _Part, ready: Mapping[str, int]) -> None:
        part.workers = frozenset(ready if part.only is None or part.only not in ready else [part.only])
        part.future = submit(
            self._client,
            site.do_part,
            self._preparing.session,
            self._preparing.job,
            part.items,
            part.sent,
            key=f"{self._name}-{part.number}-{next(self._attempts)}",
            workers=part.workers,
            on_end=self._on_end,
        )
        self._running[part.number] = part

    def _again(self, part: _Part) -> None:
        part.future = None
        self._waiting[part.number] = part

    def _take_in(self, part: _Part) -> None:
        if part.future.status == "finished":
            self._understand(part)
            return
        error = None if part.future.status == "cancelled" else part.future.exception()
        if isinstance(error, EdgeError):
            self._done[part.number] = error
        elif is_killed_worker(error):
            self._count_killed(part)
        elif error is None or isinstance(error, site.Ended):
            self._again(part)
        else:
            raise error

    def _understand(self, part: _Part) -> None:
        """Do what the reply of a worker says."""
        try:
            reply = part.future.result(timeout=_RESULT_S)
        except Exception:  # the worker that has it is gone meanwhile, whatever becomes of that
            part.future.cancel()
            self._again(part)
            return
        if isinstance(reply, site.Done):
            part.future = None
            self._done[part.number] = reply
            self._new_items += len(part.items)
            return
        if isinstance(reply, site.MissingImages):
            part.only = reply.worker
            part.sent |= {image.sha256: _content(image) for image in reply.images}
        else:
            self._preparing.forget(reply.worker)
        self._again(part)

    def _count_killed(self, part: _Part) -> None:
        part.killed += 1
        if part.killed > _MOST_KILLED:
            raise ClusterError(
                f"cluster: workers die again and again with the same {len(part.items)} of the items",
                hint="have they enough memory? each takes what one process of as many cores would take",
            )
        self._again(part)


def _size(items: int, rows: int, workers: int) -> int:
    """Return how many items make a part: whole canvases, and enough parts for all workers."""
    wanted = min(_MOST_ITEMS, -(-items // (workers * _PARTS_PER_WORKER)))
    return max(1, -(-wanted // rows)) * rows


def _content(image: StillImage) -> bytes:
    """Return the bytes of an image.

    Raises:
        DatasetError: if it cannot be read, or is not what it was when it was looked at.
    """
    try:
        content = read_file(image.path, most_bytes=MAX_FILE_BYTES, follows_links=True)
    except OSError as error:
        raise DatasetError(f"{image.path}: cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != image.sha256:
        raise DatasetError(f"{image.path}: has changed since it was looked at", hint="run the command again")
    return content
