"""The border at which messages of devices become values that people are shown."""

from __future__ import annotations

import msgspec

from edge.errors import DeployError
from edge.publish.message import WireMessage
from edge.publish.messages import PullMessage
from edge.registry.reference import PullSettings
from edge.untrusted import cleaned_json

__all__ = ["for_people"]

_MOST_LETTERS = 200


def for_people(message: WireMessage | None) -> WireMessage | None:
    """Return the message with texts cleaned for a terminal and cut; None if it is none of ours.

    An address that is no address is not shown: somebody may paste it into a shell.
    """
    if message is None:
        return None
    try:
        if isinstance(message, PullMessage) and message.repository is not None:
            PullSettings(repository=message.repository)
        return msgspec.convert(cleaned_json(msgspec.to_builtins(message), most=_MOST_LETTERS), type(message))
    except (ValueError, DeployError):  # msgspec.ValidationError is one
        return None
