"""What was typed as cameras: addresses taken apart, folders of clips gone through, each with an id that can be read."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from edge.config.credentials import Credential
from edge.errors import ConfigError
from edge.media.address import CLIP_SUFFIXES, Address, parse_address, redact

__all__ = ["Place", "clips_of", "path_text", "places_of", "slug"]

_LONGEST = 32
_LONGEST_TAIL = 16
_IPV4 = re.compile(r"[0-9.]+")
_SECRET = re.compile(r"(?i)(?:pass(?:word|wd)?|pwd|token|secret)=[^&]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one stream comes from.

    Attributes:
        id: of the stream.
        uri: for the pipeline file; holds no login.
        address: the same, taken apart.
        login: what was typed within the address.
        host: the name of its secret, if it wants one; one for all streams of a host.
    """

    id: str
    uri: str
    address: Address
    login: Credential | None = field(repr=False)
    host: str


def places_of(typed: Iterable[str | Path], *, folder: Path) -> list[Place]:
    """Return one place for each address, clip, and clip in a folder, in their order.

    Args:
        typed: addresses as text, files and folders as paths.
        folder: of the pipeline file, which its paths start at.

    Raises:
        ConfigError: if one cannot be used, or is there twice, or a folder has no clips.
    """
    found = [
        (uri, parse_address(uri, base_dir=folder)) for one in typed for uri in _uris(one, folder) if _require_open(uri)
    ]
    addresses = [address for _, address in found]
    twice = [address for address, count in Counter(map(_key, addresses)).items() if count > 1]
    if twice:
        raise ConfigError(f"{redact(twice[0])}: is given twice", hint="name each camera and each clip once")
    return [
        Place(id=name, uri=_without_login(uri, address), address=address, login=_login(address), host=_host(address))
        for name, (uri, address) in zip(_ids(addresses), found, strict=True)
    ]


def clips_of(folder: Path) -> list[Path]:
    """Return the clips directly in `folder`, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in CLIP_SUFFIXES and path.is_file())


def path_text(path: Path, folder: Path) -> str:
    """Return how a file in `folder` names `path`: from the folder on where it lies near, else by its whole path."""
    whole = os.path.abspath(path)
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
        yield path_text(one, folder)
        return
    clips = clips_of(one)
    if not clips:
        raise ConfigError(f"{one}: expected clips ({', '.join(CLIP_SUFFIXES)}), found none", hint="name another folder")
    yield from (path_text(clip, folder) for clip in clips)


def _require_open(uri: str) -> bool:
    """Refuse an address with a secret where it cannot be taken out: the pipeline file is read by everybody."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.lower() not in ("rtsp", "rtsps", "http", "https"):
        return True
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    after = rest[len(authority) :]
    if "@" in after:
        raise ConfigError(
            f"{scheme}://...: expected no @ behind the host", hint="in a password write @ as %40, / as %2F, ? as %3F"
        )
    if _SECRET.search(after):
        raise ConfigError(
            f"{scheme}://{authority.rpartition('@')[2]}/...: expected no secret in the path or query of an address",
            hint=f"a pipeline file is read by everybody; {scheme}://USER:PASSWORD@HOST/... is kept apart from it",
        )
    return True


def _key(address: Address) -> str:
    return f"{address.location}?{sorted(address.options.items())}" if address.options else address.location


def _without_login(uri: str, address: Address) -> str:
    return address.location if address.scheme in ("rtsp", "rtsps", "http", "https") else uri


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
