"""The forms of INT8 that a kind can build here, raced: the fastest that passes the golden gate serves.

Which form a GPU runs fastest cannot be told without it. A race costs a build for each form, so that its winner is kept
beside the timing cache: a later build with the same software on the same machine makes that form alone, and races again
only where it does not pass.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge.engine.kind import Int8Form
from edge.errors import EngineError, OutOfMemoryError
from edge.reading import json_object, read_file
from edge.runtime.build.choice import INT8_FORMS, Candidate, Gate, race
from edge.writing import write_whole

__all__ = ["FormRace", "WinnerFile"]

_log = logging.getLogger(__name__)
_MAX_BYTES = 4096


class WinnerFile:
    """The form that won the last race on this machine, in `folder`; None: nothing is kept. It fails no build.

    Args:
        folder: of the builder's cache.
        versions: of all that a plan depends on; a winner of others is not returned.
        is_beside: a service runs meanwhile. The winner of a race beside one is returned beside one only.
    """

    def __init__(self, folder: Path | None, versions: Mapping[str, str], *, is_beside: bool) -> None:
        self._path = None if folder is None else folder / "int8-form.json"
        self._versions, self._is_beside = dict(versions), is_beside

    def read(self) -> str | None:
        """Return None where no race with these versions is on record."""
        if self._path is None:
            return None
        try:
            kept = json_object(read_file(self._path, most_bytes=_MAX_BYTES))
        except (OSError, ValueError):
            return None
        form, holds = kept.get("form"), self._is_beside or kept.get("timed_beside_a_service") is False
        return form if isinstance(form, str) and holds and kept.get("versions") == self._versions else None

    def write(self, form: str) -> None:
        if self._path is None:
            return
        kept = {"form": form, "versions": self._versions, "timed_beside_a_service": self._is_beside}
        try:
            write_whole(self._path, json.dumps(kept, indent=1).encode())
        except OSError as error:
            _log.warning("INT8 race winner cannot be written path=%s reason=%s", self._path, error)


class FormRace:
    """Builds forms one after the other and keeps the fastest engine open.

    Args:
        make: builds a form, loads it and puts it to the gate.
        close: closes the engine of a form that has lost.
        gate: whose frames are timed; None: empty canvases are.
        winner: of earlier races.
        has_time: whether another build fits into what is left of the deadline.
    """

    def __init__(
        self,
        make: Callable[[Int8Form], Candidate],
        close: Callable[[Candidate], None],
        *,
        gate: Gate | None,
        winner: WinnerFile,
        has_time: Callable[[], bool],
    ) -> None:
        self._make, self._close = make, close
        self._gate, self._winner, self._has_time = gate, winner, has_time
        self._known: str | None = None
        self._best: tuple[Int8Form, Candidate] | None = None
        self._rows: list[dict[str, Any]] = []
        self._problem: EngineError | None = None
        self._is_whole = True

    def run(self, forms: Sequence[Int8Form]) -> Candidate:
        """Return the fastest candidate that passes the gate, with a row for each form in its report.

        Where none passes, it is the first one that was built. `forms` begin with the one that was proven on the
        workstation. Raises `EngineError` if none can be built, that of the first; at once, if memory ran out before
        any was.
        """
        if len(forms) == 1:
            return self._make(forms[0])
        self._known = self._winner.read()
        for form in sorted(forms, key=lambda one: one.name != self._known):
            reason = self._reason_to_leave_out()
            row = {"not_built": reason} if reason else self._enter(form)
            self._rows.append({"form": form.name, **row})
        if self._best is None:
            assert self._problem is not None
            raise self._problem
        form, best = self._best
        if self._is_whole and not best.failures and form.name != self._known:
            self._winner.write(form.name)
        _log.info("INT8 form chosen form=%s of=%s", form.name, ",".join(one.name for one in forms))
        return best.reporting(**{INT8_FORMS: {"taken": form.name, "rows": self._rows}})

    def _reason_to_leave_out(self) -> str | None:
        if self._best is None:
            return None
        form, candidate = self._best
        if form.name == self._known and not candidate.failures:
            return f"{form.name} has won here before"
        if not self._has_time():
            self._is_whole = False
            return "the deadline leaves no time for another build"
        return None

    def _enter(self, form: Int8Form) -> dict[str, Any]:
        """Build `form`, let it run against the best so far, and return what its row says."""
        try:
            candidate = self._make(form)
        except EngineError as error:
            if self._best is None and isinstance(error, OutOfMemoryError):
                raise
            self._problem = self._problem or error
            self._is_whole &= not isinstance(error, OutOfMemoryError)  # what else runs here may be gone the next time
            return {"not_built": error.problem}
        row: dict[str, Any] = {"misses": list(candidate.failures)} if candidate.failures else {}
        if self._best is None:
            self._best = (form, candidate)
            return row
        before, best = self._best
        if candidate.failures or best.failures:
            wins = bool(best.failures) and not candidate.failures
        else:
            row, wins = self._timed(candidate, before, best)
        self._close(best if wins else candidate)
        if wins:
            self._best = (form, candidate)
        return row

    def _timed(self, candidate: Candidate, before: Int8Form, best: Candidate) -> tuple[dict[str, Any], bool]:
        """Return what the row of `candidate` says, and whether it is the faster one; one that fails is not."""
        try:
            timed = race(candidate.engine, best.engine, () if self._gate is None else self._gate.canvases)
        except EngineError as error:
            self._is_whole = False
            return {"not_timed": error.problem}, False
        row = {"ms": timed.asked_ms, "against": before.name, "against_ms": timed.other_ms, "ratio": timed.ratio}
        return row, timed.is_asked_faster
