"""The one place that imports oras, which writes to registries; imported when used (the extra `registry`)."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from edge.errors import DeployError, MissingDependencyError
from edge.registry.artifact import Layer
from edge.registry.login import Login
from edge.registry.problems import broken, refused, retry_after_s
from edge.registry.reference import Reference

__all__ = ["RegistryWriter", "kept_login"]

_T = TypeVar("_T")
_TAKEN = (200, 201, 202)


def kept_login(reference: Reference) -> Login | None:
    """Return the login that docker, podman or oras keep for a registry; None where they keep none.

    A file's own helpers (`credHelpers`, `credsStore`) are asked. Each file by itself: oras would mix them.
    """
    for path in _kept_in():
        if not path.is_file():
            continue
        auth = _provider(None).auth
        auth.load_configs(_container(reference), configs=[str(path)])
        found = getattr(auth, "_basic_auth", None)
        if found:
            user, _, password = base64.b64decode(found).decode("utf-8", "replace").partition(":")
            return Login(user, password)
    return None


class RegistryWriter:
    """Writes blobs and manifests to the repository of `reference`; every method raises DeployError `registry.*`.

    Args:
        reference: the repository.
        login: None: none.
        ca: a file of certificates that count; None: those of the system.
        is_basic: the registry takes user and password with each request, and gives no tokens.
    """

    def __init__(self, reference: Reference, *, login: Login | None, ca: Path | None, is_basic: bool) -> None:
        self._reference = reference
        self._provider = _provider(ca, backend="basic" if is_basic else "token")
        if login is not None:
            self._provider.auth.set_basic_auth(login.user, login.password)
            if is_basic:  # at once, not after a refusal: the body of a blob would go twice
                self._provider.session.auth = (login.user, login.password)

    def has(self, layer: Layer) -> bool:
        """Return whether a blob is there already."""
        where, told = _container(self._reference), {"digest": layer.digest}
        return bool(self._asked(lambda: self._provider.blob_exists(told, where)))

    def put(self, layer: Layer, path: Path) -> None:
        """Send a blob that lies in the file `path`."""
        where, told = _container(self._reference), {"digest": layer.digest, "size": layer.length_bytes}
        self._taken(lambda: self._provider.put_upload(str(path), where, told), layer.digest[:19])

    def put_manifest(self, manifest: Mapping[str, Any], tag: str) -> str:
        """Give a tag to an artifact whose blobs are there; return its digest."""
        where = _container(Reference(self._reference.host, self._reference.repository, tag))
        answer = self._taken(lambda: self._provider.upload_manifest(dict(manifest), where), tag)
        return str(answer.headers.get("Docker-Content-Digest", ""))

    def _taken(self, ask: Callable[[], Any], what: str) -> Any:
        answer = self._asked(ask)
        if answer.status_code not in _TAKEN:
            raise refused(
                answer.status_code,
                f"{self._reference.host}/{self._reference.repository} {what}",
                retry_s=retry_after_s(answer.headers.get("Retry-After")),
            )
        return answer

    def _asked(self, ask: Callable[[], _T]) -> _T:
        import requests

        try:
            return ask()
        except requests.exceptions.SSLError as error:
            raise broken(error, host=self._reference.host, was_cut=False) from None
        except (requests.exceptions.RequestException, ValueError) as error:
            # oras says as a ValueError that it has no login, or that an answer is not what it understands.
            raise DeployError(
                "registry.failed", f"{self._reference.host}: {error}", hint="look at the registry and at the login"
            ) from None


def _provider(ca: Path | None, *, backend: str = "token") -> Any:
    try:
        import oras.logger
        import oras.provider
    except ImportError:
        raise MissingDependencyError(
            "publishing to a registry needs oras, which is not installed", hint="pip install 'edge-deploy[registry]'"
        ) from None
    oras.logger.logger.logger.setLevel(logging.CRITICAL)  # what matters comes as an error of ours
    return oras.provider.Registry(tls_verify=True if ca is None else str(ca), auth_backend=backend)


def _container(reference: Reference) -> Any:
    import oras.container

    return oras.container.Container(str(reference))


def _kept_in() -> Iterator[Path]:
    """Yield where docker and podman keep logins, in the order in which podman looks."""
    home = Path.home()
    if "REGISTRY_AUTH_FILE" in os.environ:
        yield Path(os.environ["REGISTRY_AUTH_FILE"])
    if "XDG_RUNTIME_DIR" in os.environ:
        yield Path(os.environ["XDG_RUNTIME_DIR"]) / "containers/auth.json"
    yield Path(os.environ.get("XDG_CONFIG_HOME", home / ".config")) / "containers/auth.json"
    yield Path(os.environ.get("DOCKER_CONFIG", home / ".docker")) / "config.json"
