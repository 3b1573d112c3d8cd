"""Where a stream comes from: its URI taken apart, with the credential kept out of everything that is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from edge.errors import ConfigError

__all__ = ["Address", "parse_address", "redact"]

_SCHEMES = ("rtsp", "rtsps", "file", "http", "https", "v4l2", "csi", "test")
_FILE_SUFFIXES = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m4v", ".h264", ".h265")
_USER_INFO = re.compile(r"//[^/@\s]+@")
_QUERY = re.compile(r"\?[^\s\"']+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A URI in the form that an element or a library takes.

    Attributes:
        scheme: as in the URI; `file` for plain paths.
        location: an absolute path, a URL without user and password, a device path, or what follows the scheme.
        credential: user and password, never shown.
        options: the query of v4l2, csi and test addresses.
    """

    scheme: str
    location: str
    credential: tuple[str, str] | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_file_like(self) -> bool:
        """Whether it has an end: a file, or a file on a web server."""
        is_web = self.scheme in ("http", "https")
        return self.scheme == "file" or (is_web and urlsplit(self.location).path.lower().endswith(_FILE_SUFFIXES))

    @property
    def shown(self) -> str:
        """The address without anything that could be a secret, for messages and logs."""
        return redact(self.location) if "://" in self.location else self.location

    def number(self, option: str, default: int) -> int:
        """Return a positive whole number out of `options`.

        Raises:
            ConfigError: if it is anything else.
        """
        text = self.options.get(option)
        if text is None:
            return default
        if not text.isdecimal() or not 1 <= int(text) <= 100_000:
            raise ConfigError(f"{self.scheme} address: {option}: expected a positive whole number, got {text!r}")
        return int(text)


def redact(text: str) -> str:
    """Return `text` without the user, password and query of any URL in it."""
    return _QUERY.sub("?...", _USER_INFO.sub("//", text))


def parse_address(uri: str, *, base_dir: Path, credential: tuple[str, str] | None = None) -> Address:
    """Take a stream's `uri` apart; a relative path is relative to `base_dir`.

    Raises:
        ConfigError: if the scheme is not one that we read, or the address says nothing.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Address(scheme="file", location=str(base_dir / uri))
    scheme = scheme.lower()
    if scheme not in _SCHEMES:
        raise ConfigError(
            f"{redact(uri)!r}: expected one of {', '.join(_SCHEMES)} before '://', got {scheme!r}",
            hint="a plain path needs no scheme",
        )
    if scheme == "file":
        return Address(scheme="file", location=_file_path(rest, base_dir))
    if scheme in ("v4l2", "csi", "test"):
        place, _, query = rest.partition("?")
        return Address(scheme=scheme, location=place, options=dict(parse_qsl(query, keep_blank_values=True)))
    return _network_address(uri, scheme, credential)


def _file_path(rest: str, base_dir: Path) -> str:
    """People write file addresses both escaped and not: the name as it stands wins if there is such a file."""
    literal = base_dir / rest
    return str(literal if literal.exists() else base_dir / unquote(rest))


def _network_address(uri: str, scheme: str, credential: tuple[str, str] | None) -> Address:
    parts = urlsplit(uri)
    if not parts.hostname:
        raise ConfigError(f"{redact(uri)!r}: expected a host after '{scheme}://'")
    user_info, _, host = parts.netloc.rpartition("@")
    if credential is None and user_info:
        user, _, password = user_info.partition(":")
        credential = unquote(user), unquote(password)
    return Address(scheme=scheme, location=urlunsplit(parts._replace(netloc=host)), credential=credential)
