"""The whole of `edge-deploy new`: looks at everything at once, asks for what is missing, and writes all or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edge.config.credentials import Credential, line_from_credential, own_path, read_credential
from edge.config.pipeline import load_pipeline
from edge.config.schema import MqttConfig, StreamConfig
from edge.deploy.look import Attempt, side_by_side
from edge.deploy.new.document import Broker, FoundCamera, NewPipeline, needs_login, pipeline_text
from edge.deploy.new.places import Place, clips_of, path_text, places_of, slug, try_broker, wants_login
from edge.errors import CertificateError, ConfigError, EdgeError, SourceError
from edge.media.address import REFUSES_LOGIN, WANTS_LOGIN, Trust
from edge.media.images import encode_jpeg
from edge.media.select import FirstLook, look_at
from edge.model.inspect import inspect_model
from edge.untrusted import cleaned
from edge.writing import remedy, write_together

__all__ = ["Ask", "AskTrust", "PipelineRequest", "Secrets", "make_pipeline"]

Ask = Callable[[str], Credential | None]
"""Asks a person, or a stand-in for one, for the login of what the argument names; None: there is none."""

AskTrust = Callable[[str, CertificateError], bool]
"""Asks whether what the first argument names is what has shown the certificate that was not the expected one."""


class Secrets:
    """Kept and new secrets, written at the end; a secret that is there keeps its content unless `replaces`."""

    def __init__(self, *, replaces: bool) -> None:
        self._replaces = replaces
        self._used: dict[str, Credential] = {}
        self.new: dict[str, Credential] = {}

    def kept(self, name: str) -> Credential | None:
        """Return None where none is kept; ConfigError if it cannot be used."""
        try:
            return read_credential(name)
        except ConfigError:
            if own_path(name).exists():
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


_REST_S = 8.0  # counting the rate of a camera that was seen, and taking its connection down
_JPEG_QUALITY = 90
_BROKER = "the broker"
_BEFORE_A_STREAM = {
    WANTS_LOGIN: "it wants a login: type user:password@ before the host, or set EDGE_CAMERA_LOGIN=user:password",
    REFUSES_LOGIN: "it refuses this user and password: correct what was typed, EDGE_CAMERA_LOGIN or the kept secret",
}
_TAKEN_HINT = "name another file with -o, or replace it with --force"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRequest:
    """A person's request: `out` is the pipeline file to be, `typed` are addresses as text, clips and folders as paths.

    `credential`: the secret of cameras that want a login; None: by the name of the host.
    `is_forced`: files and secrets that are there may be replaced.
    `camera_ca`: authorities for certificates of cameras; None: the system's.
    `within_s`: how long a camera or the broker may take to answer.
    """

    model: Path
    typed: Sequence[str | Path]
    out: Path
    broker: tuple[MqttConfig, Credential | None] | None = None
    credential: str | None = None
    is_forced: bool = False
    camera_ca: Path | None = None
    within_s: float = 10.0

    @property
    def folder(self) -> Path:
        """Of the pipeline file; its paths start there."""
        return self.out.parent


def make_pipeline(
    request: PipelineRequest,
    *,
    ask: Ask,
    ask_broker: Ask,
    ask_trust: AskTrust,
    say: Callable[[str], None] = lambda text: None,
) -> NewPipeline:
    """Write the pipeline file with its snapshots and secrets, and return what is in it.

    `ask` gives logins of cameras, `ask_broker` the broker's, `ask_trust` confirms certificates of no known authority.
    Raises `ModelError`, ConfigError (an address, a file that is there), SourceError if no camera was seen; then nothing
    is written.
    """
    spec = inspect_model(request.model)
    places = places_of(request.typed, folder=request.folder, ca=request.camera_ca)
    snapshots = {place.id: request.out.with_name(f"{request.out.stem}-{place.id}.jpg") for place in places}
    _require_free(request, places, [request.out, *snapshots.values()])
    secrets = Secrets(replaces=request.is_forced)
    say(f"looking at {_counted(places)}")
    cameras, broker = _looked(request, places, secrets, ask=ask, ask_broker=ask_broker, ask_trust=ask_trust)
    seen = {camera.place.id for camera in cameras if camera.look is not None}
    if not seen:
        raise _none_seen(cameras)
    new = NewPipeline(
        out=request.out,
        spec=spec,
        onnx=path_text(request.model, request.folder),
        cameras=cameras,
        snapshots={name: path for name, path in snapshots.items() if name in seen},
        broker=broker,
        secrets=sorted(secrets.new),
        passed_over=_passed_over(request),
    )
    _write(new, secrets, is_forced=request.is_forced)
    return new


def _looked(
    request: PipelineRequest,
    places: Sequence[Place],
    secrets: Secrets,
    *,
    ask: Ask,
    ask_broker: Ask,
    ask_trust: AskTrust,
) -> tuple[list[FoundCamera], Broker | None]:
    """Return the cameras and the broker as they are, with the logins that are known or told."""
    stated = None if request.credential is None else read_credential(request.credential)
    logins: dict[str, Credential | None] = {place.id: place.login for place in places}
    if request.broker is not None:
        logins[_BROKER] = request.broker[1]
    found = _tried(request, places, logins)
    known = {place.id: place for place in _trusted(places, found, ask_trust)}
    places = [known.get(place.id, place) for place in places]
    found |= _tried(request, places, {name: logins[name] for name in known})
    # A secret, too, goes to what asks for a login: behind one address there may be several.
    sources: tuple[tuple[Callable[[Place], Credential | None], Ask], ...] = (
        (lambda place: stated or secrets.kept(place.host), lambda host: secrets.kept(slug(host))),
        (lambda place: ask(place.address.shown), lambda host: ask_broker(f"the broker {host}")),
    )
    for of_camera, of_broker in sources:
        told = _wanting(places, found, of_camera)
        if request.broker is not None and request.broker[1] is None and wants_login(found[_BROKER]):
            told[_BROKER] = of_broker(request.broker[0].host)
        told = {name: login for name, login in told.items() if login is not None}
        found |= _tried(request, places, told)
        logins |= told
    cameras = [_camera(request, place, found[place.id], logins[place.id], secrets) for place in places]
    return cameras, _broker(request, found.get(_BROKER), logins.get(_BROKER), secrets)


def _tried(
    request: PipelineRequest, places: Sequence[Place], logins: Mapping[str, Credential | None]
) -> dict[str, FirstLook | str | EdgeError]:
    """Return what comes of the cameras, and the broker, that `logins` names."""
    attempts: dict[str, Attempt[FirstLook | str]] = {
        place.id: _attempt_of(place, logins[place.id], within_s=request.within_s)
        for place in places
        if place.id in logins
    }
    if _BROKER in logins and request.broker is not None:
        config, within_s = request.broker[0], request.within_s
        attempts[_BROKER] = lambda is_stopped: try_broker(
            config, login=logins[_BROKER], base_dir=Path(), within_s=within_s, is_stopped=is_stopped
        )
    return side_by_side(attempts, each_s=request.within_s + _REST_S) if attempts else {}


def _attempt_of(place: Place, login: Credential | None, *, within_s: float) -> Attempt[FirstLook]:
    pair = None if login is None else (login.user, login.password)
    address = replace(place.address, credential=pair)
    stream = StreamConfig(id=place.id, uri=place.uri)
    return lambda is_stopped: look_at(stream, address, within_s=within_s, is_stopped=is_stopped)


def _trusted(places: Sequence[Place], found: Mapping[str, object], ask: AskTrust) -> list[Place]:
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


def _wanting(
    places: Sequence[Place], found: Mapping[str, object], login_of: Callable[[Place], Credential | None]
) -> dict[str, Credential | None]:
    """Return a login, asked for once a host, for each place that wants one and came with none."""
    wanting = [place for place in places if needs_login(found[place.id]) and place.login is None]
    asked: dict[str, Credential | None] = {}
    for place in wanting:
        if place.host not in asked:
            asked[place.host] = login_of(place)
    return {place.id: asked[place.host] for place in wanting}


def _camera(
    request: PipelineRequest,
    place: Place,
    found: FirstLook | str | EdgeError,
    login: Credential | None,
    secrets: Secrets,
) -> FoundCamera:
    assert not isinstance(found, str)  # which is what comes of the broker
    if isinstance(found, EdgeError):
        if found.hint in _BEFORE_A_STREAM and isinstance(found, SourceError):
            hint = _BEFORE_A_STREAM[found.hint]
            found = SourceError(found.problem, hint=hint, wants_login=found.wants_login)
        wanted = (request.credential or place.host) if needs_login(found) else None
        return FoundCamera(place=place, look=None, problem=found, credential=wanted)
    name = None
    if login is not None:
        is_stated = request.credential is not None and login == secrets.kept(request.credential)
        name = request.credential if is_stated else secrets.use(login, wanted=place.host)
    return FoundCamera(place=place, look=found, problem=None, credential=name)


def _broker(
    request: PipelineRequest, found: FirstLook | str | EdgeError | None, login: Credential | None, secrets: Secrets
) -> Broker | None:
    if request.broker is None:
        return None
    config = _with_ca_from(request, request.broker[0])
    if isinstance(found, str):
        name = None if login is None else secrets.use(login, wanted=slug(config.host))
        return Broker(config=msgspec.structs.replace(config, credential=name), shown=found, problem=None)
    name = slug(config.host) if wants_login(found) else None
    problem = found if isinstance(found, EdgeError) else None
    return Broker(config=msgspec.structs.replace(config, credential=name), shown=config.host, problem=problem)


def _with_ca_from(request: PipelineRequest, config: MqttConfig) -> MqttConfig:
    """Return the broker as the pipeline file names its authorities: paths start at its folder."""
    if isinstance(config.tls, bool) or config.tls.ca is None:
        return config
    ca = path_text(Path(config.tls.ca), request.folder)
    return msgspec.structs.replace(config, tls=msgspec.structs.replace(config.tls, ca=ca))


def _require_free(request: PipelineRequest, places: Sequence[Place], paths: Sequence[Path]) -> None:
    taken = next((path for path in paths if os.path.lexists(path)), None)
    if taken is not None and not request.is_forced:
        raise ConfigError(f"{taken}: is there already", hint=_TAKEN_HINT)
    read = [request.model, *(Path(place.address.location) for place in places if place.address.scheme == "file")]
    lost = next((path for path in paths for one in read if path.exists() and path.samefile(one)), None)
    if lost is not None:
        raise ConfigError(f"{lost}: is read by this command, and would be lost", hint="name another file with -o")


def _none_seen(cameras: Sequence[FoundCamera]) -> SourceError:
    reasons = "".join(f"\n  {camera.place.id}: {cleaned(str(camera.problem))}" for camera in cameras)
    return SourceError(f"no camera was seen, and nothing is written:{reasons}")


def _write(new: NewPipeline, secrets: Secrets, *, is_forced: bool) -> None:
    kept = {own_path(name): line_from_credential(login, where=name) for name, login in secrets.new.items()}
    for path in kept:
        _make_folder(path.parent)
    pictures = {
        new.snapshots[camera.place.id]: encode_jpeg(camera.look.picture, quality=_JPEG_QUALITY)
        for camera in new.cameras
        if camera.look is not None
    }
    files = {**kept, **pictures, new.out: pipeline_text(new).encode()}
    try:
        write_together(files, closed=kept, is_replacing=is_forced, check=lambda staged: load_pipeline(staged[new.out]))
    except FileExistsError as error:  # of another command, which was faster
        hint = "run the command again" if Path(error.filename) in kept else _TAKEN_HINT
        raise ConfigError(f"{error.filename}: is there already", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be written: {error.strerror}", hint=remedy(error)) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        hint = remedy(error, "set XDG_CONFIG_HOME to a folder of yours")
        raise ConfigError(f"{folder}: no place to keep logins in: {error.strerror}", hint=hint) from error


def _passed_over(request: PipelineRequest) -> int:
    folders = [one for one in request.typed if isinstance(one, Path) and one.is_dir()]
    return sum(sum(path.is_file() for path in folder.iterdir()) - len(clips_of(folder)) for folder in folders)


def _counted(places: Sequence[Place]) -> str:
    return f"{len(places)} {'camera' if len(places) == 1 else 'cameras'}"
