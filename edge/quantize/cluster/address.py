"""Where a scheduler is, as it is typed."""

from __future__ import annotations

import re

from edge.errors import ConfigError

__all__ = ["scheduler_address"]

_ADDRESS = re.compile(r"(?:tcp|tls)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")


def scheduler_address(text: str) -> str:
    """Return the address of a scheduler, `tls://HOST:PORT` or `tcp://HOST:PORT`.

    Raises:
        ConfigError: if it is something else.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 1 << 16:
        raise ConfigError(
            f"cluster {text!r}: expected the address of a Dask scheduler, as tls://HOST:8786",
            hint="tcp://HOST:8786 is one without encryption, where everybody who reaches it may run anything",
        )
    return text
