"""`edge-deploy capacity`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from edge.capacity.fit import MOST_CAMERAS, Estimate, answer_of, require_headroom, smallest
from edge.capacity.loads import Interval, ResourceLoad
from edge.capacity.platform import jetson_modes, jetson_modules, platform_of
from edge.capacity.work import ASSUMED, Video, Work, model_of_pipeline, video_from_text, work_of
from edge.cli.output import aligned, amount, echo_json, echo_parts, shown_width
from edge.cli.paths import PIPELINE, SECONDS, command
from edge.cli.roofline_lines import precision_word
from edge.config.pipeline import load_pipeline
from edge.deploy.look import cameras_of
from edge.errors import ConfigError
from edge.roofline.bound import require_bound
from edge.roofline.proof import machine_named

__all__ = ["capacity"]

_UNKNOWN = "?"
_SHARE = "s/s"
_LEAST_FPS = 0.05
_NOTHING = Interval(least=None, typical=None)
_HEAD = ("at least", "typical", "resource", "that is")
_SUMMARY_HEAD = ("cameras", "never more", "engine", "watts", "verdict", "first", "machine")


@command("""
  edge-deploy capacity gates.yaml
  edge-deploy capacity gates.yaml --machine orin-nano-8gb-super/25W --machine orin-nx-16gb
  edge-deploy capacity gates.yaml --assume 1280x720@15/h265
  edge-deploy capacity gates.yaml --stream east=2560x1440@25/h265 --no-look --headroom 0.5 --json

\b
What the figures mean, and what they rest on: docs/sizing.md""")
@click.argument("path", type=PIPELINE, metavar="PIPELINE")
@click.option(
    "--machine", "names", multiple=True, metavar="NAME[/MODE]", help="Of roofline --list, or a proof's file; repeat."
)
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
    require_headroom(headroom)
    platforms = [platform_of(machine_named(name)) for name in dict.fromkeys(names)] or list(jetson_modules())
    base = ASSUMED if assumed is None else video_from_text(assumed, base=ASSUMED)
    told = _stated(stated, base)
    pipeline = load_pipeline(path)
    model = model_of_pipeline(pipeline)
    for platform in platforms if names else ():
        require_bound(model.account(1), platform.machine)
    cameras = cameras_of(pipeline, stated=told, assumed=base, within_s=None if no_look else within_s)
    work = work_of(pipeline, model, cameras)
    answers = [answer_of(work, platform, headroom=headroom) for platform in platforms]
    best = smallest(work, list(jetson_modes()), headroom=headroom)
    if as_json:
        echo_json(_as_json(work, answers, best, headroom))
    else:
        _echo(work, answers, best, headroom, is_one=len(names) > 0)


def _stated(texts: tuple[str, ...], base: Video) -> dict[str, Video]:
    found: dict[str, Video] = {}
    for text in texts:
        name, sign, video = text.partition("=")
        if not sign:
            raise ConfigError(f"--stream {text!r}: expected ID=WIDTHxHEIGHT[@FPS][/CODEC]")
        if name in found:
            raise ConfigError(f"--stream {name}: is stated twice")
        found[name] = video_from_text(video, base=base)
    return found


def _as_json(work: Work, answers: Sequence[Estimate], best: Estimate | None, headroom: float) -> dict[str, Any]:
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


def _echo(work: Work, answers: Sequence[Estimate], best: Estimate | None, headroom: float, *, is_one: bool) -> None:
    parts = [_work_lines(work), *(map(_answer_lines, answers) if is_one else [_summary_lines(answers)])]
    echo_parts([*parts, [_smallest_line(best, headroom), *([_served_line(answers)] if is_one else [])]])


def _work_lines(work: Work) -> Iterator[str]:
    """Yield what the pipeline wants, and each stream with where its facts come from."""
    count = len(work.cameras)
    streams = "1 stream" if count == 1 else f"{count} streams"
    yield (
        f"{work.model.spec.name} in {precision_word(work.model.precision)}, {streams}: "
        f"{work.wanted_fps:.4g} frames per second to infer, {work.decoded_fps:.4g} to decode"
    )
    rows = [(camera.id, str(camera.video), f"{camera.wanted_fps:.4g}", camera.origin.value, camera.why or "")
            for camera in work.cameras]  # fmt: skip
    yield from aligned([("stream", "sends", "inferred", "known", "because"), *rows], texts=5)


def _answer_lines(answer: Estimate) -> Iterator[str]:
    """Yield what a machine gives, resource by resource, and what follows from that."""
    platform, loads = answer.platform, answer.loads
    assert loads is not None  # its peaks were required
    watts = "" if platform.watts is None else f", {platform.watts:g} W"
    yield f"{platform.machine.title} ({platform.called}){watts}"
    yield from aligned([_HEAD, *map(_cells, loads.each)])
    yield from (f"{load.name}: {load.note}" for load in loads.each if load.note is not None)
    yield f"a batch of {loads.frames} in the engine: {_ms(loads.batch_s)}; with waiting for it: {_ms(loads.latency_s)}"
    yield _verdict(answer)
    yield f"runs out first: {loads.first.name}"
    yield _fit(answer)
    if answer.is_beyond_bound or (answer.typical is not None and not answer.is_served):
        yield _slower(answer)


def _cells(load: ResourceLoad) -> tuple[str, ...]:
    is_its_own = load.unit == _SHARE or load.used == _NOTHING
    used = "" if is_its_own else f"{_amount(load.used.least)} to {_amount(load.used.typical)}{load.unit}"
    return _percent(load.share.least), _percent(load.share.typical), load.name, used


def _amount(value: float | None) -> str:
    return f"{_UNKNOWN} " if value is None else amount(value) + ("" if value >= 1e3 else " ")


def _percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share:.3g} %"


def _ms(times: Interval) -> str:
    typical = "nothing typical is known" if times.typical is None else f"typically {1e3 * times.typical:.3g} ms"
    return f"at least {1e3 * (times.least or 0.0):.3g} ms, {typical}"


def _verdict(answer: Estimate) -> str:
    free = f"with {_percent(answer.headroom)} of each resource to spare"
    if answer.is_beyond_bound:
        return "cannot be served: beyond what the machine can do at most"
    if answer.loads is None or answer.loads.typical_share is None:
        return "within its bounds; what is typical is not known"
    return f"served {free}" if answer.is_served else f"not served {free}"


def _fit(answer: Estimate) -> str:
    is_open = answer.most == MOST_CAMERAS
    never = _count(MOST_CAMERAS) if is_open else f"never more than {answer.most}"
    if answer.typical is None:
        return f"such cameras: {never}"
    return f"such cameras: {answer.typical} with the headroom, {never} with none"


def _count(cameras: int) -> str:
    return f"{MOST_CAMERAS} or more" if cameras == MOST_CAMERAS else f"{cameras}"


def _slower(answer: Estimate) -> str:
    words = []
    if answer.typical_fps is not None and _LEAST_FPS <= answer.typical_fps < math.inf:
        words.append(f"all of them with max_fps {answer.typical_fps:.3g} and the headroom")
    if _LEAST_FPS <= answer.most_fps < math.inf:
        words.append(f"never with more than max_fps {answer.most_fps:.3g}")
    return f"what would fit: {', '.join(words)}" if words else "max_fps does not help: it leaves decoding as it is"


def _summary_lines(answers: Sequence[Estimate]) -> Iterator[str]:
    """Yield a head, and a line for each machine; those of which nothing is known behind them."""
    rows = [_summary_cells(answer) for answer in answers if answer.loads is not None]
    yield from aligned([_SUMMARY_HEAD, *rows], texts=3, width=shown_width(), spare=("watts", "engine"))
    for answer in answers:
        if answer.loads is None:
            yield f"{answer.platform.called}: its peaks in this precision are not published"


def _word(answer: Estimate) -> str:
    if answer.is_beyond_bound:
        return "beyond its bound"
    if answer.loads is None or answer.loads.typical_share is None:
        return _UNKNOWN
    return "served" if answer.is_served else "not served"


def _summary_cells(answer: Estimate) -> tuple[str, ...]:
    loads, watts = answer.loads, answer.platform.watts
    assert loads is not None
    engine = loads.each[0].share
    return (
        _UNKNOWN if answer.typical is None else f"{answer.typical}",
        _count(answer.most),
        f"{_percent(engine.least)} to {_percent(engine.typical)}",
        "" if watts is None else f"{watts:g}",
        _word(answer),
        loads.first.name + ("" if loads.is_decoder_known else ", without the decoder"),
        answer.platform.called,
    )


def _served_line(answers: Sequence[Estimate]) -> str:
    if len(answers) == 1:
        return f"Verdict: {answers[0].platform.called}: {_verdict(answers[0])}; {_fit(answers[0])}"
    words = dict[str, list[str]]()
    for answer in answers:
        word = _word(answer)
        words.setdefault("not known" if word == _UNKNOWN else word, []).append(answer.platform.called)
    return "Verdict: " + "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items())


def _smallest_line(best: Estimate | None, headroom: float) -> str:
    """Return which module serves the pipeline, and in which power mode."""
    if best is None:
        return f"No Jetson of the table serves this with {_percent(headroom)} to spare."
    watts = "" if best.platform.watts is None else f" ({best.platform.watts:g} W)"
    is_known = best.loads is not None and best.loads.is_decoder_known
    but = "" if is_known else "; its decoder is not counted: no figures for these videos are published"
    return (
        f"The smallest Jetson that serves this with {_percent(headroom)} to spare: "
        f"{best.platform.machine.title}{watts}, --machine {best.platform.called}{but}"
    )
