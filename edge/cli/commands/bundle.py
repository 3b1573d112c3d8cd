"""`edge-deploy bundle`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from edge.bundle.manifest import GoldenFrames, GoldenLimits
from edge.bundle.software import software_of
from edge.cli.bundles import (
    check_libraries,
    echo_doubts,
    echo_secrets,
    echo_wide_limits,
    golden_limit_option,
    software_options,
)
from edge.cli.output import echo_result, echo_warnings, pair_lines
from edge.cli.paths import FOLDER, IMAGES, PIPELINE, READ, READ_FOLDER, command
from edge.deploy.packing.bundle import AgainOptions, Bundled, BundleOptions, make_again, make_bundle
from edge.errors import ConfigError

__all__ = ["bundle"]

_MIB = 1024 * 1024
_WITH_AGAIN = {"out", "key", "sequence", "expires_days"}


def _range(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str | None, str | None]:
    """`10.3..11`: an inclusive lower and an exclusive upper version, each of which may be left out."""
    low, dots, high = (".." if value is None else value).partition("..")
    if not dots or not all(re.fullmatch(r"[0-9.]*", part) for part in (low, high)):
        raise click.BadParameter(f"expected two versions such as 10.3..11, got {value!r}", ctx=ctx, param=param)
    return low or None, high or None


@command("""
  edge-deploy bundle pipelines/gates.yaml --golden val/images
  edge-deploy bundle gates.yaml --golden val/images --key ~/.ssh/release --compatible jetson-orin --expires-days 90
  edge-deploy bundle --again out/bundles/gates-3f9a1c07b2de.bundle
  edge-deploy bundle gates-of-may.yaml --golden val/images --downgrade 1795132800 --target gate-01 --expires-days 1
  SOURCE_DATE_EPOCH=1795132800 edge-deploy bundle gates.yaml -o out --json""")
@click.argument("pipeline", type=PIPELINE, required=False)
@click.option(
    "--again",
    type=READ_FOLDER,
    metavar="OLD.bundle",
    help="Sign what was bundled before for a new sequence: the way back for a ring. With -o, --key, --sequence, "
    "--expires-days.",
)
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    default=Path("out/bundles"),
    show_default=True,
    metavar="DIR",
    help="Folder of bundles; the new one becomes DIR/PIPELINE-RELEASE.bundle.",
)
@click.option("--key", type=READ, metavar="KEY", help="SSH key. Default: the first of ~/.ssh.")
@click.option(
    "--golden", type=IMAGES, metavar="DIR", help="Images to prove the release on. Default: frames of the clips."
)
@click.option(
    "--calibrated-on",
    "calibration_images",
    type=IMAGES,
    metavar="DIR",
    help="The images that the table was made from: leaves them, and copies of them, out of the golden frames.",
)
@golden_limit_option
@click.option("--no-golden", is_flag=True, help="Prove nothing; only a device with allow_unproven = true takes it.")
@click.option(
    "--channel", metavar="NAME", default="stable", show_default=True, help="Devices count sequences per channel."
)
@click.option("--sequence", type=click.IntRange(0, 2**53), metavar="N", help="Default: the time in seconds.")
@click.option(
    "--compatible",
    metavar="CLASS",
    multiple=True,
    default=("any",),
    show_default=True,
    help="Device class that may take it. A name of edge-deploy roofline --list is held against its bound.",
)
@click.option("--target", "targets", metavar="NAME", multiple=True, help="Device that may take it. Default: all.")
@click.option("--tensorrt", callback=_range, metavar="FROM..BELOW", help="Versions that it is for, such as 10.3..11")
@click.option("--l4t", callback=_range, metavar="FROM..BELOW", help="Versions that it is for, such as 36.3..")
@click.option(
    "--expires-days", type=click.IntRange(1, 36_500), metavar="N", help="Not taken later than that. Default: never."
)
@click.option(
    "--downgrade",
    "downgrade_from",
    type=click.IntRange(0, 2**53 - 1),
    metavar="COUNTER",
    help="Sign a permission to go back, once, from a device's highest sequence in `edge-deploy status`; with --target "
    "and --expires-days.",
)
@software_options
def bundle(
    pipeline: Path | None,
    again: Path | None,
    golden_limits: GoldenLimits | None,
    no_golden: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Check a pipeline, prove it on golden frames, sign it, and write it as a folder that can be pushed at any time.

    Golden frames are images on which the float model is run here; the engine that a device builds has to find the same,
    or the device does not switch. The release is put to that gate here first, in the precision of the pipeline.

    The same inputs give the same release, and with SOURCE_DATE_EPOCH the same bytes, signature included (Ed25519, RSA).
    Private keys and credentials are never bundled. A load that no machine of --compatible can serve is a warning.
    """
    if again is not None or pipeline is None:
        made = _signed_again(pipeline, again)
    else:
        _check_together(click.get_current_context().params)
        made = make_bundle(
            BundleOptions(
                pipeline=pipeline,
                created_at=_created_at(),
                has_golden=not no_golden,
                golden_limits=golden_limits or GoldenLimits(),
                **asked,
            ),
            on_step=lambda name: click.echo(f"{name} ...", err=True),
        )
        _warn(made, pipeline)
    echo_wide_limits(made.bundle)
    echo_result(made.as_json(), pair_lines(_lines(made)), as_json=as_json)


def _signed_again(pipeline: Path | None, again: Path | None) -> Bundled:
    if again is None or pipeline is not None:
        raise click.UsageError("add either PIPELINE or --again OLD.bundle")
    ctx, typed = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is typed}
    if others := sorted(given - _WITH_AGAIN - {"again", "as_json"}):
        words = {one.name: one.opts[0] for one in bundle.params}
        told = ", ".join(words[name] for name in others)
        raise click.UsageError(f"--again signs what is there as it is; leave out {told}")
    options = {name: ctx.params[name] for name in _WITH_AGAIN}
    return make_again(AgainOptions(bundle=again, created_at=_created_at(), **options))


def _check_together(given: Mapping[str, Any]) -> None:
    if given["no_golden"] and any(
        given[name] is not None for name in ("golden", "calibration_images", "golden_limits")
    ):
        raise click.UsageError("--no-golden contradicts --golden, --calibrated-on and --golden-limit; leave one out")
    if given["downgrade_from"] is not None and given["sequence"] is not None:
        raise click.UsageError("--downgrade takes the counter's place of --sequence; leave one out")
    check_libraries(given["has_software"], given["libraries"])


def _warn(made: Bundled, pipeline: Path) -> None:
    echo_secrets(pipeline)
    echo_doubts(made)
    if made.bundle.manifest.golden_frames is GoldenFrames.UNKNOWN:
        flatters = "the golden frames may be among the images of the calibration table, which then flatters it"
        echo_warnings([f"{flatters}; --calibrated-on DIR leaves those out"])
    echo_warnings(f"the streams ask for more than can be served: {sentence}" for sentence in made.beyond)


def _lines(made: Bundled) -> Iterator[tuple[str, str]]:
    manifest, brought = made.bundle.manifest, software_of(made.bundle.manifest)
    until = "" if manifest.expires_at is None else f", expires {manifest.expires_at}"
    yield "release", f"{manifest.release}, sequence {manifest.sequence} of {manifest.channel}{until}"
    if manifest.downgrade_from is not None:
        yield "permission", f"to go back once, from counter {manifest.downgrade_from}"
    yield "for", ", ".join(manifest.targets or manifest.compatible)
    if brought is not None:
        libraries = f" with {len(brought.wheels) - 1} libraries" if len(brought.wheels) > 1 else ""
        size = f"{brought.length_bytes / _MIB:.1f} MiB"
        yield "software", f"edge-deploy {brought.version}{libraries}, {brought.key[:12]}, {size}"
    size_mib = sum(one.length_bytes for one in manifest.files) / _MIB
    yield "files", f"{len(manifest.files)}, {size_mib:.1f} MiB"
    yield "golden", _golden_line(made)
    if not made.is_again:
        yield "model", f"license {made.model_license or 'unknown: state it as model.license in the pipeline file'}"
    yield "signer", f"{made.signer} ({made.key})"
    yield "bundle", str(made.bundle.path)


def _golden_line(made: Bundled) -> str:
    if made.is_again:
        return f"as before ({made.bundle.manifest.golden_frames.value})"
    if made.golden is None:
        return "none, it is unproven: a device takes it only with allow_unproven = true"
    score, manifest = made.golden.score, made.bundle.manifest
    return (
        f"{score.images} images, {score.found} of {score.expected} found, {score.extra} extra, "
        f"scores differ by {score.score_error:.3f} ({manifest.golden_frames.value})"
    )


def _created_at() -> datetime:
    """Return now, or the time that SOURCE_DATE_EPOCH states (reproducible-builds.org)."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        return datetime.now(timezone.utc)
    try:
        return datetime.fromtimestamp(int(text), timezone.utc)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"SOURCE_DATE_EPOCH: expected seconds since 1970, got {text!r}") from None
