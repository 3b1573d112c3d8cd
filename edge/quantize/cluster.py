"""The crew (`edge.quantize.crew`) of a Dask scheduler's workers, here or elsewhere (docs/cluster.md).

Results are handed on in the order of the items, so sums depend on the items only; what a dead worker was at, Dask gives
to another. A cluster runs whatever it is sent: ours listens on 127.0.0.1 only, with a certificate made for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import pickle
import platform
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import edge
from edge.engine.kinds import facts_of_kind, use_at_most
from edge.errors import ClusterError, ConfigError, MissingDependencyError
from edge.media.images import MAX_FILE_BYTES, decode_image
from edge.quantize.crew import CrewJob, CrewWork, Tool
from edge.quantize.stills import StillImage, image_content
from edge.reading import read_file
from edge.version import __version__

__all__ = ["Likeness", "cluster_at", "workers_here"]

Item = TypeVar("Item")
Found = TypeVar("Found")
_CONNECT_S, _ANSWER_S, _PATIENCE_S, _LOOK_EVERY_S = 10.0, 20.0, 60.0, 0.5
_MOST_ITEMS, _PARTS_PER_WORKER, _PARTS_AHEAD = 8, 4, 4
_INSTALL = "pip install 'edge-deploy[cluster]'"

_OPENCV = ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
_MODEL = ("vendor_id", "cpu family", "model", "model name", "CPU implementer", "CPU part", "CPU variant")
_VECTOR = ("sse", "ssse", "avx", "amx", "fma", "f16c", "gfni", "asimd", "sve", "i8mm", "bf16", "fp16", "sme")
_LIMITS = ("ONEDNN_", "DNNL_", "NPY_DISABLE_CPU", "NPY_ENABLE_CPU", "OPENCV_CPU_DISABLE", "OPENCV_IPP")


@dataclass(frozen=True, slots=True)
class Likeness:
    """Properties in which machines have to be equal, so that all make the same bytes (docs/adr/0005): versions, since
    arithmetic and formats change with them, and code, since a version does not show each change of it; unless it
    `mixes`, the processor, since sums in another order differ in their last bits. `kinds` are of engines.
    """

    kinds: tuple[str, ...]
    mixes: bool = False

    def here(self) -> tuple[str, frozenset[str]]:
        """Return the name of this machine, and what it has."""
        files = sorted(Path(edge.__file__).parent.rglob("*.py"))
        code = b"".join(hashlib.sha256(f"{path.name}\n".encode() + path.read_bytes()).digest() for path in files)
        names = ("numpy", "onnx", "msgspec", *_OPENCV)
        versions = {name: one.version for name in names for one in metadata.distributions(name=name)}
        for kind in self.kinds:
            versions |= facts_of_kind(kind).versions()
        has = [
            f"edge-deploy {__version__}",
            f"code {hashlib.sha256(code).hexdigest()[:12]}",
            f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}",
            *(" ".join(pair) for pair in versions.items()),
            *(() if self.mixes else _processor()),
        ]
        return socket.gethostname(), frozenset(has)


def _processor() -> Iterator[str]:
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0] if info.exists() else ""
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    model = " ".join(known[name] for name in _MODEL if name in known) or platform.processor() or "unknown"
    yield f"processor {platform.machine()} {model}"
    yield from (one for one in known.get("flags", known.get("Features", "")).split() if one.startswith(_VECTOR))
    yield from (f"{name}={value}" for name, value in os.environ.items() if name.startswith(_LIMITS))


def _require_alike(ours: frozenset[str], answers: Mapping[str, Any]) -> None:
    """Raise `ConfigError` that names workers that differ: `answers` are of `Likeness.here` by address, or errors."""
    refused = []
    for address, answer in answers.items():
        if isinstance(answer, BaseException):
            refused.append(f"worker {address} cannot take part: it has not this edge-deploy: {answer}")
        elif answer[1] != ours:
            there, here = (", ".join(sorted(some)) or "no more" for some in (answer[1] - ours, ours - answer[1]))
            refused.append(f"worker {address} on {answer[0]} cannot take part: {there} there, {here} here")
    if refused:
        hint = "install the very same on all machines, or leave these out; --mixed-cpus allows other processors"
        raise ConfigError("\n".join(refused), hint=hint)


class _Done(NamedTuple):
    """Results of a part, in order, and the name of the engine; or the images that have to be sent first."""

    found: Sequence[Any] = ()
    engine: str = ""
    missing: Sequence[StillImage] = ()


class _JobThere:
    """Work on a worker, with the tool that does it. Dask hands copies around, and each opens a tool of its own.

    `pickled`: the work. `folder`: where relative paths of images begin. `ours`: what the machine of the command has.
    Where the command has left the job, has ended or was killed, Dask drops it, and the tool is closed.
    """

    _tool: Tool[Any, Any] | None = None

    def __init__(self, pickled: bytes, is_small: bool, folder: Path, likeness: Likeness, ours: frozenset[str]) -> None:
        self._sent = (pickled, is_small, folder, likeness, ours)
        self._opening, self._using = threading.Lock(), threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _JobThere, self._sent

    def __del__(self) -> None:
        if self._tool is not None:
            self._tool.close()

    def do(self, items: Sequence[Any], sent: Mapping[str, bytes]) -> _Done:
        """Do the work with `items`; `sent` is contents of images by digest.
        Raises `ConfigError` if this worker, which may have come late, is not like the machine of the command; EdgeError
        raised by the tool.
        """
        (pickled, is_small, folder, likeness, ours), me = self._sent, _dask().get_worker()
        with self._opening:
            if self._tool is None:
                _require_alike(ours, {me.address: likeness.here()})
                use_at_most(me.state.nthreads)
                self._tool = pickle.loads(pickled).open()
            tool: Tool[Any, Any] = self._tool
        with contextlib.nullcontext() if is_small else self._using:  # an engine takes one thread at a time
            contents = [(image, _content(folder, image, sent)) for image in tool.images(items)]
            if missing := [image for image, content in contents if content is None]:
                return _Done(missing=missing)
            of_path = {image.path: content for image, content in contents if content is not None}
            found = tool.run(items, read=lambda path: decode_image(path, of_path.pop(path)), on_item=lambda: None)
            return _Done(found=list(found), engine=tool.name)


def _content(folder: Path, image: StillImage, sent: Mapping[str, bytes]) -> bytes | None:
    """Return the content that was sent, or the file at the path; None if it has another digest."""
    if image.sha256 in sent:
        return sent[image.sha256]
    with contextlib.suppress(OSError):
        content = read_file(folder / image.path, most_bytes=MAX_FILE_BYTES, follows_links=True)
        if hashlib.sha256(content).hexdigest() == image.sha256:
            return content
    return None


def _dask() -> Any:
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MissingDependencyError(f"Dask is not importable: {error}", hint=_INSTALL) from error
    if not logging.getLogger("edge").isEnabledFor(logging.INFO):
        quiet = ("distributed", "tornado", "asyncio", "bokeh")
        for name in (*quiet, *(one for one in logging.root.manager.loggerDict if one.partition(".")[0] in quiet)):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})  # models and images travel in them
    return distributed


@contextlib.contextmanager
def cluster_at(address: str, likeness: Likeness, *, security: Any = None) -> Iterator[Cluster]:
    """Yield the crew of the cluster whose scheduler is at `address`; `security`: distributed's, None is as configured.
    Raises ClusterError if it cannot be reached, or no worker comes; ConfigError if TLS is not configured, or a worker
    has another edge-deploy or processor; MissingDependencyError if Dask is not installed.
    """
    distributed = _dask()
    security = security or distributed.Security()

    async def knock() -> None:
        (await distributed.core.connect(address, timeout=_CONNECT_S, **security.get_connection_args("client"))).abort()

    try:
        asyncio.run(knock())  # a client without a scheduler complains when it is closed
        client = distributed.Client(address, security=security, timeout=_CONNECT_S, set_as_default=False)
    except (TypeError, RuntimeError) as error:
        hint = "certificates are named in Dask's configuration: distributed.comm.tls (docs/cluster.md)"
        raise ConfigError(f"cluster {address}: {_reason(error)}", hint=hint) from error
    except (OSError, asyncio.TimeoutError, MemoryError, ValueError, EOFError) as error:  # others' words as lengths
        told = f"cluster {address}: no Dask scheduler answers there: {_reason(error)}"
        raise ClusterError(told, hint="does `dask scheduler` run there, and does TLS fit on both sides?") from error
    try:
        yield Cluster(client, likeness)
    finally:
        with contextlib.suppress(asyncio.TimeoutError):
            client.close(timeout=_ANSWER_S / 4)


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
        resource_tracker.ensure_running()  # if it began later, it would let SIGINT through again behind itself
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # for their processes: we end them
        try:
            cluster = distributed.LocalCluster(security=distributed.Security.temporary(), **settings)
        except ImportError as error:
            raise MissingDependencyError(str(error), hint=_INSTALL) from error
        except (OSError, asyncio.TimeoutError, RuntimeError) as error:
            raise ClusterError(f"{workers} workers cannot be started on this machine: {_reason(error)}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with cluster, cluster_at(cluster.scheduler_address, likeness, security=cluster.security) as crew:
            yield crew


class Cluster:
    """Implements `edge.quantize.crew.Crew`: waits for a worker, and holds those that are there against this machine."""

    def __init__(self, client: Any, likeness: Likeness) -> None:
        self.client, self.likeness, (_, self.ours) = client, likeness, likeness.here()
        self._seen_at = time.monotonic()
        while not self.threads():
            time.sleep(_LOOK_EVERY_S)
        try:  # where a worker dies meanwhile, Dask looks for it for half a minute, and answers with an OSError
            found = client.run(likeness.here, on_error="return", callback_timeout=_PATIENCE_S)
        except Exception as error:
            raise self._gone() from error
        answers = {address: answer for address, answer in found.items() if not isinstance(answer, OSError)}
        if not answers:
            raise self._gone()
        _require_alike(self.ours, answers)

    def take_on(self, work: CrewWork[Item, Found]) -> ClusterJob[Item, Found]:
        return ClusterJob(work, self)

    def threads(self) -> int:
        """Raise `ClusterError` if the scheduler is gone, or there has been no worker for too long."""
        try:
            if self.client.status != "running":
                raise OSError(self.client.status)
            there = self.client.sync(self.client.scheduler.ncores, callback_timeout=_ANSWER_S)
        except Exception as error:
            raise self._gone() from error
        if there:
            self._seen_at = time.monotonic()
        elif time.monotonic() - self._seen_at > _PATIENCE_S:
            hint = "start some with this very edge-deploy: dask worker ADDRESS --nthreads 1"
            raise ClusterError(f"cluster: there has been no worker for {_PATIENCE_S:.0f} s", hint=hint)
        return sum(there.values())

    def _gone(self) -> ClusterError:
        address = getattr(self.client.scheduler, "address", None) or "the scheduler"
        told = f"cluster {address}: the scheduler is gone, and with it what was not finished"
        return ClusterError(told, hint="start it again, then this command; nothing was written")


@dataclass(slots=True)
class _Part:
    items: Sequence[Any]
    sent: dict[str, bytes] = field(default_factory=dict)  # contents of images, by digest
    future: Any = None
    came: _Done | BaseException | None = None


class ClusterJob(contextlib.AbstractContextManager["ClusterJob[Item, Found]"], CrewJob[Item, Found]):
    """Work that all workers share."""

    engine = ""

    def __init__(self, work: CrewWork[Item, Found], cluster: Cluster) -> None:
        self._rows, self._most, self._cluster = work.rows, 1 if work.is_small else _MOST_ITEMS, cluster
        pickled = pickle.dumps(work, pickle.HIGHEST_PROTOCOL)
        there = (pickled, work.is_small, Path.cwd(), cluster.likeness, cluster.ours)
        self._job = cluster.client.submit(_JobThere, *there, pure=False)
        self._ended = threading.Event()

    def each(self, items: Sequence[Item], *, on_item: Callable[[], None]) -> Iterator[Found]:
        wanted = min(self._most, -(-len(items) // (max(1, self._cluster.threads()) * _PARTS_PER_WORKER)))
        size = max(1, -(-wanted // self._rows)) * self._rows  # whole canvases
        parts = deque(_Part(items[first : first + size]) for first in range(0, len(items), size))
        try:
            while parts:
                for part in islice(parts, max(1, self._cluster.threads()) * _PARTS_AHEAD):
                    self._look_at(part)
                came = parts[0].came
                if came is None:
                    self._ended.wait(_LOOK_EVERY_S)
                    self._ended.clear()
                    continue
                if isinstance(came, BaseException):
                    raise _raised(came)
                for _ in parts.popleft().items:
                    on_item()
                self.engine = came.engine
                yield from came.found
        finally:
            for future in (part.future for part in parts if part.future is not None):
                future.cancel()

    def _look_at(self, part: _Part) -> None:
        """Keep what a part came to, or send it, once more if need be."""
        status = None if part.future is None else part.future.status
        if part.came is not None or status == "pending":
            return
        if status == "error":
            part.came = part.future.exception(timeout=_ANSWER_S)
        elif status == "finished":
            with contextlib.suppress(Exception):  # the worker that has it may be gone meanwhile
                part.came = part.future.result(timeout=_PATIENCE_S)
        if isinstance(part.came, _Done) and part.came.missing:
            part.sent |= {image.sha256: image_content(image) for image in part.came.missing}
            part.came = None
        if part.came is None:
            part.future = self._cluster.client.submit(_JobThere.do, self._job, part.items, part.sent, pure=False)
            part.future.add_done_callback(lambda future: self._ended.set())

    def __exit__(self, *error: object) -> None:
        self._job.release()


def _raised(error: BaseException) -> BaseException:
    if isinstance(error, _dask().KilledWorker):
        hint = "have they enough memory? each takes what one process of as many cores would take"
        return ClusterError("cluster: workers die again and again with the same part", hint=hint)
    if isinstance(error, ImportError):
        return ConfigError(f"a worker cannot take part: it has not this edge-deploy: {error}")
    return error


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
