"""The cameras, looked at side by side; who wants a login is asked for once a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edge.config.credentials import Credential, line_from_credential, own_path, read_credential
from edge.config.schema import StreamConfig
from edge.deploy.new.places import Place
from edge.deploy.new.side_by_side import Attempt
from edge.errors import CertificateError, ConfigError, EdgeError, SourceError
from edge.media.address import Trust
from edge.media.first_look import FirstLook, look_at

__all__ = ["Ask", "AskTrust", "FoundCamera", "Secrets", "attempt_of", "logins_of", "needs_login", "trusted", "wanting"]

AskTrust = Callable[[str, CertificateError], bool]
"""Asks whether what the first argument names is what has shown the certificate that was not the expected one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCamera:
    """A look at a place, or why there is none; `credential` is the name of its secret, None where it wants none."""

    place: Place
    look: FirstLook | None
    problem: EdgeError | None
    credential: str | None

    @property
    def wants_login(self) -> bool:
        """Whether it was not seen because of user and password."""
        return needs_login(self.problem)


def attempt_of(place: Place, login: Credential | None, *, within_s: float) -> Attempt[FirstLook]:
    pair = None if login is None else (login.user, login.password)
    address = replace(place.address, credential=pair)
    stream = StreamConfig(id=place.id, uri=place.uri)
    return lambda is_stopped: look_at(stream, address, within_s=within_s, is_stopped=is_stopped)


def logins_of(places: Sequence[Place], secrets: Secrets, *, credential: str | None) -> dict[str, Credential | None]:
    """Return each place's first login: typed in its address, else kept under its host's name or under `credential`.

    Raises `ConfigError` if a secret cannot be used, or `credential` is not there.
    """
    stated = None if credential is None else secrets.stated(credential)
    asking = ("rtsp", "rtsps", "http", "https")
    return {
        place.id: place.login or ((stated or secrets.kept(place.host)) if place.address.scheme in asking else None)
        for place in places
    }


def trusted(places: Sequence[Place], found: Mapping[str, object], ask: AskTrust) -> list[Place]:
    """Return the places whose certificates a person has taken for theirs, as ones that are known by these."""
    asked: dict[tuple[str, str], bool] = {}
    taken = []
    for place in places:
        error = found[place.id]
        if not isinstance(error, CertificateError):
            continue
        key = place.host, error.fingerprint
        if key not in asked:
            asked[key] = ask(place.address.shown, error)
        if asked[key]:
            trust = Trust(fingerprint=error.fingerprint.partition(":")[2])
            taken.append(replace(place, address=replace(place.address, trust=trust)))
    return taken


def wanting(places: Sequence[Place], found: Mapping[str, object], ask: Ask) -> dict[str, Credential]:
    """Return a login for each place that wants one and came with none, as far as there is somebody who knows it."""
    asked: dict[str, Credential | None] = {}
    logins = {}
    for place in places:
        if not needs_login(found[place.id]) or place.login is not None:
            continue
        if place.host not in asked:
            asked[place.host] = ask(place.address.shown)
        if (login := asked[place.host]) is not None:
            logins[place.id] = login
    return logins


def needs_login(found: object) -> bool:
    """Return whether a camera was not seen because of user and password."""
    return isinstance(found, SourceError) and found.wants_login


Ask = Callable[[str], "Credential | None"]
"""Asks a person, or a stand-in for one, for the login of what the argument names; None: there is none."""


class Secrets:
    """Kept and new secrets, written at the end; a secret that is there keeps its content unless `replaces`."""

    def __init__(self, *, replaces: bool, environ: Mapping[str, str]) -> None:
        self._replaces = replaces
        self._environ = environ
        self._used: dict[str, Credential] = {}
        self.new: dict[str, Credential] = {}

    def stated(self, name: str) -> Credential:
        """ConfigError if it is not there, or cannot be used."""
        return read_credential(name, environ=self._environ)

    def kept(self, name: str) -> Credential | None:
        """Return None where none is kept; ConfigError if it cannot be used."""
        try:
            return read_credential(name, environ=self._environ)
        except ConfigError:
            if own_path(name, environ=self._environ).exists():
                raise
            return None

    def use(self, login: Credential, *, wanted: str) -> str:
        """Return the name that keeps `login`: `wanted`, with a number where that is another's; or raise ConfigError."""
        line_from_credential(login, where=f"the login of {wanted}")
        number = 1
        while True:
            name = wanted if number == 1 else f"{wanted}-{number}"
            before = self._used.get(name) or self.kept(name)
            is_free = before is None or (self._replaces and name not in self._used)
            if before == login or is_free:
                break
            number += 1
        self._used[name] = login
        if before != login:
            self.new[name] = login
        return name
