"""The only module that imports Dask: `edge.quantize.crew.Crew` of the workers of a scheduler, here or elsewhere.

Results are handed on in the order of the items, so sums depend on the items only; what a dead worker was at, Dask gives
to another. A cluster runs whatever it is sent: ours listens on 127.0.0.1 only, with a certificate made for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from edge.errors import ClusterError, ConfigError, MissingDependencyError
from edge.media.images import MAX_FILE_BYTES
from edge.quantize.cluster import worker
from edge.quantize.cluster.worker import Likeness
from edge.quantize.crew import CrewJob, CrewWork
from edge.quantize.stills import StillImage, image_content

__all__ = ["Cluster", "cluster_at", "workers_here"]

Item = TypeVar("Item")
Found = TypeVar("Found")
_CONNECT_S, _ANSWER_S, _PATIENCE_S, _LOOK_EVERY_S = 10.0, 20.0, 60.0, 0.5
_MOST_ITEMS, _PARTS_PER_WORKER, _PARTS_AHEAD, _MOST_KILLED = 8, 4, 4, 3
_INSTALL = "pip install 'edge-deploy[cluster]'"


def _dask() -> Any:
    try:
        import dask
        import distributed
        import distributed.scheduler
    except ImportError as error:
        raise MissingDependencyError(f"Dask is not importable: {error}", hint=_INSTALL) from error
    if not logging.getLogger("edge").isEnabledFor(logging.INFO):
        quiet = ("distributed", "tornado", "asyncio", "bokeh")
        for name in (*quiet, *(one for one in logging.root.manager.loggerDict if one.partition(".")[0] in quiet)):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})  # models and images travel in them
    return distributed


@contextlib.contextmanager
def cluster_at(address: str, likeness: Likeness) -> Iterator[Cluster]:
    """Yield the crew of the cluster whose scheduler is at `address`.
    Raises ClusterError if it cannot be reached, or no worker comes; ConfigError if TLS is not configured, or scheduler
    or worker has another edge-deploy or processor; MissingDependencyError if Dask is not installed.
    """
    distributed = _dask()
    try:
        asyncio.run(_knock(distributed, address))  # a client that finds no scheduler complains when it is taken down
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (TypeError, RuntimeError) as error:
        hint = "certificates are named in Dask's configuration: distributed.comm.tls (docs/cluster.md)"
        raise ConfigError(f"cluster {address}: {_reason(error)}", hint=hint) from error
    except (OSError, asyncio.TimeoutError, MemoryError, ValueError, EOFError) as error:  # others' words as lengths
        hint = "is `dask scheduler` running there, and does TLS fit on both sides?"
        raise ClusterError(
            f"cluster {address}: no Dask scheduler answers there: {_reason(error)}", hint=hint
        ) from error
    try:
        with Cluster(client, likeness) as crew:
            yield crew
    finally:
        with contextlib.suppress(asyncio.TimeoutError):
            client.close(timeout=_ANSWER_S / 4)


async def _knock(distributed: Any, address: str) -> None:
    settings = distributed.Security().get_connection_args("client")
    (await distributed.core.connect(address, timeout=_CONNECT_S, **settings)).abort()


@contextlib.contextmanager
def workers_here(workers: int, likeness: Likeness) -> Iterator[Cluster]:
    """Yield a crew of so many processes on this machine, which share its cores.
    Raises `ClusterError` if they cannot be started; MissingDependencyError if Dask is not installed.
    """
    distributed = _dask()
    with tempfile.TemporaryDirectory(prefix="edge-workers-") as folder:
        settings = {
            "n_workers": workers, "threads_per_worker": max(1, len(os.sched_getaffinity(0)) // workers),
            "processes": True, "host": "127.0.0.1", "protocol": "tls://", "memory_limit": None,
            "scheduler_kwargs": {"dashboard": False, "dashboard_address": "127.0.0.1:0"}, "local_directory": folder,
            "silence_logs": logging.CRITICAL,
        }  # fmt: skip
        try:
            with _deaf_to_ctrl_c():
                cluster = distributed.LocalCluster(security=distributed.Security.temporary(), **settings)
        except ImportError as error:
            raise MissingDependencyError(str(error), hint=_INSTALL) from error
        except (OSError, asyncio.TimeoutError, RuntimeError) as error:
            raise ClusterError(f"{workers} workers cannot be started on this machine: {_reason(error)}") from error
        with (
            cluster,
            distributed.Client(cluster, set_as_default=False, timeout=_CONNECT_S) as client,
            Cluster(client, likeness) as crew,
        ):
            yield crew


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Keep SIGINT from processes that begin here, and from those that they begin: we end them."""
    resource_tracker.ensure_running()  # it would let the signal through again behind itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Cluster:
    """Implements `edge.quantize.crew.Crew`; `likeness` is of this machine."""

    def __init__(self, client: Any, likeness: Likeness) -> None:
        self._client, self._likeness = client, likeness
        self._session, self._jobs = f"edge-{uuid.uuid4().hex}", 0
        self._seen_at = time.monotonic()

    def take_on(self, work: CrewWork[Item, Found]) -> ClusterJob[Item, Found]:
        self._jobs += 1
        job = worker.Job(self._session, self._jobs, Path.cwd(), is_small=work.is_small, likeness=self._likeness)
        return ClusterJob(work, self, job)

    def __enter__(self) -> Cluster:
        """Wait for a worker, and hold scheduler and workers against this machine."""
        answers = {"scheduler": self._asked(self._client.run_on_scheduler)}
        while not self.threads():
            time.sleep(_LOOK_EVERY_S)
        found = self._asked(self._client.run, on_error="return")
        answers |= {f"worker {address}": one for address, one in found.items() if not isinstance(one, OSError)}
        self._likeness.require(answers)
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self._client.run(worker.end, self._session, on_error="ignore", callback_timeout=_ANSWER_S / 4)

    def _asked(self, run: Callable[..., Any], **options: Any) -> Any:
        for _ in range(_MOST_KILLED):
            try:
                return run(worker.properties_here, self._likeness.kinds, callback_timeout=_ANSWER_S, **options)
            except (ImportError, AttributeError) as error:
                return error
            except Exception as error:  # Dask looks for a worker that has just died for longer than we wait
                trouble = error
                self.threads()
        raise self._gone() from trouble

    def threads(self) -> int:
        """Raise `ClusterError` if the scheduler is gone, or there has been no worker for too long."""
        try:
            if self._client.status != "running":
                raise OSError(self._client.status)
            there = self._client.sync(self._client.scheduler.ncores, callback_timeout=_ANSWER_S)
        except Exception as error:
            raise self._gone() from error
        now = time.monotonic()
        self._seen_at = now if there else self._seen_at
        if now - self._seen_at > _PATIENCE_S:
            hint = "start some with this very edge-deploy: dask worker ADDRESS --nthreads 1"
            raise ClusterError(f"cluster: there has been no worker for {_PATIENCE_S:.0f} s", hint=hint)
        return sum(there.values())

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a `distributed.Future`."""
        return self._client.submit(function, *args, key=f"{self._session}-{uuid.uuid4().hex}", pure=False)

    def _gone(self) -> ClusterError:
        address = getattr(self._client.scheduler, "address", None) or "the scheduler"
        return ClusterError(
            f"cluster {address}: the scheduler is gone, and with it what was not finished",
            hint="start it again, then this command; nothing was written",
        )


def _do_part(*args: Any) -> worker.Done | tuple[StillImage, ...]:
    me = _dask().get_worker()
    return worker.do_part(*args, address=me.address, threads=me.state.nthreads)


@dataclass(slots=True)
class _Part:
    items: Sequence[Any]
    sent: dict[str, bytes] = field(default_factory=dict)  # contents of images, by digest
    killed: int = 0
    future: Any = None


class ClusterJob(contextlib.AbstractContextManager["ClusterJob[Item, Found]"], CrewJob[Item, Found]):
    """Work that all workers share."""

    engine = ""

    def __init__(self, work: CrewWork[Item, Found], cluster: Cluster, job: worker.Job) -> None:
        self._rows, self._cluster, self._job = work.rows, cluster, job
        self._work = cluster.submit(bytes, pickle.dumps(work, pickle.HIGHEST_PROTOCOL))
        self._ended = threading.Event()

    def each(self, items: Sequence[Item], *, on_item: Callable[[], None]) -> Iterator[Found]:
        threads = self._cluster.threads()
        size = 1 if self._job.is_small else _size(len(items), self._rows, max(1, threads))
        parts = deque(_Part(items[first : first + size]) for first in range(0, len(items), size))
        running: deque[_Part] = deque()
        try:
            while parts or running:
                while parts and len(running) < max(1, threads) * _PARTS_AHEAD:
                    running.append(parts.popleft())
                    self._send(running[-1])
                done = self._reply(running[0]) if running[0].future.done() else None
                if done is None:
                    self._ended.wait(_LOOK_EVERY_S)
                    self._ended.clear()
                    threads = self._cluster.threads()
                    continue
                for _ in running.popleft().items:
                    on_item()
                self.engine = done.engine
                yield from done.found
        finally:
            for part in running:
                part.future.cancel()

    def _send(self, part: _Part) -> None:
        part.future = self._cluster.submit(_do_part, self._job, self._work, part.items, part.sent)
        part.future.add_done_callback(lambda future: self._ended.set())

    def _reply(self, part: _Part) -> worker.Done | None:
        """Return what a part came to; None: it is sent once more."""
        error = part.future.exception(timeout=_ANSWER_S) if part.future.status == "error" else None
        if isinstance(error, _dask().scheduler.KilledWorker):
            part.killed += 1
            if part.killed > _MOST_KILLED:
                hint = "have they enough memory? each takes what one process of as many cores would take"
                raise ClusterError("cluster: workers die again and again with the same part", hint=hint)
        elif isinstance(error, ImportError):
            raise ConfigError(f"a worker cannot take part: it has not this edge-deploy: {error}")
        elif error is not None:
            raise error
        reply = None
        if part.future.status == "finished":
            with contextlib.suppress(Exception):  # the worker that has it may be gone meanwhile
                reply = part.future.result(timeout=_PATIENCE_S)
        if isinstance(reply, worker.Done):
            return reply
        part.sent |= {image.sha256: image_content(image, MAX_FILE_BYTES) for image in reply or ()}
        self._send(part)
        return None

    def __exit__(self, *error: object) -> None:
        self._work.release()


def _size(items: int, rows: int, workers: int) -> int:
    """Return how many items make a part: whole canvases, and enough parts for all workers."""
    wanted = min(_MOST_ITEMS, -(-items // (workers * _PARTS_PER_WORKER)))
    return max(1, -(-wanted // rows)) * rows


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
