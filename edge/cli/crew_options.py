"""Where `calibrate`, `evaluate` and `compare` compute: in this process, in more of them, or on a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import click

from edge.engine.kind import EngineKind, quick_kind
from edge.quantize.cluster import Likeness, cluster_at, workers_here
from edge.quantize.crew import Crew, Here

__all__ = ["crew_options", "crew_that"]

_MOST_WORKERS = 1024
_ADDRESS = re.compile(r"(?:tcp|tls)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")
Function = TypeVar("Function", bound=Callable[..., Any])


class _Scheduler(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`tls://HOST:PORT` or `tcp://HOST:PORT`."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = _ADDRESS.fullmatch(str(value))
        if found is None or not 0 < int(found[1]) < 1 << 16:
            self.fail(
                f"cluster {value!r}: expected the address of a Dask scheduler, as tls://HOST:8786; tcp://HOST:8786 is "
                "one without encryption, where everybody who reaches it may run anything",
                param,
                ctx,
            )
        return str(value)


def crew_options(command: Function) -> Function:
    """Add the options; the command is given `cluster`, `workers` and `mixes_cpus`, which are for `crew_that`."""
    for option in (
        click.option(
            "--mixed-cpus",
            "mixes_cpus",
            is_flag=True,
            help="With --cluster: let workers with other processors take part; last digits may differ then.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1, _MOST_WORKERS),
            metavar="N",
            help="Share the work among N processes of this machine (extra: cluster). The result is the same.",
        ),
        click.option(
            "--cluster",
            type=_Scheduler(),
            metavar="ADDRESS",
            help="Share the work among the workers of a Dask scheduler, as tls://host:8786. The result is the same.",
        ),
    ):
        command = option(command)
    return command


def crew_that(
    *, cluster: str | None, workers: int | None, mixes_cpus: bool, kind: EngineKind
) -> AbstractContextManager[Crew]:
    """Return the crew of `kind`; click.UsageError if options do not go together, EdgeError on entering it."""
    if cluster is not None and workers is not None:
        raise click.UsageError("--cluster and --workers: give one of the two")
    if mixes_cpus and cluster is None:
        raise click.UsageError("--mixed-cpus is about the workers of a --cluster, and none is named")
    likeness = Likeness((kind.name, quick_kind(kind).name), mixes=mixes_cpus)
    if cluster is not None:
        return cluster_at(cluster, likeness)
    return nullcontext(Here()) if workers is None else workers_here(workers, likeness)
