"""Which file of this machine a stream's URI means: the one reading of it, for the check and for the decoders."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

__all__ = ["is_fixed", "local_path"]

_HERE = ("", "localhost")


def local_path(uri: str, base_dir: Path) -> Path | None:
    """Return the absolute path that a stream's `uri` means, or None when it names something else than a file.

    A path needs no scheme and may contain any character. People write `file://` addresses both escaped and not, and
    `~` is a home folder but also a letter: the name as it stands wins if there is such a file.

    Args:
        uri: a path, or an address with a scheme.
        base_dir: what relative paths are relative to; `file://clips/a.mp4` is one, too.

    Raises:
        ValueError: with a sentence, if no file can be called so.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        names = [uri]
    elif scheme.lower() == "file":
        host, slash, path = rest.partition("/")
        name = slash + path if host.lower() in _HERE else rest
        names = [name, unquote(name)]
    else:
        return None
    for name in names:
        _require_usable(name, uri)
    candidates = [path for name in names for path in (base_dir / name, base_dir / _at_home(name))]
    return next((path for path in candidates if _exists(path)), candidates[-1]).absolute()


def is_fixed(uri: str) -> bool:
    """Return whether a stream's `uri` means the same on every machine: it is no file, or a file by its whole path."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri.startswith("/")
    if scheme.lower() != "file":
        return True
    host, slash, _ = rest.partition("/")
    return host.lower() in _HERE and bool(slash)


def _require_usable(name: str, uri: str) -> None:
    if not name.strip("/"):
        raise ValueError(f"expected the path of a file, got {uri!r}")
    if "\0" in name:
        raise ValueError(f"a path holds no NUL character, got {uri!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a path is UTF-8 text, got {uri!r}") from None


def _at_home(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # there is no such user: just a name that begins with ~
        return Path(name)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long, or in a folder that is closed to us: whoever opens it will say so
        return False
