"""The cameras, looked at side by side; who wants a login is asked for once a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edge.config.credentials import Credential
from edge.config.schema import StreamConfig
from edge.deploy.new.places import Place
from edge.deploy.new.secrets import Ask, Secrets
from edge.deploy.new.side_by_side import Attempt
from edge.errors import EdgeError, SourceError
from edge.media.first_look import FirstLook, look_at

__all__ = ["FoundCamera", "attempt_of", "camera_of", "logins_of", "wanting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCamera:
    """What came of a place: a look at it, or why there is none.

    Attributes:
        credential: the name of its secret; None where it wants none.
        wants_login: it was not seen because of user and password.
    """

    place: Place
    look: FirstLook | None
    problem: EdgeError | None
    credential: str | None
    wants_login: bool = False


def attempt_of(place: Place, login: Credential | None, *, within_s: float) -> Attempt[FirstLook]:
    """Return how to look at a place."""
    pair = None if login is None else (login.user, login.password)
    address = replace(place.address, credential=pair)
    stream = StreamConfig(id=place.id, uri=place.uri)
    return lambda is_stopped: look_at(stream, address, within_s=within_s, is_stopped=is_stopped)


def logins_of(places: Sequence[Place], secrets: Secrets, *, credential: str | None) -> dict[str, Credential | None]:
    """Return what each place is tried with at first: what was typed in its address, else what is kept.

    Args:
        places: all of them.
        secrets: what is kept by the names of their hosts.
        credential: or by this one, which has to be there.

    Raises:
        ConfigError: if a secret cannot be used.
    """
    stated = None if credential is None else secrets.stated(credential)
    return {
        place.id: place.login or ((stated or secrets.kept(place.host)) if _may_want_login(place) else None)
        for place in places
    }


def wanting(places: Sequence[Place], found: Mapping[str, object], ask: Ask) -> dict[str, Credential]:
    """Return a login for each place that wants one and came with none, as far as there is somebody who knows it."""
    asked: dict[str, Credential | None] = {}
    for place in places:
        if _wants_login(found[place.id]) and place.login is None and place.host not in asked:
            asked[place.host] = ask(place.address.shown)
    return {
        place.id: login
        for place in places
        if _wants_login(found[place.id]) and place.login is None and (login := asked[place.host]) is not None
    }


def camera_of(place: Place, found: FirstLook | EdgeError, *, credential: str | None) -> FoundCamera:
    """Return what came of a place; `credential` is the name of the secret that it took."""
    if not isinstance(found, EdgeError):
        return FoundCamera(place=place, look=found, problem=None, credential=credential)
    is_refused = _wants_login(found)
    return FoundCamera(
        place=place,
        look=None,
        problem=found,
        credential=place.host if is_refused else None,
        wants_login=is_refused,
    )


def _wants_login(found: object) -> bool:
    return isinstance(found, SourceError) and found.wants_login


def _may_want_login(place: Place) -> bool:
    return place.address.scheme in ("rtsp", "rtsps", "http", "https")
