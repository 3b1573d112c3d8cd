"""The one place that imports oras, which writes to registries; imported when used (the extra `registry`).

What oras leaves open is closed here: whom a login is for, by which TLS, for how long, and how often something is asked.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from edge.errors import DeployError, MissingDependencyError
from edge.registry.artifact import OCI_MANIFEST, ArtifactLayer
from edge.registry.client import token_in
from edge.registry.https import tls_context
from edge.registry.login import Login, host_of, read_challenge
from edge.registry.problems import UNREACHABLE, refused, retry_after_s
from edge.registry.reference import Reference
from edge.untrusted import cleaned

__all__ = ["RegistryWriter"]

_T = TypeVar("_T")
_TAKEN = (200, 201, 202)
_WITHIN_S = (20.0, 120.0)  # to connect, and of silence: some registries bring a large blob to its storage meanwhile
_PAUSES_S = (1.0, 3.0, 9.0)


class RegistryWriter:
    """Writes blobs and manifests to the repository of `reference`; every method raises DeployError `registry.*`.

    `login` is sent to the registry, and to where that says that its tokens are; `ca` counts beside those of the system;
    `is_basic`: the registry takes user and password with each request, and gives no tokens.
    """

    def __init__(self, reference: Reference, *, login: Login | None, ca: Path | None, is_basic: bool) -> None:
        self._reference = reference
        self._make = partial(_provider, reference, login, ca, is_basic=is_basic)

    @cached_property
    def _provider(self) -> Any:
        return self._make()  # when something is to be written: oras takes a second to be imported

    def close(self) -> None:
        if "_provider" in self.__dict__:
            self._provider.session.close()

    def has(self, layer: ArtifactLayer) -> bool:
        where, told = _container(self._reference), {"digest": layer.digest}
        return bool(self._asked(lambda: self._provider.blob_exists(told, where)))

    def put(self, layer: ArtifactLayer, path: Path) -> None:
        """DeployError `bundle.file` if `path` cannot be read any longer."""
        url, what = f"https://{_container(self._reference).upload_blob_url()}", layer.digest[:19]
        begun = self._taken(lambda: self._provider.do_request(url, "POST", headers={"Content-Length": "0"}), what)
        place = self._asked(lambda: urlsplit(urljoin(url, begun.headers.get("Location", ""))))
        query = "&".join(one for one in (place.query, f"digest=sha256%3A{layer.sha256}") if one)
        headers = {"Content-Type": "application/octet-stream"}
        try:
            content = path.open("rb")
        except OSError as error:
            raise DeployError("bundle.file", f"{path}: {error.strerror}", hint="make the bundle again") from None
        with content:
            self._taken(
                lambda: self._provider.do_request(
                    place._replace(query=query).geturl(),
                    "PUT",
                    data=content if layer.length_bytes else b"",  # read as it is sent, whatever its length
                    headers=headers,
                ),
                what,
            )

    def put_manifest(self, manifest: Mapping[str, Any], tag: str) -> str:
        """Give a tag to an artifact whose blobs are there; return its digest."""
        return self.tag(json.dumps(manifest).encode(), tag)

    def tag(self, manifest: bytes, tag: str) -> str:
        """Give a tag to the artifact of an OCI manifest, which stays as it is byte for byte; return its digest."""
        where = _container(Reference(self._reference.host, self._reference.repository, tag))
        url, headers = f"https://{where.manifest_url()}", {"Content-Type": OCI_MANIFEST}
        answer = self._taken(lambda: self._provider.do_request(url, "PUT", headers=headers, data=manifest), tag)
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        if answer.headers.get("Docker-Content-Digest", digest) != digest:
            problem = f"{where.uri}: the registry has taken it as something else than what was sent"
            raise DeployError("registry.damaged", problem, hint="look at the registry's storage, and publish again")
        if "Docker-Content-Digest" not in answer.headers:
            self._see(url, digest, where.uri)
        return digest

    def _see(self, url: str, digest: str, what: str) -> None:
        """See that a tag names `digest`, where the registry did not say so: some take a tag that they never move."""
        answer = self._taken(lambda: self._provider.do_request(url, headers={"Accept": OCI_MANIFEST}), what)
        if f"sha256:{hashlib.sha256(answer.content).hexdigest()}" != digest:
            problem = f"{what}: the registry has taken it and names something else by this tag"
            raise DeployError("registry.answer", problem, hint="look whether this registry lets tags be moved")

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

        host = self._reference.host
        try:
            return ask()
        except requests.exceptions.SSLError as error:
            raise DeployError("registry.tls", f"{host}: {error}", hint="docs/fleet.md, A CA of your own") from None
        except requests.exceptions.InvalidSchema:
            problem = f"{host}: it sends us to where there is no TLS"
            raise DeployError("registry.answer", problem, hint="a registry is always reached by HTTPS") from None
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            hint = "look at the network and at the registry, and publish again: what has arrived is not sent twice"
            # Not in the words of requests: they tell where it was sent to, and such an address is as good as a login.
            what = "it is silent" if isinstance(error, requests.exceptions.Timeout) else "the connection was lost"
            raise DeployError(UNREACHABLE, f"{host}: {what}", hint=hint) from None
        except (requests.exceptions.RequestException, ValueError) as error:
            # oras says as a ValueError that an answer is not what it understands.
            what = cleaned(str(error))[:200]
            raise DeployError(
                "registry.answer", f"{host}: {what}", hint="look whether this is an OCI registry"
            ) from None


def _provider(reference: Reference, login: Login | None, ca: Path | None, *, is_basic: bool) -> Any:
    try:
        import oras.logger
        import oras.provider
    except ImportError:
        raise MissingDependencyError(
            "publishing to a registry needs oras, which is not installed", hint="pip install 'edge-deploy[registry]'"
        ) from None

    class Provider(oras.provider.Registry):  # type: ignore[misc]
        """Asks as `RegistryClient` does; oras waits two minutes, and tells its token to any host that it is sent to."""

        known = login.header if login is not None and is_basic else None

        def do_request(
            self,
            url: str,
            method: str = "GET",
            data: Any = None,
            headers: dict[str, str] | None = None,
            json: Any = None,
            stream: bool = False,
        ) -> Any:
            def ask() -> Any:
                if hasattr(data, "seek"):
                    data.seek(0)
                known = {"Authorization": self.known} if self.known and is_ours else {}
                given = {**(headers or {}), **known}
                return self.session.request(method, url, data=data, json=json, headers=given, stream=stream)

            is_ours = host_of(urlsplit(url).netloc) == host_of(reference.host)
            answer = _persistently(ask)
            if answer.status_code == 401 and is_ours and not is_basic:
                token = self.token(answer.headers.get("WWW-Authenticate", ""))
                if token is not None:
                    self.known = f"Bearer {token}"
                    return _persistently(ask)
            return answer

        def token(self, header: str) -> str | None:
            """Return a token for what was just refused: each is for reading or writing, and for some minutes."""
            challenge = read_challenge(header)
            if challenge is None or not challenge.is_bearer:
                return None
            url = urljoin(f"https://{reference.host}/", challenge.url)
            headers = {} if login is None else {"Authorization": login.header_for(url, reference.host)}
            answer = self.session.get(url, headers=headers)
            return token_in(answer.content) if answer.status_code == 200 else None

    oras.logger.logger.logger.setLevel(logging.CRITICAL)  # what matters comes as an error of ours
    made = Provider()
    made.session.auth = lambda request: request  # no other login: that of ~/.netrc would take the token's place
    made.session.adapters.clear()
    made.session.mount("https://", _adapter(ca))
    return made


def _adapter(ca: Path | None) -> Any:
    """Return what sends by the TLS that `RegistryClient` asks for, and never waits for ever."""
    import requests.adapters

    context = tls_context(ca)

    class Adapter(requests.adapters.HTTPAdapter):
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, **options, ssl_context=context)

        def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
            return super().proxy_manager_for(proxy, **options, ssl_context=context)

        def send(self, request: Any, *args: Any, **options: Any) -> Any:
            return super().send(request, *args, **{**options, "timeout": _WITHIN_S})

    return Adapter()


def _persistently(ask: Callable[[], Any]) -> Any:
    """Return an answer; ask again where the connection was lost or the registry has failed, for some seconds."""
    import requests

    for pause_s in _PAUSES_S:
        try:
            answer = ask()
        except requests.exceptions.SSLError:
            raise
        except requests.exceptions.ConnectionError:
            pass
        else:
            if answer.status_code < 500 or answer.status_code == 503:
                return answer
        time.sleep(pause_s)
    return ask()


def _container(reference: Reference) -> Any:
    import oras.container

    # Not read from a text: oras takes a host without a dot for a folder at docker.io, and a folder with one for a host.
    made = oras.container.Container("any")
    made.registry, made.tag = reference.host, reference.tag or "latest"
    made.namespace, _, made.repository = reference.repository.rpartition("/")
    return made
