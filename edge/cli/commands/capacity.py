"""`edge-deploy capacity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.cli.options import SECONDS
from edge.cli.paths import PIPELINE, command
from edge.errors import ConfigError

if TYPE_CHECKING:
    from edge.capacity.fit import Estimate
    from edge.capacity.platform import Platform
    from edge.capacity.work import Video, Work

__all__ = ["capacity"]


@command("""
  edge-deploy capacity gates.yaml
  edge-deploy capacity gates.yaml --machine orin-nano-8gb-super/25W --machine orin-nx-16gb
  edge-deploy capacity gates.yaml --all --assume 1280x720@15/h265
  edge-deploy capacity gates.yaml --stream east=2560x1440@25/h265 --no-look --headroom 0.5 --json

\b
What the figures mean, and what they rest on: docs/sizing.md""")
@click.argument("path", type=PIPELINE, metavar="PIPELINE")
@click.option(
    "--machine", "names", multiple=True, metavar="NAME[/MODE]", help="Of roofline --list, or a proof's file; repeat."
)
@click.option("--all", "is_all", is_flag=True, help="Every machine of the table in every power mode.")
@click.option(
    "--headroom", type=float, default=0.3, show_default=True, metavar="SHARE", help="Of each resource, left free."
)
@click.option(
    "--stream",
    "stated",
    multiple=True,
    metavar="ID=VIDEO",
    help="What a stream sends; it is not looked at then. What VIDEO leaves out is as assumed.",
)
@click.option(
    "--assume",
    "assumed",
    metavar="VIDEO",
    help="What streams send that cannot be reached, as WIDTHxHEIGHT[@FPS][/CODEC].  [default: 1920x1080@30/h264]",
)
@click.option("--no-look", is_flag=True, help="Connect to no stream.")
@click.option(
    "--timeout", "within_s", type=SECONDS, default=5, show_default=True, metavar="S", help="For each first frame."
)
def capacity(
    path: Path,
    names: tuple[str, ...],
    is_all: bool,
    headroom: float,
    stated: tuple[str, ...],
    assumed: str | None,
    no_look: bool,
    within_s: float,
    as_json: bool,
) -> None:
    """Say which machine serves a pipeline, what runs out first there, and how many such cameras fit.

    Streams are looked at where they can be reached. Every figure is an interval: a bound that no engine beats, and what
    is typical by published measurements of models on these boards. Neither is a promise.

    Without --machine each Jetson module is judged at the most that it can do, and the smallest that serves the pipeline
    is named, with its power mode.
    """
    from edge.capacity.fit import answer_of, require_headroom, smallest
    from edge.capacity.platform import jetson_modes
    from edge.capacity.work import ASSUMED, model_of_pipeline, video_from_text, work_of
    from edge.cli.output import echo_json
    from edge.config.load import load_pipeline
    from edge.deploy.look import cameras_of

    if names and is_all:
        raise click.UsageError("--all has every machine already; leave --machine out")
    require_headroom(headroom)
    platforms = _platforms(names, is_all=is_all)
    base = ASSUMED if assumed is None else video_from_text(assumed, base=ASSUMED)
    told = _stated(stated, base)
    pipeline = load_pipeline(path)
    model = model_of_pipeline(pipeline)
    cameras = cameras_of(pipeline, stated=told, assumed=base, within_s=None if no_look else within_s)
    work = work_of(pipeline, model, cameras)
    answers = [answer_of(work, platform, headroom=headroom) for platform in platforms]
    best = smallest(work, list(jetson_modes()), headroom=headroom)
    if as_json:
        echo_json(_as_json(work, answers, best, headroom))
    else:
        _echo(work, answers, best, headroom, is_one=len(names) > 0)


def _platforms(names: tuple[str, ...], *, is_all: bool) -> list[Platform]:
    from edge.capacity.platform import jetson_modules, platform_of
    from edge.roofline.machines import all_machines
    from edge.roofline.proof import machine_named

    if names:
        return [platform_of(machine_named(name)) for name in dict.fromkeys(names)]
    if not is_all:
        return list(jetson_modules())
    return [platform_of(found) for one in all_machines() for found in (one, *one.in_each_mode())]


def _stated(texts: tuple[str, ...], base: Video) -> dict[str, Video]:
    from edge.capacity.work import video_from_text

    found: dict[str, Video] = {}
    for text in texts:
        name, sign, video = text.partition("=")
        if not sign:
            raise ConfigError(f"--stream {text!r}: expected ID=WIDTHxHEIGHT[@FPS][/CODEC]")
        if name in found:
            raise ConfigError(f"--stream {name}: is stated twice")
        found[name] = video_from_text(video, base=base)
    return found


def _as_json(work: Work, answers: list[Estimate], best: Estimate | None, headroom: float) -> dict[str, Any]:
    return {
        "model": work.model.spec.name,
        "precision": work.model.precision.value,
        "max_frames": work.max_frames,
        "headroom": headroom,
        "wanted_fps": work.wanted_fps,
        "decoded_fps": work.decoded_fps,
        "streams": [camera.as_json() for camera in work.cameras],
        "smallest": None if best is None else best.as_json(),
        "machines": [answer.as_json() for answer in answers],
    }


def _echo(work: Work, answers: list[Estimate], best: Estimate | None, headroom: float, *, is_one: bool) -> None:
    from edge.cli.capacity_lines import answer_lines, capacity_summary_lines, served_line, smallest_line, work_lines
    from edge.cli.output import echo_parts

    parts = [work_lines(work), *(map(answer_lines, answers) if is_one else [capacity_summary_lines(answers)])]
    echo_parts([*parts, [smallest_line(best, headroom), *([served_line(answers)] if is_one else [])]])
