"""How far a build is, as TensorRT tells it since version 10: phases within phases, each with a number of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge.engine.tensorrt.binding import TensorRtLibrary

__all__ = ["Phases", "make_monitor"]


@dataclass(slots=True, kw_only=True)
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """Adds phases up: told is the outermost one, and how much of it is done, its inner phases included.

    What `on_progress` raises ends the build, and is kept in `failure`: it cannot travel through TensorRT.
    """

    def __init__(self, on_progress: Callable[[str, float], None]) -> None:
        self._on_progress = on_progress
        self._open: dict[str, _Phase] = {}
        self.failure: BaseException | None = None

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """Take that a phase begins."""
        self._open[name] = _Phase(parent=parent, steps=max(1, steps))
        self._tell(name)

    def step(self, name: str, step: int) -> bool:
        """Take that step `step`, counted from 0, is done; return whether the build is to go on."""
        if name in self._open:
            self._open[name].done = step + 1
        self._tell(name)
        return self.failure is None

    def finish(self, name: str) -> None:
        """Take that a phase ends."""
        phase = self._open.pop(name, None)
        if phase is not None and phase.parent not in self._open and self.failure is None:
            self._call(name, 1.0)

    def _tell(self, name: str) -> None:
        share = 0.0
        while (phase := self._open.get(name)) is not None:
            share = min(1.0, (phase.done + share) / phase.steps)
            if phase.parent not in self._open:
                break
            assert phase.parent is not None
            name = phase.parent
        if phase is not None and self.failure is None:
            self._call(name, share)

    def _call(self, name: str, share: float) -> None:
        try:
            self._on_progress(name, share)
        except BaseException as error:
            self.failure = error


def make_monitor(library: TensorRtLibrary, phases: Phases) -> Any:
    """Return what TensorRT tells its progress to; None where it tells none."""
    if not library.abilities.has_progress_monitor:
        return None
    base: Any = library.trt.IProgressMonitor

    class _Monitor(base):  # type: ignore[misc]  # its base is known when the library is
        def __init__(self) -> None:
            base.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return phases.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return _Monitor()
