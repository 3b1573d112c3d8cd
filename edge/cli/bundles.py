"""A pipeline or a bundle, as commands are given it: in the end a bundle."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edge.bundle.folder import Bundle
    from edge.bundle.manifest import GoldenLimits
    from edge.deploy.provision.lock import Environment

__all__ = ["bundle_of", "check_libraries", "echo_secrets"]


def check_libraries(has_software: bool, libraries: Environment | None) -> None:
    """Raise click.UsageError for libraries of software that is not to travel."""
    if libraries is not None and not has_software:
        raise click.UsageError("--libraries are those of --software, which is missing")


def bundle_of(
    what: Path,
    *,
    key: Path | None,
    golden: Path | None,
    limits: GoldenLimits | None,
    has_software: bool = False,
    libraries: Environment | None = None,
) -> Bundle:
    """Return the bundle that `what` is, or that is made of the pipeline that it is; the latter is said on stderr.

    Raises:
        click.UsageError: for options that say how to make one, where one is there already.
        EdgeError: as `open_bundle` and `make_bundle`.
    """
    from edge.bundle.folder import open_bundle
    from edge.bundle.manifest import GoldenLimits

    check_libraries(has_software, libraries)
    if what.is_dir():
        if has_software or any(one is not None for one in (key, golden, limits)):
            raise click.UsageError(
                f"{what} is a bundle already; --key, --golden, --golden-limit, --software are for a pipeline"
            )
        return open_bundle(what)
    from edge.deploy.packing.bundle import BundleOptions, make_bundle

    made = make_bundle(
        BundleOptions(
            pipeline=what,
            out=Path("out/bundles"),
            created_at=datetime.now(timezone.utc),
            key=key,
            golden=golden,
            golden_limits=limits or GoldenLimits(),
            has_software=has_software,
            libraries=libraries,
        ),
        on_step=lambda name: click.echo(f"{name} ...", err=True),
    )
    click.echo(f"bundle {made.bundle.path}", err=True)
    echo_secrets(what)
    return made.bundle


def echo_secrets(pipeline: Path) -> None:
    """Name the secrets that a device has to have: they never travel, and a service without them does not start."""
    from edge.config.load import load_pipeline

    config = load_pipeline(pipeline).config
    stated = [stream.credential for stream in config.streams]
    stated += [] if config.mqtt is None else [config.mqtt.credential]
    names = sorted({name for name in stated if name is not None})
    if names:
        click.echo(f"each device needs these secrets of its own (docs/first-device.md): {', '.join(names)}", err=True)
