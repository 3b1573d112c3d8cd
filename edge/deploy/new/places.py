"""Cameras (addresses, clips, folders of clips, each with a readable id) and the broker, as they were typed."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edge.config.credentials import Credential
from edge.config.pipeline import mqtt_from_options
from edge.config.schema import MqttConfig
from edge.config.uris import ESCAPES, has_secret, split_login
from edge.errors import ConfigError
from edge.media.address import CLIP_SUFFIXES, Address, Trust, parse_address, redact
from edge.media.images import IMAGE_SUFFIXES
from edge.media.tunnel import require_trust
from edge.publish.mqtt.client import Connection
from edge.publish.mqtt.endpoint import endpoint_from_config
from edge.publish.mqtt.trouble import BrokerError, ProtocolChoice, Trouble

__all__ = [
    "Place",
    "broker_from_text",
    "clips_of",
    "path_text",
    "places_of",
    "slug",
    "try_broker",
    "wants_login",
]

_LONGEST = 32
_LONGEST_TAIL = 16
_IPV4 = re.compile(r"[0-9.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one stream comes from: `uri` is for the pipeline file and holds no login, `login` was typed within it.

    `host` names its secret, one for all streams of a host.
    """

    id: str
    uri: str
    address: Address
    login: Credential | None = field(repr=False)
    host: str


def places_of(typed: Iterable[str | Path], *, folder: Path, ca: Path | None = None) -> list[Place]:
    """Return a place for each address, clip, and clip in a folder, in order; paths start at the pipeline's `folder`.

    Raises `ConfigError` if one cannot be used, or is there twice, or a folder has no clips.
    """
    trust = None if ca is None else Trust(ca=Path(os.path.abspath(ca)))
    found = [_taken_apart(uri, folder, trust) for one in typed for uri in _uris(one, folder)]
    addresses = [address for _, address in found]
    twice = [address for address, count in Counter(map(_key, addresses)).items() if count > 1]
    if twice:
        raise ConfigError(f"{redact(twice[0])}: is given twice", hint="name each camera and each clip once")
    return [
        Place(id=name, uri=_without_login(uri, address), address=address, login=_login(address), host=_host(address))
        for name, (uri, address) in zip(_ids(addresses), found, strict=True)
    ]


def clips_of(folder: Path) -> list[Path]:
    found = (path for path in folder.iterdir() if path.suffix.lower() in CLIP_SUFFIXES and path.is_file())
    return sorted(path for path in found if not path.name.startswith("."))  # macOS leaves ._clip.mp4


def path_text(path: Path, folder: Path) -> str:
    """Return how a file in `folder` names `path`: from the folder on where it lies near, else by its whole path."""
    whole = os.path.abspath(path)
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{whole!r}: a path is UTF-8 text", hint="rename the file, or its folder") from None
    near = os.path.relpath(whole, os.path.abspath(folder))
    is_near = not near.startswith(os.path.join(os.pardir, os.pardir)) and os.path.exists(folder / near)
    return near if is_near and os.path.samefile(folder / near, whole) else whole


def slug(text: str) -> str:
    """Return `text` as far as a stream id can hold it: a-z, 0-9 and single dashes; it may be empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _uris(one: str | Path, folder: Path) -> Iterator[str]:
    if isinstance(one, str):
        yield one
        return
    if not one.is_dir():
        if not one.is_file():
            raise ConfigError(f"{one}: there is no such file", hint="give an address, a clip, or a folder of clips")
        if one.suffix.lower() in IMAGE_SUFFIXES:
            raise ConfigError(f"{one}: expected a clip, this is a picture", hint="give an address, or a clip")
        yield path_text(one, folder)
        return
    clips = clips_of(one)
    if not clips:
        raise ConfigError(f"{one}: expected clips ({', '.join(CLIP_SUFFIXES)}), found none", hint="name another folder")
    yield from (path_text(clip, folder) for clip in clips)


def _taken_apart(uri: str, folder: Path, trust: Trust | None) -> tuple[str, Address]:
    uri, login = split_login(uri)
    _require_open(uri)
    address = parse_address(uri, base_dir=folder, credential=login)
    address = replace(address, trust=trust) if address.is_encrypted else address
    require_trust(address)
    return uri, address


def _require_open(uri: str) -> None:
    """Refuse an address with a secret where it cannot be taken out: the pipeline file is read by everybody."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.lower() not in ("rtsp", "rtsps", "http", "https"):
        return
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    after = rest[len(authority) :]
    if "@" in after:
        raise ConfigError(f"{scheme}://...: expected no @ behind the host", hint=f"in a password {ESCAPES}")
    if has_secret(uri):
        raise ConfigError(
            f"{scheme}://{authority.rpartition('@')[2]}/...: expected one secret, in the query of the address",
            hint=f"a pipeline file is read by everybody; {scheme}://USER:PASSWORD@HOST/... is kept apart from it",
        )


def _key(address: Address) -> str:
    return f"{address.location}?{sorted(address.options.items())}" if address.options else address.location


def _without_login(uri: str, address: Address) -> str:
    return address.template or (address.location if address.scheme in ("rtsp", "rtsps", "http", "https") else uri)


def _login(address: Address) -> Credential | None:
    return (
        None if address.credential is None else Credential(user=address.credential[0], password=address.credential[1])
    )


def _host(address: Address) -> str:
    return (slug(urlsplit(address.location).hostname or "") if "://" in address.location else "")[:_LONGEST] or "camera"


def _ids(addresses: Sequence[Address]) -> list[str]:
    """Return an id for each: its short name, with what tells it apart where several have that, else a number."""
    short = [_short(address) for address in addresses]
    longer = [
        name if short.count(name) == 1 else _joined(name, _tail(address))
        for name, address in zip(short, addresses, strict=True)
    ]
    ids: list[str] = []
    for name in longer:
        numbers = (name if number == 1 else _joined(name, str(number)) for number in range(1, len(longer) + 2))
        ids.append(next(one for one in numbers if one not in ids and (one == name or one not in longer)))
    return ids


def _short(address: Address) -> str:
    if "://" in address.location:
        host = urlsplit(address.location).hostname or ""
        is_number = _IPV4.fullmatch(host) or ":" in host
        name = host if is_number else host.partition(".")[0]
    elif address.scheme in ("file", "v4l2"):
        name = Path(address.location).stem
    else:
        name = f"{address.scheme} {address.location}"
    return slug(name)[:_LONGEST].rstrip("-") or "camera"


def _tail(address: Address) -> str:
    if "://" in address.location:
        parts = urlsplit(address.location)
        return slug(f"{parts.port or ''} {parts.path} {parts.query}")
    return slug(Path(address.location).parent.name)


def _joined(name: str, tail: str) -> str:
    while len(tail) > _LONGEST_TAIL:  # the end tells more than the beginning: /Streaming/Channels/101
        _, dash, rest = tail.partition("-")
        tail = rest if dash else tail[-_LONGEST_TAIL:]
    return f"{name[: _LONGEST - 1 - len(tail)].rstrip('-')}-{tail}" if tail else name


_TLS_OF = {"mqtts": True, "mqtt": False}  # plain text has to be asked for
_ATTEMPTS = 2


def broker_from_text(text: str, *, site: str | None, ca: str | None) -> tuple[MqttConfig, Credential | None]:
    """Return what `HOST[:PORT]`, `mqtts://...` (the same) or `mqtt://...` (plain text) means, and its login if any.

    Raises `ConfigError`, without the text: it may hold a password.
    """
    scheme, separator, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    is_known = not separator or scheme in _TLS_OF
    if not host or port == 0 or not is_known or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError(
            "--broker: expected HOST, HOST:PORT, mqtts://HOST[:PORT], or mqtt://HOST[:PORT] for plain text",
            hint="in a password write @ as %40, / as %2F, ? as %3F, # as %23",
        )
    tls = _TLS_OF.get(scheme, True)
    if ca is not None and not tls:
        raise ConfigError("--ca: is of no use without TLS", hint="write mqtts://, or leave it out")
    config = mqtt_from_options({"host": host, "port": port, "site": site, "tls": tls if ca is None else {"ca": ca}})
    user = parts.username
    return config, None if user is None else Credential(user=unquote(user), password=unquote(parts.password or ""))


def try_broker(
    config: MqttConfig,
    *,
    login: Credential | None,
    base_dir: Path,
    within_s: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> str:
    """Connect without a session, disconnect, and return the address; raise ConfigError (TLS files), PublishError."""
    name = f"edge-new-{secrets.token_hex(4)}"
    endpoint = endpoint_from_config(config, client_id=name, credential=login, base_dir=base_dir)
    endpoint = dataclasses.replace(endpoint, connect_timeout_s=within_s / _ATTEMPTS)
    protocol = ProtocolChoice(config.protocol)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            Connection(endpoint, version=protocol.version).close()
            return str(endpoint)
        except BrokerError as error:
            if attempt == _ATTEMPTS or is_stopped() or not protocol.failed(error.kind, patience=1):
                raise BrokerError(error.kind, f"{endpoint}: {error.problem}", hint=error.hint) from error
    raise AssertionError("every attempt returns or raises")


def wants_login(problem: object) -> bool:
    """Return whether the broker has refused us, which a login may change."""
    return isinstance(problem, BrokerError) and problem.kind is Trouble.REFUSED
