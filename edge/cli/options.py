"""Types of options that several commands share."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["SECONDS", "engine_option"]


class _Seconds(click.FloatRange):
    """A time that passes: finite and positive."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"expected a finite number of seconds, got {value}", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, min_open=True)


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
