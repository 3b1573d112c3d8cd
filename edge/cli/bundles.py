"""A pipeline or a bundle, as commands are given it, and the options by which a bundle is made; no device has them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edge.bundle.folder import Bundle, open_bundle
from edge.bundle.manifest import GoldenLimits
from edge.cli.output import echo_warnings
from edge.cli.paths import IMAGES, READ
from edge.config.pipeline import load_pipeline
from edge.deploy.provision.facts import ENVIRONMENTS, Environment

if TYPE_CHECKING:
    from edge.deploy.packing.bundle import Bundled

__all__ = [
    "bundle_of",
    "check_libraries",
    "echo_doubts",
    "echo_secrets",
    "echo_wide_limits",
    "golden_limit_option",
    "making_options",
    "software_options",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_LIMITS = {"recall": "min_recall", "extra": "max_extra", "iou": "min_iou", "score-error": "max_score_error"}


class _DeviceKind(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A kind of device by machine and Python, as the lock of wheels names it."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Environment:
        known = {str(one): one for one in ENVIRONMENTS}
        if str(value) not in known:
            self.fail(f"wheels are locked for no {value!r}; expected one of {', '.join(known)}", param, ctx)
        return known[str(value)]


def _golden_limits(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> GoldenLimits | None:
    """`recall=0.97`: the limits that are named, the others as they are by default; None where none is."""
    if not given:
        return None
    values: dict[str, float] = {}
    for one in given:
        name, _, text = one.partition("=")
        if name not in _LIMITS:
            raise click.BadParameter(f"{one!r}: expected one of {', '.join(_LIMITS)}, as in recall=0.97", ctx, param)
        if _LIMITS[name] in values:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
        try:
            values[_LIMITS[name]] = float(text)
        except ValueError:
            values[_LIMITS[name]] = math.nan
        if not 0 <= values[_LIMITS[name]] <= 1:
            raise click.BadParameter(f"{one!r}: expected a number from 0 to 1, as in {name}=0.9", ctx, param)
    return dataclasses.replace(GoldenLimits(), **values)


golden_limit_option = click.option(
    "--golden-limit",
    "golden_limits",
    multiple=True,
    callback=_golden_limits,
    metavar="NAME=VALUE",
    help="What has to hold on the golden frames, here and on the device: recall (0.95; the classic 3 % is 0.97), "
    "extra (0.05), iou (0.5), score-error (0.1). Repeat for more.",
)


def software_options(command: _F) -> _F:
    """Add `--software` and `--libraries`: what the release runs with travels in it."""
    libraries = click.option(
        "--libraries",
        type=_DeviceKind(),
        metavar="KIND",
        help="With --software, also its libraries, for one kind of device: aarch64-cp310 (JetPack 6), ...",
    )
    software = click.option(
        "--software",
        "has_software",
        is_flag=True,
        help="The software that runs here travels in the release, which then runs with it: docs/push.md.",
    )
    return software(libraries(command))


def making_options(command: _F) -> _F:
    """Add the options of a bundle that a command makes of a pipeline; `bundle_of` takes them."""
    golden = click.option(
        "--golden", type=IMAGES, metavar="DIR", help="Images to prove a pipeline's bundle on. Default: of its clips."
    )
    key = click.option("--key", type=READ, metavar="KEY", help="SSH key that signs a pipeline's bundle.")
    return key(golden(golden_limit_option(software_options(command))))


def check_libraries(has_software: bool, libraries: Environment | None) -> None:
    """Raise click.UsageError for libraries of software that is not to travel."""
    if libraries is not None and not has_software:
        raise click.UsageError("--libraries are those of --software, which is missing")


def bundle_of(
    what: Path,
    *,
    key: Path | None,
    golden: Path | None,
    golden_limits: GoldenLimits | None,
    has_software: bool,
    libraries: Environment | None,
) -> Bundle:
    """Return the bundle that `what` is, or that is made of the pipeline that it is; the latter is said on stderr.

    Raises click.UsageError for options of making, where a bundle is there; EdgeError.
    """
    check_libraries(has_software, libraries)
    if what.is_dir():
        if has_software or any(one is not None for one in (key, golden, golden_limits)):
            raise click.UsageError(
                f"{what} is a bundle already; --key, --golden, --golden-limit, --software are for a pipeline"
            )
        bundle = open_bundle(what)
        echo_wide_limits(bundle)
        return bundle
    from edge.deploy.packing.bundle import BundleOptions, make_bundle  # which a bundle that is there needs not

    made = make_bundle(
        BundleOptions(
            pipeline=what,
            out=Path("out/bundles"),
            created_at=datetime.now(timezone.utc),
            key=key,
            golden=golden,
            golden_limits=golden_limits or GoldenLimits(),
            has_software=has_software,
            libraries=libraries,
        ),
        on_step=lambda name: click.echo(f"{name} ...", err=True),
    )
    click.echo(f"bundle {made.bundle.path}", err=True)
    echo_secrets(what)
    echo_doubts(made)
    echo_wide_limits(made.bundle)
    return made.bundle


def echo_wide_limits(bundle: Bundle) -> None:
    """Name the limits of a release on its golden frames that are wider than the defaults."""
    given, usual = bundle.manifest.golden, GoldenLimits()
    wide = [
        f"{name} {value:g} ({default:g})"
        for name, field in _LIMITS.items()
        for value, default in [(getattr(given, field), getattr(usual, field))]
        if (value > default if field.startswith("max_") else value < default)
    ]
    if wide:
        echo_warnings([f"golden limits are wider than the defaults: {', '.join(wide)}"])


def echo_doubts(made: Bundled) -> None:
    """Say what makes the proof of a release weak, and for which Q/DQ pairs a device may refuse to build its engine."""
    echo_warnings(f"golden frames: {sentence}" for sentence in (made.golden.notes if made.golden else ()))
    echo_warnings(f"a device may refuse the Q/DQ pairs of the model: {sentence}" for sentence in made.not_taken)


def echo_secrets(pipeline: Path) -> None:
    """Name the secrets that a device has to have: they never travel, and a service without them does not start."""
    config = load_pipeline(pipeline).config
    stated = [stream.credential for stream in config.streams]
    stated += [] if config.mqtt is None else [config.mqtt.credential]
    names = sorted({name for name in stated if name is not None})
    if names:
        click.echo(f"each device needs these secrets of its own (docs/first-device.md): {', '.join(names)}", err=True)
