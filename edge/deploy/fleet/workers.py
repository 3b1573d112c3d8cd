"""One thread for each target at work. A push spends its time waiting for a pipe, so threads are all it needs."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from edge.config.targets import Target
from edge.delivery.event import PROGRESS, Event
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.inbox import Finished, Inbox
from edge.deploy.fleet.push_one import PushOne
from edge.errors import DeployError, EdgeError

__all__ = ["Workers"]

_PROGRESS_S = 0.1  # more often than this, nobody can see it
_logger = logging.getLogger(__name__)


class Workers:
    """Runs pushes side by side; all that they say, and their end, goes to the inbox in order.

    The threads do not outlive the process: one that hangs cannot keep it from ending.
    """

    def __init__(self, push_one: PushOne, inbox: Inbox) -> None:
        self._push_one, self._inbox = push_one, inbox
        self._at_once = threading.Event()

    def start(self, target: Target) -> None:
        """Begin with a target; its `Finished` follows."""
        threading.Thread(target=self._work, args=(target,), name=f"push-{target.name}", daemon=True).start()

    def end_at_once(self) -> None:
        """Tell all to close their connections and return."""
        self._at_once.set()

    def _work(self, target: Target) -> None:
        began_s = time.monotonic()
        try:
            outcome = self._push_one(target, _Relay(self._inbox), self._at_once)
        except DeployError as error:
            outcome = _failed(target, error, error.code)
        except EdgeError as error:
            outcome = _failed(target, error, "fleet.internal")
        except Exception as error:  # the border of a thread: what is raised here would be lost, and the driver wait on
            _logger.exception("push failed target=%s", target.name)
            problem = EdgeError(f"{type(error).__name__}: {error}", hint="run again with -v and report it")
            outcome = _failed(target, problem, "fleet.internal")
        seconds = outcome.seconds or time.monotonic() - began_s
        self._inbox.put(Finished(replace(outcome, target=target.name, seconds=seconds)))


class _Relay:
    """Hands events on, progress at most ten times a second, so that a fast link does not flood the driver."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox, self._next_s = inbox, 0.0

    def __call__(self, event: Event) -> None:
        now_s = time.monotonic()
        if event.event == PROGRESS:
            if now_s < self._next_s:
                return
            self._next_s = now_s + _PROGRESS_S
        self._inbox.put(event)


def _failed(target: Target, error: EdgeError, code: str) -> Outcome:
    return Outcome(
        target=target.name,
        release=None,
        result="failed",
        exit_code=error.exit_code,
        code=code,
        problem=error.problem,
        hint=error.hint,
        evidence=error.evidence if isinstance(error, DeployError) else {},
    )
