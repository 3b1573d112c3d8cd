"""The stages of a calibration: each is told when it begins, and what it took is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from edge.quantize.make_table.options import CalibrationHooks

__all__ = ["CalibrationStages"]


class CalibrationStages:
    """Tells `hooks` what happens; `seconds` by stage."""

    def __init__(self, hooks: CalibrationHooks) -> None:
        self._hooks = hooks
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[None]:
        """Begin a stage of about so many steps."""
        self._hooks.on_stage(name, steps)
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    def step(self) -> None:
        """One step of the stage is done."""
        self._hooks.on_step()
