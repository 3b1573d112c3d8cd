"""Where a stream comes from: its URI taken apart, with the credential kept out of everything that is shown.

And advice for a camera that gives no frames.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from edge.config.schema import CameraTlsConfig
from edge.config.uris import has_placeholder, host_problem, is_encrypted, local_path, with_login
from edge.errors import ConfigError

__all__ = [
    "ANSWERS",
    "Address",
    "CLIP_SUFFIXES",
    "IS_UNKNOWN",
    "OVER_TCP",
    "PORTS",
    "REFUSES_LOGIN",
    "Trust",
    "WANTS_LOGIN",
    "parse_address",
    "redact",
    "remedy_of",
]

_SCHEMES = ("rtsp", "rtsps", "file", "http", "https", "v4l2", "csi", "test")
PORTS = {"rtsp": 554, "rtsps": 322, "http": 80, "https": 443}
_NUMBERS = ("width", "height", "fps")
_OPTIONS = {"v4l2": (*_NUMBERS, "format"), "csi": _NUMBERS, "test": (*_NUMBERS, "pattern")}
CLIP_SUFFIXES = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m4v", ".h264", ".h265")
# Up to the last @ of the authority, or, where somebody's password has a slash in it, up to the last @ at all.
_USER_INFO = re.compile(r"//(?:[^/\s]*@|(?!\[)[^/\s:@]*:(?!\d*(?:[/?#\s]|$))\S*@)")
_QUERY = re.compile(r"\?[^\s\"']+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Trust in a camera's certificate: the authorities in a file, or the SHA-256 of the certificate."""

    ca: Path | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A URI in the form that an element or a library takes."""

    scheme: str  # as in the URI; `file` for plain paths
    # an absolute path, a URL without user and password but for those in its query, a device path, or what follows
    # the scheme
    location: str
    credential: tuple[str, str] | None = field(default=None, repr=False)  # user and password, never shown
    options: Mapping[str, str] = field(default_factory=dict)  # the query of v4l2, csi and test addresses
    # the location with the places of its query that want user and password, where it has such
    template: str | None = None
    trust: Trust | None = None  # what a camera's certificate is held against; None: the system's authorities
    stands_for: str | None = None  # the address that is shown in its place

    @property
    def is_file_like(self) -> bool:
        """Whether it has an end: a file, or a file on a web server."""
        is_web = self.scheme in ("http", "https")
        return self.scheme == "file" or (is_web and urlsplit(self.location).path.lower().endswith(CLIP_SUFFIXES))

    @property
    def server(self) -> tuple[str, int] | None:
        """Host and port of what is asked for it; None where that is this machine."""
        if self.scheme not in PORTS:
            return None
        parts = urlsplit(self.location)
        return parts.hostname or "", parts.port or PORTS[self.scheme]

    @property
    def is_encrypted(self) -> bool:
        return is_encrypted(self.location)

    @property
    def is_device(self) -> bool:
        """Whether it is a camera of this machine."""
        return self.scheme in _OPTIONS

    @property
    def is_missing(self) -> bool:
        """Whether it is a file of this machine that is not there, or not for us."""
        try:
            return self.scheme == "file" and not Path(self.location).is_file()
        except OSError:  # a name that is too long, a folder that is closed to us
            return True

    @property
    def shown(self) -> str:
        """The address without anything that could be a secret, for messages and logs."""
        return self.stands_for or (redact(self.location) if "://" in self.location else self.location)

    @property
    def with_login(self) -> str:
        """The location with user and password in it, which FFmpeg takes there only, and GStreamer for parts of HLS."""
        if self.credential is None:
            return self.location
        parts = urlsplit(self.location)
        user, password = (quote(text, safe="") for text in self.credential)
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc}"))

    def number(self, option: str, default: int) -> int:
        """Raises `ConfigError` if the option is no positive whole number."""
        text = self.options.get(option)
        if text is None:
            return default
        if not text.isdecimal() or not 1 <= int(text) <= 100_000:
            raise ConfigError(f"{self.scheme} address: {option}: expected a positive whole number, got {text!r}")
        return int(text)


def redact(text: str) -> str:
    """Return `text` without the user, password and query of any URL in it."""
    return _QUERY.sub("?...", _USER_INFO.sub("//", text))


def parse_address(
    uri: str, *, base_dir: Path, credential: tuple[str, str] | None = None, tls: CameraTlsConfig | None = None
) -> Address:
    """Take a stream's `uri` apart; a relative path, also one in `tls`, is relative to `base_dir`.
    Raises `ConfigError` if the scheme is not one that we read, or the address says nothing.
    """
    try:
        path = local_path(uri, base_dir)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if path is not None:
        return Address(scheme="file", location=str(path))
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    if scheme not in _SCHEMES:
        raise ConfigError(
            f"{redact(uri)!r}: expected one of {', '.join(_SCHEMES)} before '://', got {scheme!r}",
            hint="a plain path needs no scheme",
        )
    if not uri.isprintable():
        raise ConfigError(f"{redact(uri)!r}: expected no control characters in an address")
    if scheme in _OPTIONS:
        return _device_address(scheme, rest)
    return replace(_network_address(uri, scheme, credential), trust=_trust(tls, base_dir))


def _trust(tls: CameraTlsConfig | None, base_dir: Path) -> Trust | None:
    if tls is None:
        return None
    pinned = tls.fingerprint and tls.fingerprint.partition(":")[2].replace(":", "").lower()
    return Trust(ca=None if tls.ca is None else base_dir / Path(tls.ca).expanduser(), fingerprint=pinned)


def _device_address(scheme: str, rest: str) -> Address:
    place, _, query = rest.partition("?")
    address = Address(scheme=scheme, location=place, options=dict(parse_qsl(query, keep_blank_values=True)))
    unknown = sorted(set(address.options) - set(_OPTIONS[scheme]))
    if unknown:
        known = ", ".join(_OPTIONS[scheme])
        raise ConfigError(f"{scheme} address: expected options out of {known}, got {unknown[0]!r}")
    for option in set(address.options) & set(_NUMBERS):
        address.number(option, 1)
    if scheme == "v4l2" and not place.strip("/"):
        raise ConfigError("v4l2 address: expected a device, e.g. v4l2:///dev/video0")
    return address


def _network_address(uri: str, scheme: str, credential: tuple[str, str] | None) -> Address:
    if (problem := host_problem(uri)) is not None:
        raise ConfigError(f"{redact(uri)!r}: {problem}")
    parts = urlsplit(uri)
    user_info, _, host = parts.netloc.rpartition("@")
    if credential is None and user_info:
        user, _, password = user_info.partition(":")
        credential = unquote(user), unquote(password)
    location = urlunsplit(parts._replace(netloc=host))
    if not has_placeholder(location):
        return Address(scheme=scheme, location=location, credential=credential)
    if credential is None:
        raise ConfigError(
            f"{redact(uri)!r}: its query wants user and password", hint=f"{scheme}://USER:PASSWORD@HOST/..."
        )
    return Address(scheme=scheme, location=with_login(location, *credential), credential=credential, template=location)


WANTS_LOGIN = "it wants a login: store the camera's user:password under the name of the stream's credential"
REFUSES_LOGIN = "it refuses this user and password: correct the secret of the stream's credential"
ANSWERS = "the camera answers: look at its settings of this stream and the number of its viewers, or restart it"
OVER_TCP = "turn on RTP over RTSP (TCP, interleaved) in the camera: UDP and multicast are not read"
IS_UNKNOWN = "correct the path in the stream's address: the camera does not have this one"
_BY_SCHEME = {
    "v4l2": "see which cameras this machine has (ls -l /dev/video*), and that the service may read it (group video)",
    "csi": "look at the cable of the camera, and at nvargus-daemon",
}
_NETWORK = "see that the camera is on, and that this machine knows its name and reaches its port"


def remedy_of(scheme: str) -> str:
    """Return what to do where a camera of that kind of address gives no frames and did not say why."""
    return _BY_SCHEME.get(scheme, _NETWORK)
