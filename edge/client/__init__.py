"""For a subscriber's program: messages of devices in order, each once, and the ones that are missing by their numbers.

    from edge.client import Client

It needs msgspec and paho-mqtt only. docs/subscribers.md shows it in ten lines.
"""

from edge.client.client import Client, Item
from edge.client.order import Late, Missing
from edge.publish.messages import (
    CountsMessage,
    DeployMessage,
    DetectedObject,
    DetectionsMessage,
    EventMessage,
    InfoMessage,
    OccupancyMessage,
    PullMessage,
    StateMessage,
    StreamStateMessage,
)

__all__ = [
    "Client",
    "CountsMessage",
    "DeployMessage",
    "DetectedObject",
    "DetectionsMessage",
    "EventMessage",
    "InfoMessage",
    "Item",
    "Late",
    "Missing",
    "OccupancyMessage",
    "PullMessage",
    "StateMessage",
    "StreamStateMessage",
]
