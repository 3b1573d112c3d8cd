"""Files that a person has trusted once, by name, as they were then: `trusted.json` in the user's configuration."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from edge.errors import ConfigError
from edge.writing import write_whole

__all__ = ["configuration", "is_still_trusted", "trust"]


def configuration() -> Path:
    """Return the user's folder for our settings: below $XDG_CONFIG_HOME, else ~/.config."""
    home = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".config") / "edge-deploy"


def is_still_trusted(path: Path, others: Iterable[Path]) -> bool:
    """Return whether a file was trusted, and it and the `others` that it names are still what they were then."""
    return _known().get(_key(path)) == _sha256(path, others)


def trust(path: Path, others: Iterable[Path]) -> Path:
    """Trust a file and those that it names as they are now; return where that is kept.

    Raises:
        ConfigError: if it cannot be kept.
    """
    kept = _path()
    content = json.dumps({**_known(), _key(path): _sha256(path, others)}, indent=1, sort_keys=True)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(kept, content.encode(), mode=0o600)  # its owner's alone
    except OSError as error:
        raise ConfigError(f"{kept}: cannot be written: {error.strerror}") from None
    return kept


def _path() -> Path:
    return configuration() / "trusted.json"


def _key(path: Path) -> str:
    return str(path.resolve())


def _known() -> Mapping[str, str]:
    try:
        known = json.loads(_path().read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # then nothing is trusted
    return known if isinstance(known, dict) else {}


def _sha256(path: Path, others: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for each in (path, *sorted(set(others))):
        content = each.read_bytes() if each.is_file() else b""
        digest.update(f"{each.resolve()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
