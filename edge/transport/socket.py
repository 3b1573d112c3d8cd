"""Frames to an agent that systemd starts for each connection to a socket of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

from edge.errors import DeployError
from edge.transport.pipe import PipeChannel

__all__ = ["connect_socket"]


def connect_socket(path: Path) -> PipeChannel:
    """Return a `Channel` to whoever listens at `path`.

    Raises:
        DeployError: `transfer.socket`, if nobody does, or we may not.
    """
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        end.connect(str(path))
    except OSError as error:
        end.close()
        raise DeployError(
            "transfer.socket",
            f"{path}: {error.strerror}",
            hint="systemctl start edge-agent.socket; run it with sudo, or: systemctl start edge-pull",
        ) from None
    descriptor = end.detach()
    return PipeChannel(descriptor, descriptor)
