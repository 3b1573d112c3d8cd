"""Capacity in words: what is wanted, what each resource of a machine gives, what fits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from edge.capacity.fit import MOST_CAMERAS, Estimate
from edge.capacity.loads import Interval, ResourceLoad
from edge.capacity.work import Work
from edge.cli.output import aligned, amount, shown_width
from edge.cli.roofline_lines import precision_word

__all__ = ["answer_lines", "capacity_summary_lines", "served_line", "smallest_line", "work_lines"]

_UNKNOWN = "?"
_SHARE = "s/s"
_LEAST_FPS = 0.05
_NOTHING = Interval(least=None, typical=None)
_HEAD = ("at least", "typical", "resource", "that is")
_SUMMARY_HEAD = ("cameras", "never more", "engine", "watts", "verdict", "first", "machine")


def work_lines(work: Work) -> Iterator[str]:
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


def answer_lines(answer: Estimate) -> Iterator[str]:
    """Yield what a machine gives, resource by resource, and what follows from that."""
    platform, loads = answer.platform, answer.loads
    watts = "" if platform.watts is None else f", {platform.watts:g} W"
    yield f"{platform.machine.title} ({platform.called}){watts}"
    if loads is None or answer.fit is None:
        yield _verdict(answer)
        return
    yield from aligned([_HEAD, *map(_cells, loads.each)])
    yield from (f"{load.name}: {load.note}" for load in loads.each if load.note is not None)
    yield f"a batch of {loads.frames} in the engine: {_ms(loads.batch_s)}; with waiting for it: {_ms(loads.latency_s)}"
    yield _verdict(answer)
    yield f"runs out first: {loads.first.name}"
    yield _fit(answer)
    if answer.is_beyond_bound or (answer.fit.typical is not None and not answer.is_served):
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
    if answer.loads is None:
        return "its peaks in this precision are not published: nothing can be said"
    if answer.loads.typical_share is None:
        return "within its bounds; what is typical is not known"
    return f"served {free}" if answer.is_served else f"not served {free}"


def _fit(answer: Estimate) -> str:
    assert answer.fit is not None
    is_open = answer.fit.most == MOST_CAMERAS
    never = _count(MOST_CAMERAS) if is_open else f"never more than {answer.fit.most}"
    if answer.fit.typical is None:
        return f"such cameras: {never}"
    return f"such cameras: {answer.fit.typical} with the headroom, {never} with none"


def _count(cameras: int) -> str:
    return f"{MOST_CAMERAS} or more" if cameras == MOST_CAMERAS else f"{cameras}"


def _slower(answer: Estimate) -> str:
    words = []
    if answer.typical_fps is not None and _LEAST_FPS <= answer.typical_fps < math.inf:
        words.append(f"all of them with max_fps {answer.typical_fps:.3g} and the headroom")
    if _LEAST_FPS <= answer.most_fps < math.inf:
        words.append(f"never with more than max_fps {answer.most_fps:.3g}")
    return f"what would fit: {', '.join(words)}" if words else "max_fps does not help: it leaves decoding as it is"


def capacity_summary_lines(answers: Sequence[Estimate]) -> Iterator[str]:
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
    loads, fit, watts = answer.loads, answer.fit, answer.platform.watts
    assert loads is not None
    assert fit is not None
    engine = loads.each[0].share
    return (
        _UNKNOWN if fit.typical is None else f"{fit.typical}",
        _count(fit.most),
        f"{_percent(engine.least)} to {_percent(engine.typical)}",
        "" if watts is None else f"{watts:g}",
        _word(answer),
        loads.first.name + ("" if loads.is_decoder_known else ", without the decoder"),
        answer.platform.called,
    )


def served_line(answers: Sequence[Estimate]) -> str:
    if len(answers) == 1:
        fit = "" if answers[0].fit is None else f"; {_fit(answers[0])}"
        return f"Verdict: {answers[0].platform.called}: {_verdict(answers[0])}{fit}"
    words = dict[str, list[str]]()
    for answer in answers:
        word = _word(answer)
        words.setdefault("not known" if word == _UNKNOWN else word, []).append(answer.platform.called)
    return "Verdict: " + "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items())


def smallest_line(best: Estimate | None, headroom: float) -> str:
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
