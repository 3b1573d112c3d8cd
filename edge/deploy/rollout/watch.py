"""Goes on with a rollout until it is done or stopped, through failures of the registry and of the broker."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge.deadline import Deadline
from edge.deploy.rollout.hearing import Hearing
from edge.deploy.rollout.rollout import ChannelRollout, Look
from edge.errors import DeployError, PublishError
from edge.rollout.state import RolloutState

__all__ = ["hear_all", "watch"]

_STEP_S = 0.2
_HEAR_S = 120.0


def hear_all(hearing: Hearing) -> None:
    """Wait until all that the broker has kept has come.

    Raises:
        PublishError: if it has not within two minutes.
    """
    deadline = Deadline.after(_HEAR_S)
    wait = threading.Event()
    while not hearing.is_complete:
        if deadline.is_over:
            raise PublishError(
                f"the broker has not told all that it keeps within {_HEAR_S:.0f} s", hint="look at the broker"
            )
        wait.wait(_STEP_S)


def watch(
    rollout: ChannelRollout,
    hearing: Hearing,
    *,
    repository: str,
    channel: str,
    every_s: float,
    on_look: Callable[[Look], None],
    say: Callable[[str], None],
) -> RolloutState:
    """Look every `every_s` seconds and take the step that is due; return the state once it is over.

    A look is left out while the broker is not there: what was heard before may not be so any more.

    Args:
        rollout: of `channel`.
        hearing: to all devices.
        repository: `host/repository` of the releases, as devices have it in their settings.
        channel: of the releases.
        every_s: seconds between two looks.
        on_look: is shown each look before its step.
        say: hears why a step could not be taken; it is tried again.

    Raises:
        DeployError: what asking again does not mend.
    """
    pause = threading.Event()
    while True:
        if hearing.is_complete:
            state = _step(rollout, hearing, repository, channel, on_look, say)
            if state is not None and state.phase != "running":
                return state
        pause.wait(every_s if hearing.is_complete else _STEP_S)


def _step(
    rollout: ChannelRollout,
    hearing: Hearing,
    repository: str,
    channel: str,
    on_look: Callable[[Look], None],
    say: Callable[[str], None],
) -> RolloutState | None:
    try:
        look = rollout.look(hearing.devices(repository, channel))
        if not hearing.is_complete:  # the broker went away while the registry was asked
            return None
        on_look(look)
        return rollout.go_on(look)
    except DeployError as error:
        if error.code not in _PASSING:
            raise
        say(f"{error}; looked at again")
        return None


_PASSING = ("registry.unreachable", "registry.failed", "registry.busy", "registry.slow", "lock.rings")
