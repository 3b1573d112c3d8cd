"""Which file of this machine a stream's URI means: the one reading of it, for the check and for the decoders."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

__all__ = [
    "ESCAPES",
    "PLACEHOLDERS",
    "has_placeholder",
    "has_secret",
    "host_problem",
    "is_encrypted",
    "is_fixed",
    "is_network",
    "local_path",
    "split_login",
    "with_login",
]

_PLAYLISTS = (".m3u8", ".m3u", ".pls", ".xspf")
_HERE = ("", "localhost")
_NETWORK = ("rtsp", "rtsps", "http", "https")
PLACEHOLDERS = ("{user}", "{password}")
ESCAPES = "write @ as %40, / as %2F, ? as %3F, # as %23"
_SECRET = re.compile(r"(?i)((?:pass(?:word|wd)?|pwd|token|secret|api_?key)=)(?!\{password\})([^&#]+)")
_USER = re.compile(r"(?i)((?:user(?:name)?|usr|login|account)=)([^&#]+)")


def local_path(uri: str, base_dir: Path) -> Path | None:
    """Return the absolute path that a stream's `uri` means, or None when it names something else than a file.

    A path needs no scheme and may contain any character. People write `file://` addresses both escaped and not, and
    `~` is a home folder but also a letter: the name as it stands wins if there is such a file.
    `base_dir`: what relative paths are relative to; `file://clips/a.mp4` is one, too.
    Raises `ValueError` with a sentence, if no file can be called so.
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


def is_network(uri: str) -> bool:
    return uri.partition("://")[0].lower() in _NETWORK


def is_encrypted(uri: str) -> bool:
    return uri.partition("://")[0].lower() in ("rtsps", "https")


def has_secret(uri: str) -> bool:
    """Return whether a network address holds what looks like a password behind its host."""
    rest = uri.partition("://")[2]
    return is_network(uri) and _SECRET.search(rest, len(_authority(rest))) is not None


def host_problem(uri: str) -> str | None:
    """Return what is wrong with the host and port of a network address, None if nothing is."""
    try:
        parts = urlsplit(uri)
        is_usable = bool(parts.hostname) and parts.port != 0 and len(parts.netloc.split()) == 1
    except ValueError:  # asking for the port checks it
        is_usable = False
    if is_usable:
        return None
    scheme, _, rest = uri.partition("://")
    expected = f"expected a host and, if any, a port up to 65535 after '{scheme.lower()}://'"
    if "@" in rest.removeprefix(_authority(rest)):
        return f"{expected}; in a password {ESCAPES}, or give it a credential"
    return f"{expected}; an IPv6 address stands in [ ]" if _authority(rest).count(":") > 1 else expected


def has_placeholder(uri: str) -> bool:
    """Return whether the query of an address wants user or password of its credential."""
    return any(name in uri.partition("?")[2] for name in PLACEHOLDERS)


def with_login(uri: str, user: str, password: str) -> str:
    """Return an address with user and password, escaped, in the places of its query that want them."""
    place, mark, query = uri.partition("?")
    for name, value in zip(PLACEHOLDERS, (user, password), strict=True):
        query = query.replace(name, quote(value, safe=""))
    return place + mark + query


def split_login(uri: str) -> tuple[str, tuple[str, str] | None]:
    """Return a network address with places in its query for user and password, and the two, or None."""
    place, mark, query = uri.partition("?")
    secret = _SECRET.search(query)
    if not is_network(uri) or secret is None:
        return uri, None
    user = _USER.search(query)
    query = _SECRET.sub(r"\1{password}", query, count=1)
    query = query if user is None else _USER.sub(r"\1{user}", query, count=1)
    return place + mark + query, (unquote(user[2]) if user else "", unquote(secret[2]))


def _authority(rest: str) -> str:
    return re.split(r"[/?#]", rest, maxsplit=1)[0]


def _require_usable(name: str, uri: str) -> None:
    if not name.strip("/"):
        raise ValueError(f"expected the path of a file, got {uri!r}")
    if name.lower().endswith(_PLAYLISTS):
        todo = "name its clips (edge-deploy new takes their folder, too)"
        raise ValueError(f"expected the path of a video, got the playlist {uri!r}: {todo}")
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
    except OSError:  # too long, or in a folder that is closed to us: its reader will say so
        return False
