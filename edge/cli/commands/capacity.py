"""`edge-deploy capacity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.cli.lazy import verbosity_option
from edge.cli.options import SECONDS
from edge.cli.paths import PIPELINE, Command
from edge.errors import ConfigError

if TYPE_CHECKING:
    from edge.capacity.demand import Video
    from edge.capacity.fit import Estimate
    from edge.capacity.platform import Platform
    from edge.capacity.work import Work
    from edge.config.pipeline import Pipeline

__all__ = ["capacity"]


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy capacity gates.yaml
  edge-deploy capacity gates.yaml --machine orin-nano-8gb-super/25W --machine orin-nx-16gb
  edge-deploy capacity gates.yaml --machine this
  edge-deploy capacity gates.yaml --all --assume 1280x720@15/h265
  edge-deploy capacity gates.yaml --stream east=2560x1440@25/h265 --no-look --headroom 0.5 --json

\b
What the figures mean, and what they rest on: docs/capacity.md""",
)
@click.argument("path", type=PIPELINE, metavar="PIPELINE")
@click.option(
    "--machine", "names", multiple=True, metavar="NAME[/MODE]", help="A machine; this: measured here. Repeat."
)
@click.option("--all", "is_all", is_flag=True, help="Every machine of the table in every power mode.")
@click.option(
    "--headroom", type=float, default=0.3, show_default=True, metavar="SHARE", help="Of each resource, left free."
)
@click.option(
    "--stream", "stated", multiple=True, metavar="ID=VIDEO", help="What a stream sends; it is not looked at then."
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
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
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
    is named, with its power mode. `--machine this` measures this one, and the model on it.
    """
    from edge.capacity.demand import ASSUMED, video_from_text
    from edge.capacity.fit import answer_of, require_headroom, smallest
    from edge.capacity.platform import jetson_modes
    from edge.capacity.work import model_of_pipeline, work_of
    from edge.cli.output import echo_json
    from edge.config.load import load_pipeline
    from edge.deploy.look import cameras_of

    if names and is_all:
        raise click.UsageError("--all has every machine already; leave --machine out")
    require_headroom(headroom)
    known = _known_platforms(names, is_all=is_all)
    told = _stated(stated)
    pipeline = load_pipeline(path)
    model = model_of_pipeline(pipeline)
    base = ASSUMED if assumed is None else video_from_text(assumed)
    cameras = cameras_of(pipeline, stated=told, assumed=base, within_s=None if no_look else within_s)
    work = work_of(pipeline, model, cameras)
    platforms = [_this(name, pipeline, work) if platform is None else platform for name, platform in known]
    answers = [answer_of(work, platform, headroom=headroom) for platform in platforms]
    best = smallest(work, list(jetson_modes()), headroom=headroom)
    if as_json:
        echo_json(_as_json(work, answers, best, headroom))
    else:
        _echo(work, answers, best, headroom, is_one=len(names) > 0)


def _known_platforms(names: tuple[str, ...], *, is_all: bool) -> list[tuple[str, Platform | None]]:
    """Return the machines by their names; None: this one, which is measured when all else is known to be well."""
    from edge.capacity.platform import jetson_modules, platform_of
    from edge.quantize.this_machine import cores_of, is_this_machine
    from edge.roofline.machines import all_machines, find_machine
    from edge.roofline.measured import THIS

    for name in names:
        if is_this_machine(name):
            cores_of(name)
    if names:
        asked = dict.fromkeys(names)
        return [
            (name, None if is_this_machine(name) else platform_of(find_machine(name, beside=(THIS,)))) for name in asked
        ]
    if not is_all:
        return [(one.called, one) for one in jetson_modules()]
    every = [platform_of(found) for one in all_machines() for found in (one, *one.in_each_mode())]
    return [(one.called, one) for one in every]


def _this(name: str, pipeline: Pipeline, work: Work) -> Platform:
    from edge.capacity.here import measured_platform
    from edge.cli.output import progress_bar
    from edge.quantize.this_machine import ROUNDS

    with progress_bar("measuring", total=ROUNDS) as bar:
        return measured_platform(name, pipeline, work, on_round=bar.advance)


def _stated(texts: tuple[str, ...]) -> dict[str, Video]:
    from edge.capacity.demand import video_from_text

    found: dict[str, Video] = {}
    for text in texts:
        name, sign, video = text.partition("=")
        if not sign:
            raise ConfigError(f"--stream {text!r}: expected ID=WIDTHxHEIGHT[@FPS][/CODEC]")
        if name in found:
            raise ConfigError(f"--stream {name}: is stated twice")
        found[name] = video_from_text(video)
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
    from edge.cli.capacity_lines import answer_lines, capacity_summary_lines, smallest_line, work_lines

    parts = [list(work_lines(work))]
    parts += [list(answer_lines(answer)) for answer in answers] if is_one else [list(capacity_summary_lines(answers))]
    click.echo("\n\n".join("\n".join(part) for part in parts))
    click.echo("\n" + smallest_line(best, headroom))
