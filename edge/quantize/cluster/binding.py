"""The only module that imports Dask, and only when it is used; nobody is told of it.

A cluster executes whatever it is sent. So the one of this machine alone listens on 127.0.0.1 only, and takes nobody
who has not the certificate that is made for it and never written anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
from collections.abc import Callable, Collection, Iterator
from multiprocessing import resource_tracker
from typing import Any

from edge.errors import ClusterError, ConfigError, MissingDependencyError

__all__ = [
    "CONNECT_S",
    "Future",
    "ask_scheduler",
    "ask_workers",
    "connected",
    "is_killed_worker",
    "started_here",
    "submit",
    "this_worker",
    "threads_of",
]

CONNECT_S = 10.0
_ANSWER_S = 20.0
_QUIET = ("distributed", "tornado", "asyncio", "bokeh")
Future = Any  # distributed.Future


def _import() -> Any:
    try:
        import dask
        import distributed
        import distributed.scheduler
    except ImportError as error:
        raise MissingDependencyError(
            f"Dask is not importable: {error}", hint="pip install 'edge-deploy[cluster]'"
        ) from error
    if not logging.getLogger("edge").isEnabledFor(logging.INFO):
        named = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _QUIET]
        for name in (*_QUIET, *named):  # Dask sets some by name; what matters of it is told by us, once
            logging.getLogger(name).setLevel(logging.CRITICAL)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})  # models and images travel in them
    return distributed


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Yield a client of the scheduler at `address`; TLS as Dask's own configuration says.

    Raises:
        ClusterError: if it cannot be reached, or does not answer as one.
        ConfigError: if TLS is not configured for a `tls://` address.
        MissingDependencyError: if Dask is not installed.
    """
    distributed = _import()
    # A client that finds no scheduler lives on, and complains about itself when it is taken down.
    try:
        asyncio.run(_knock(address))
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (TypeError, RuntimeError) as error:
        raise ConfigError(
            f"cluster {address}: {_reason(error)}",
            hint="certificates are named in Dask's configuration: distributed.comm.tls (docs/cluster.md)",
        ) from error
    except (OSError, MemoryError, ValueError, EOFError) as error:  # what others say is read as lengths, too
        raise ClusterError(
            f"cluster {address}: no Dask scheduler answers there: {_reason(error)}",
            hint="is `dask scheduler` running there, and does TLS fit on both sides?",
        ) from error
    try:
        yield client
    finally:
        with contextlib.suppress(TimeoutError):
            client.close(timeout=_ANSWER_S / 4)


async def _knock(address: str) -> None:
    """See whether somebody answers who speaks as Dask does."""
    distributed = _import()
    settings = distributed.Security().get_connection_args("client")
    comm = await distributed.core.connect(address, timeout=CONNECT_S, **settings)
    comm.abort()


@contextlib.contextmanager
def started_here(workers: int, *, threads: int) -> Iterator[Any]:
    """Yield a client of so many worker processes on this machine, which end with the context.

    Raises:
        ClusterError: if they cannot be started.
        MissingDependencyError: if Dask is not installed.
    """
    distributed = _import()
    import dask

    try:
        security = distributed.Security.temporary()
    except ImportError as error:
        raise MissingDependencyError(str(error), hint="pip install 'edge-deploy[cluster]'") from error
    quiet: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
    with tempfile.TemporaryDirectory(prefix="edge-workers-") as folder, dask.config.set(quiet):
        try:
            with _deaf_to_ctrl_c():
                cluster = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads,
                    processes=True,
                    host="127.0.0.1",
                    protocol="tls://",
                    security=security,
                    scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                    memory_limit=None,
                    local_directory=folder,
                    silence_logs=logging.CRITICAL,
                )
        except (OSError, RuntimeError) as error:
            raise ClusterError(f"{workers} workers cannot be started on this machine: {_reason(error)}") from error
        with cluster, distributed.Client(cluster, set_as_default=False, timeout=CONNECT_S) as client:
            yield client


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Let threads and processes that begin here, and those that they begin, never see a Ctrl-C: we end them."""
    resource_tracker.ensure_running()  # it would let the signal through again behind itself
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def threads_of(client: Any) -> dict[str, int]:
    """Return the workers that there are: how many threads each has, by its address.

    Raises:
        ClusterError: if the scheduler does not answer.
    """
    if client.status != "running":
        raise _gone(client)
    try:
        found: dict[str, int] = client.sync(client.scheduler.ncores, callback_timeout=_ANSWER_S)
    except Exception as error:  # whatever a broken connection makes of itself
        raise _gone(client) from error
    return found


def ask_workers(client: Any, function: Callable[..., Any], *args: Any, workers: Collection[str]) -> dict[str, Any]:
    """Return what each of `workers` returns or raises, by its address; those that do not answer in time are left out.

    Unlike `submit` this asks a worker that may not have the function: one that is sent a task that it cannot read ends.

    Raises:
        ClusterError: if the scheduler is gone.
    """
    settings = {"on_error": "return", "callback_timeout": _ANSWER_S}
    try:
        answers: dict[str, Any] = client.run(function, *args, workers=list(workers), **settings)
    except TimeoutError:
        return {} if len(workers) == 1 else _one_by_one(client, function, *args, workers=workers)
    except Exception as error:
        if client.status != "running":
            raise _gone(client) from error
        return {}
    return {address: one for address, one in answers.items() if not isinstance(one, OSError)}


def _one_by_one(client: Any, function: Callable[..., Any], *args: Any, workers: Collection[str]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for worker in workers:
        answers |= ask_workers(client, function, *args, workers=[worker])
    return answers


def ask_scheduler(client: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Return what the scheduler returns or raises.

    Raises:
        ClusterError: if it is gone.
    """
    try:
        return client.run_on_scheduler(function, *args, callback_timeout=_ANSWER_S)
    except (ImportError, AttributeError) as error:
        return error
    except Exception as error:
        if client.status == "running" and not isinstance(error, (OSError, TimeoutError)):
            return error
        raise _gone(client) from error


def submit(
    client: Any,
    function: Callable[..., Any],
    *args: Any,
    key: str,
    workers: Collection[str],
    on_end: Callable[[Future], None],
) -> Future:
    """Return what one of `workers` will have done; `on_end` is called by another thread when it has, or cannot.

    Raises:
        ClusterError: if the scheduler is gone.
    """
    if client.status != "running":
        raise _gone(client)
    future = client.submit(function, *args, key=key, workers=list(workers), allow_other_workers=False, pure=False)
    future.add_done_callback(on_end)
    return future


def this_worker() -> str:
    """Return the address of the worker that this runs on."""
    address: str = _import().get_worker().address
    return address


def is_killed_worker(error: BaseException | None) -> bool:
    """Return whether Dask has given up on something because workers died with it."""
    return isinstance(error, _import().scheduler.KilledWorker)


def _gone(client: Any) -> ClusterError:
    address = getattr(client.scheduler, "address", None) or "the scheduler"
    return ClusterError(
        f"cluster {address}: the scheduler is gone, and with it what was not finished",
        hint="start it again, then this command; nothing was written",
    )


def _reason(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
