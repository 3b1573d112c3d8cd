"""User and password of a camera, read again for every connection: passwords are changed while a service runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edge.errors import ConfigError

__all__ = ["CameraLogin"]

_log = logging.getLogger(__name__)


class CameraLogin:
    """Keeps what was read last where it cannot be read any more.

    Args:
        stream: whose camera it is, for the log.
        read: gives user and password, or None for a camera without; called at once.

    Raises:
        ConfigError: if it cannot be read now.
    """

    def __init__(self, stream: str, read: Callable[[], tuple[str, str] | None]) -> None:
        self._stream = stream
        self._read = read
        self._used = read()

    def current(self) -> tuple[str, str] | None:
        """Return what a new connection is to use."""
        try:
            self._used = self._read()
        except ConfigError as error:
            _log.warning("credential cannot be read, the last one is used stream=%s reason=%s", self._stream, error)
        return self._used

    def is_renewed(self) -> bool:
        """Return whether something else is there than was used last."""
        try:
            return self._read() != self._used
        except ConfigError:
            return False
