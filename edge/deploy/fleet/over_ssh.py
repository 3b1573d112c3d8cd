"""A push of one bundle to any target of an inventory, over OpenSSH."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge.config.targets import Target
from edge.delivery.deliver import deliver
from edge.delivery.deliverable import Deliverable
from edge.delivery.event import OnEvent
from edge.delivery.options import DeliveryOptions
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.push_one import PushOne
from edge.deploy.push.bound import BoundOfDevices
from edge.deploy.push.rollback import roll_back_target
from edge.transport.channel import Channel
from edge.transport.ssh import AGENT, ASK_INSTALLED, SshChannel
from edge.transport.ssh_command import SshAddress

__all__ = [
    "LOGIN",
    "address_of",
    "connect_to",
    "connect_to_installed",
    "connector",
    "push_over_ssh",
    "roll_back_over_ssh",
]

LOGIN = "edge-deploy"
"""Whom `provision` makes on a device for pushes, and for nothing else."""


def address_of(target: Target) -> SshAddress:
    """Return how the user who pushes reaches a target."""
    return SshAddress(
        host=target.host,
        user=target.user or LOGIN,
        port=target.port,
        identity=target.identity,
        config=target.ssh_config,
    )


def connect_to(target: Target) -> Channel:
    """Open a connection to the agent of a target; whoever calls closes it."""
    return SshChannel(address_of(target))


def connect_to_installed(target: Target) -> Channel:
    """Open a connection to the agent that provision installed on a target, whatever a release has brought there."""
    return SshChannel(address_of(target), remote=(*AGENT, ASK_INSTALLED))


def connector(agent: str) -> Callable[[Target], Channel]:
    """Return what connects to the `installed` agent of a target, or to `any`: the one whose turn it is."""
    return connect_to_installed if agent == "installed" else connect_to


def push_over_ssh(
    bundle: Deliverable, options: DeliveryOptions, *, connect: Callable[[Target], Channel] = connect_to
) -> PushOne:
    """Return what pushes `bundle` to the target that it is given."""
    judge = BoundOfDevices(bundle)

    def push_one(target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        return deliver(
            bundle,
            lambda: connect(target),
            target=target.name,
            options=options,
            on_event=on_event,
            stop=stop,
            judge=judge,
        )

    return push_one


def roll_back_over_ssh(to: str | None, options: DeliveryOptions) -> PushOne:
    """Return what takes the target that it is given back, to the release before or to the kept release `to`.

    It may be the agent of the release that serves which is wrong with it, so that one is not asked.
    """

    def roll_back_one(target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        return roll_back_target(
            lambda: connect_to_installed(target),
            target=target.name,
            to=to,
            options=options,
            on_event=on_event,
            stop=stop,
        )

    return roll_back_one
