"""Types of options that several commands share."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["SECONDS"]


class _Seconds(click.FloatRange):
    """A time that passes: finite and positive."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"expected a finite number of seconds, got {value}", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, min_open=True)
