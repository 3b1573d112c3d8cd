"""Types of options that several commands share."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import click

from edge.errors import DeployError

if TYPE_CHECKING:
    from edge.bundle.manifest import GoldenLimits
    from edge.quantize.make_table import MaxDrop

__all__ = ["MAX_DROP", "SECONDS", "engine_option", "golden_limit_option"]

_LIMITS = {"recall": "min_recall", "extra": "max_extra", "iou": "min_iou", "score-error": "max_score_error"}


class _Seconds(click.FloatRange):
    """A time that passes: finite and positive."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"expected a finite number of seconds, got {value}", param, ctx)
        return seconds


class _MaxDrop(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`0.5`, mAP points, or `3%` of what the float model reaches."""

    name = "points|percent%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MaxDrop:
        from edge.quantize.make_table import MaxDrop

        text = str(value).strip()
        try:
            amount = float(text.removesuffix("%"))
        except ValueError:
            amount = math.nan
        if not 0 <= amount <= 100:  # NaN is not
            self.fail(f"expected mAP points from 0 to 100, or a percentage such as 3%, got {value!r}", param, ctx)
        return MaxDrop(amount=amount, is_relative=text.endswith("%"))


MAX_DROP = _MaxDrop()
SECONDS = _Seconds(min=0, min_open=True)


def _golden_limits(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> GoldenLimits | None:
    """`recall=0.97`: the limits that are named, the others as they are by default; None where none is."""
    if not given:
        return None
    from edge.bundle.manifest import GoldenLimits

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
            raise click.BadParameter(f"{one!r}: expected a number from 0 to 1, as in {name}=0.9", ctx, param) from None
    try:
        return dataclasses.replace(GoldenLimits(), **values)
    except DeployError as error:
        raise click.BadParameter(error.problem, ctx, param) from None


golden_limit_option = click.option(
    "--golden-limit",
    "golden_limits",
    multiple=True,
    callback=_golden_limits,
    metavar="NAME=VALUE",
    help="What has to hold on the golden frames, here and on the device: recall (0.95; the classic 3 % is 0.97), "
    "extra (0.05), iou (0.5), score-error (0.1). Repeat for more.",
)


class _EngineKind(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """The name of a kind of engine, or `auto`; which kinds there are is looked up when it is asked."""

    name = "kind"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(_names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _names():
            self.fail(f"there is no engine {value!r}; expected one of {', '.join(_names())}", param, ctx)
        return str(value)


def _names() -> tuple[str, ...]:
    from edge.engine.kinds import AUTO, kinds

    return AUTO, *kinds()


engine_option = click.option(
    "--engine", type=_EngineKind(), default="auto", show_default=True, help="The kind of engine to use."
)
