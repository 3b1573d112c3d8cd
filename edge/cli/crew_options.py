"""Who does the work of `calibrate`, `evaluate` and `compare`: this process, more of them, or a cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from edge.engine.kind import EngineKind
    from edge.quantize.crew import Crew

    _Word = click.ParamType[str]
else:
    _Word = click.ParamType  # not generic in older versions

__all__ = ["crew_options", "crew_that"]

_MOST_WORKERS = 1024
Function = TypeVar("Function", bound=Callable[..., Any])


class _Scheduler(_Word):
    """`tls://HOST:PORT` or `tcp://HOST:PORT`."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from edge.errors import ConfigError
        from edge.quantize.cluster.address import scheduler_address

        try:
            return scheduler_address(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


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
    """Return who does the work, with engines of `kind`.

    Raises:
        click.UsageError: if the options do not go together.
        EdgeError: when it is entered, if a cluster cannot be used.
    """
    from edge.engine.select import quick_kind
    from edge.quantize.crew import Here

    if cluster is not None and workers is not None:
        raise click.UsageError("--cluster and --workers: give one of the two")
    if mixes_cpus and cluster is None:
        raise click.UsageError("--mixed-cpus is about the workers of a --cluster, and none is named")
    if cluster is None and workers is None:
        return Here()
    from edge.quantize.cluster.crew import cluster_at, workers_here
    from edge.quantize.cluster.members import Settings

    kinds = tuple(dict.fromkeys((kind.name, quick_kind(kind).name)))
    settings = Settings(may_mix_processors=mixes_cpus, tell=lambda text: click.echo(f"warning: {text}", err=True))
    if workers is not None:
        return workers_here(workers, kinds, settings)
    assert cluster is not None
    return cluster_at(cluster, kinds, settings)
