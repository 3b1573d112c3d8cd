"""A bundle into an OCI registry, with the login that docker or podman keep: blobs first, the tag at the very end.

What it has is not sent again. Written by the client that devices read with. Source: OCI Distribution Specification
1.1 ("Push").
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from edge.bundle.folder import MANIFEST as MANIFEST_FILE
from edge.bundle.folder import SIGNATURE as SIGNATURE_FILE
from edge.bundle.folder import Bundle
from edge.bundle.manifest import Manifest
from edge.errors import DeployError
from edge.reading import json_object, read_file
from edge.registry.artifact import (
    EMPTY,
    EMPTY_CONTENT,
    FILE,
    MANIFEST,
    OCI_MANIFEST,
    SIGNATURE,
    ArtifactLayer,
    encode_artifact,
)
from edge.registry.client import RegistryClient
from edge.registry.https import RegistryResponse, is_passing
from edge.registry.login import Login
from edge.registry.reference import Reference

__all__ = [
    "Published",
    "RegistryWriter",
    "kept_login",
    "publish",
]

_HELPER_S = 60.0  # it may ask a person
_NONE_KEPT = b"credentials not found"


def kept_login(reference: Reference) -> Login | None:
    """Return the login for a repository from the first file that has one; None where none has.

    Each file's own helpers are asked (`credHelpers`, `credsStore`); a key may name a part of a registry (podman).
    DeployError `registry.login`, for a file or a helper that is not what it should be; never with a secret.
    """
    for path in _kept_in():
        if path.exists():
            found = _login_of(path, reference)
            if found is not None:
                return found
    return None


def _login_of(path: Path, reference: Reference) -> Login | None:
    try:
        told = json_object(read_file(path, follows_links=True))
    except (OSError, ValueError) as error:
        raise _unfit(path, str(getattr(error, "strerror", None) or "it is no JSON object")) from None
    auths, helpers = (told.get(name) or {} for name in ("auths", "credHelpers"))
    if not isinstance(auths, dict) or not isinstance(helpers, dict):
        raise _unfit(path, "expected objects under auths and credHelpers")
    keys = list(_keys(reference))
    for key in keys:
        if isinstance(auths.get(key), dict) and auths[key].get("auth"):
            return _decoded(path, auths[key]["auth"])
    for key in keys:
        if key in helpers:
            return _asked(path, helpers[key], key, is_needed=True)
    store = told.get("credsStore")
    return None if not store else _asked(path, store, reference.host, is_needed=any(key in auths for key in keys))


def _keys(reference: Reference) -> Iterator[str]:
    """Yield the names under which a login may be kept, the nearest first."""
    parts = [reference.host, *reference.repository.split("/")]
    for count in range(len(parts), 0, -1):
        yield "/".join(parts[:count])
    yield from (f"https://{reference.host}{rest}" for rest in ("", "/", "/v2/", "/v1/"))


def _decoded(path: Path, auth: Any) -> Login:
    try:
        user, colon, password = base64.b64decode(auth, validate=True).decode("utf-8").partition(":")
    except (ValueError, TypeError):
        user, colon, password = "", "", ""
    if not user or not colon or not password:
        raise _unfit(path, "the login that it keeps for this registry is not user:password in base64")
    return Login(user, password)


def _asked(path: Path, suffix: Any, host: str, *, is_needed: bool) -> Login | None:
    """Return what a helper knows of `host`; `is_needed`: the file says that it knows something."""
    program = f"docker-credential-{suffix}"
    try:
        done = subprocess.run(
            [program, "get"], input=host.encode(), capture_output=True, timeout=_HELPER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise _unfit(path, f"{program} has not answered within {_HELPER_S:.0f} s") from None
    except (OSError, ValueError) as error:
        if not is_needed:
            return None
        raise _unfit(path, f"{program}: {getattr(error, 'strerror', None) or error}") from None
    if done.returncode != 0:
        if not is_needed or _NONE_KEPT in done.stdout + done.stderr:
            return None
        raise _unfit(path, f"{program} has failed ({done.returncode})")
    try:
        told = json_object(done.stdout)
    except ValueError:
        told = {}
    user, secret = told.get("Username"), told.get("Secret")
    if not isinstance(user, str) or not isinstance(secret, str) or not user or not secret or user == "<token>":
        raise _unfit(path, f"{program} gives no user and password")
    return Login(user, secret)


def _kept_in() -> Iterator[Path]:
    """Yield where docker and podman keep logins, in the order in which podman looks; empty counts as not set."""
    home = Path.home()
    if file := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(file)
    if folder := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(folder) / "containers/auth.json"
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json"
    yield Path(os.environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _unfit(path: Path, what: str) -> DeployError:
    return DeployError("registry.login", f"{path}: {what}", hint="log in once more, or give --login FILE")


_SILENCE_S = 120.0  # some registries bring a large blob to its storage meanwhile
_PAUSES_S = (1.0, 3.0, 9.0)
_WRITTEN = (201, 202)
_NOT_SEEN = (400, 403, 404, 405)  # some refuse the question alone: what cannot be seen is sent
_T = TypeVar("_T")


OnStep = Callable[[str, int, int], None]


class RegistryWriter(RegistryClient):
    """Reads and writes the repository of `reference`; every method raises DeployError `registry.*`.

    `login` and `ca` as in `RegistryClient`. A question is asked again where the connection was lost or the registry has
    failed, for some seconds.
    """

    def __init__(self, reference: Reference, *, login: Login | None, ca: Path | None) -> None:
        super().__init__(reference, login=login, ca=ca, within_s=_SILENCE_S, silence_s=_SILENCE_S)

    def has(self, layer: ArtifactLayer) -> bool:
        path = self._path(f"blobs/{layer.digest}")
        answer = self._persistently(lambda: self._ask("HEAD", path, allowed=_NOT_SEEN))
        answer.close()
        return answer.status == 200

    def put(self, layer: ArtifactLayer, content: Path | bytes) -> None:
        """DeployError `bundle.file` if a path cannot be read any longer."""
        uploads = self._path("blobs/uploads/")
        begun = self._persistently(lambda: self._ask("POST", uploads, allowed=_WRITTEN))
        begun.close()
        place = begun.header("Location") or ""
        place += f"{'&' if '?' in place else '?'}digest=sha256%3A{layer.sha256}"
        try:
            body: BinaryIO = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        except OSError as error:
            raise DeployError("bundle.file", f"{content!s}: {error.strerror}", hint="make the bundle again") from None
        with body:
            self._send(uploads, body, "application/octet-stream", place=place).close()

    def put_manifest(self, manifest: Mapping[str, Any], tag: str) -> str:
        """Give a tag to an artifact whose blobs are there; return its digest."""
        return self.tag(json.dumps(manifest).encode(), tag)

    def tag(self, manifest: bytes, tag: str) -> str:
        """Give a tag to the artifact of an OCI manifest, which stays as it is byte for byte; return its digest."""
        answer = self._send(self._path(f"manifests/{tag}"), io.BytesIO(manifest), OCI_MANIFEST)
        answer.close()
        digest, told = f"sha256:{hashlib.sha256(manifest).hexdigest()}", answer.header("Docker-Content-Digest")
        if told not in (digest, None):
            problem = f"{self.name_of(tag)}: the registry has taken it as something else than what was sent"
            raise DeployError("registry.damaged", problem, hint="look at the registry's storage, and publish again")
        # Where the registry did not say what it has taken: some take a tag that they never move.
        if told is None and self._persistently(lambda: self.manifest(tag))[1] != digest:
            problem = f"{self.name_of(tag)}: the registry has taken it and names something else by this tag"
            raise DeployError("registry.answer", problem, hint="look whether this registry lets tags be moved")
        return digest

    def _send(self, path: str, body: BinaryIO, kind: str, *, place: str | None = None) -> RegistryResponse:
        length = body.seek(0, io.SEEK_END)
        headers = {"Content-Type": kind, "Content-Length": str(length)}
        return self._persistently(
            lambda: self._ask(
                "PUT", path, headers=headers, allowed=_WRITTEN, place=place, body=body, length_bytes=length
            )
        )

    def _persistently(self, ask: Callable[[], _T]) -> _T:
        for pause_s in _PAUSES_S:
            try:
                return ask()
            except DeployError as error:
                if not is_passing(error):
                    raise
            time.sleep(pause_s)
        return ask()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published release: its tags, its digest, and how many bytes of blobs were sent of how many."""

    reference: str
    release: str
    digest: str
    tags: tuple[str, ...]
    bytes_sent: int
    bytes_total: int


def publish(
    bundle: Bundle,
    reference: Reference,
    *,
    login: Login | None = None,
    ca: Path | None = None,
    on_step: OnStep = lambda what, done, total: None,
) -> Published:
    """Put `bundle` into a registry, under its release's name, and under the tag of `reference` if it states one.

    `login` None: what docker or podman keep for this registry. `on_step` takes what is being sent, and bytes done of
    all.
    DeployError: `registry.*`; `bundle.file` if a file has changed: the devices' tag was not moved then.
    """
    tags = (bundle.manifest.release, *([] if reference.tag is None else [reference.tag]))
    opened = RegistryWriter(reference, login=login or kept_login(reference), ca=ca)
    with closing(opened) as writer:
        writer.check()  # an address, a CA or a login that is wrong is seen at once
        layers = _layers(bundle)
        total = sum(layer.length_bytes for layer in layers)
        sent = done = 0
        for layer, content in layers.items():
            on_step(layer.title, done, total)
            if not writer.has(layer):
                writer.put(layer, content)
                sent += layer.length_bytes
            done += layer.length_bytes
        manifest, signature, *files = (layer for layer in layers if layer.media_type != EMPTY)
        artifact = encode_artifact(manifest, signature, files, annotations=_annotations(bundle.manifest))
        for tag in tags:
            digest = writer.put_manifest(artifact, tag)
    return Published(
        reference=f"{reference.host}/{reference.repository}",
        release=bundle.manifest.release,
        digest=digest,
        tags=tags,
        bytes_sent=sent,
        bytes_total=total,
    )


def _layers(bundle: Bundle) -> dict[ArtifactLayer, Path | bytes]:
    """Return each layer and its content or where that lies: manifest, signature, then files by path, each once."""
    made: dict[ArtifactLayer, Path | bytes] = {}
    for media_type, name, content in (
        (MANIFEST, MANIFEST_FILE, bundle.manifest_bytes),
        (SIGNATURE, SIGNATURE_FILE, bundle.signature),
        (EMPTY, "empty", EMPTY_CONTENT),
    ):
        made[ArtifactLayer(media_type, hashlib.sha256(content).hexdigest(), len(content), name)] = content
    known: set[str] = set()
    for file in bundle.manifest.files:
        if file.sha256 not in known:
            known.add(file.sha256)
            made[ArtifactLayer(FILE, file.sha256, file.length_bytes, file.path)] = bundle.path_of(file)
    return made


def _annotations(manifest: Manifest) -> dict[str, str]:
    """Return what people and `rollout` read without opening a blob; devices believe none of it."""
    ours = "io.edge-deploy."
    told = {
        "org.opencontainers.image.created": manifest.created_at,
        "org.opencontainers.image.title": manifest.pipeline_name,
        ours + "release": manifest.release,
        ours + "channel": manifest.channel,
        ours + "sequence": str(manifest.sequence),
        ours + "compatible": ",".join(manifest.compatible),
        ours + "targets": ",".join(manifest.targets),
        ours + "evidence": _evidence(manifest),
    }
    return {name: value for name, value in told.items() if value}


def _evidence(manifest: Manifest) -> str:
    evidence = manifest.calibration.get("evidence")
    return json.dumps(evidence, sort_keys=True) if evidence else ""
