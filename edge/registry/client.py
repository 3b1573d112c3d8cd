"""Reads artifacts and blobs of an OCI registry. Standard library only, for devices; what it reads is not to be trusted.

Source: OCI Distribution Specification 1.1 ("Pull"); tokens as registries of the field give them
(https://distribution.github.io/distribution/spec/auth/token/).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urljoin, urlsplit

from edge.errors import DeployError
from edge.reading import json_value
from edge.registry.artifact import MAX_ARTIFACT_BYTES, OCI_MANIFEST, ArtifactLayer
from edge.registry.https import SILENCE_S, Https, RegistryResponse, is_passing, refused, retry_after_s, tls_context
from edge.registry.login import Challenge, Login, host_of, read_challenge
from edge.registry.reference import Reference

__all__ = ["BlobFile", "RegistryClient", "tags_in", "token_in"]

_WITHIN_S = 60.0
_SLOWEST_BYTES_PER_S = 8 * 1024  # so that no registry holds a device's lock for ever
_MOST_REDIRECTS = 5
_MOST_TOKEN_BYTES = 64 * 1024
_TAGS_A_PAGE, _MOST_PAGES = 1000, 1000
_MOVED = (301, 302, 303, 307, 308)
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # an agent gives a client up that is silent for half a minute
_SKIP_BYTES = 256 * 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class RegistryClient:
    """Asks the registry of `reference`; owns its connections. For one thread.

    Every method raises DeployError `registry.*`: `unreachable`, `slow`, `tls`, `denied`, `missing`, `busy`, `failed`,
    `answer`, `artifact`, `damaged`.

    `login` is sent to the registry, and to where that says that its tokens are; `ca` counts beside those of the system,
    or alone; `within_s` is for each answer (a blob may take longer, by its length), `silence_s` for each part of it;
    `is_basic`: user and password are sent before the registry asks.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        login: Login | None = None,
        ca: Path | None = None,
        is_ca_alone: bool = False,
        within_s: float = _WITHIN_S,
        silence_s: float = SILENCE_S,
        is_basic: bool = False,
    ) -> None:
        self.reference = reference
        self._login = login
        self._context = tls_context(ca, is_alone=is_ca_alone)
        self._within_s, self._silence_s = within_s, silence_s
        self._hosts: dict[str, Https] = {}
        self._authorization = login.header if is_basic and login is not None else None
        self.is_basic = is_basic
        """Whether the registry has asked for user and password themselves, not for a token."""

    def close(self) -> None:
        for one in self._hosts.values():
            one.close()

    def check(self) -> None:
        """See that there is a registry that takes our login for this repository (`pull`)."""
        self._ask("HEAD", self._path(f"manifests/{self.reference.tag or 'latest'}"), allowed=(404,)).close()

    def digest_of(self, tag: str) -> str | None:
        """Return the digest of what a tag names now, without reading it; None if the registry does not say."""
        answer = self._ask("HEAD", self._path(f"manifests/{tag}"))
        answer.close()
        told = answer.header("Docker-Content-Digest")
        return told if told is not None and _DIGEST.fullmatch(told) else None

    def manifest(self, tag: str) -> tuple[bytes, str]:
        """Return the OCI manifest that a tag names now, as it is, and its digest."""
        content = self._content(self._path(f"manifests/{tag}"), MAX_ARTIFACT_BYTES, self.name_of(tag))
        return content, f"sha256:{hashlib.sha256(content).hexdigest()}"

    def tags(self, *, prefix: str) -> list[str]:
        found: list[str] = []
        last = ""
        for _ in range(_MOST_PAGES):
            answer = self._ask("GET", self._path(f"tags/list?n={_TAGS_A_PAGE}{last}"))
            try:
                page = tags_in(answer.read_all(MAX_ARTIFACT_BYTES) or b"", where=self.name_of("tags"))
                has_more = answer.header("Link") is not None
            finally:
                answer.close()
            found += [tag for tag in page if tag.startswith(prefix)]
            if not page or not has_more:
                break
            last = f"&last={quote(page[-1])}"
        return found

    def name_of(self, tag: str) -> str:
        return f"{self.reference.host}/{self.reference.repository}:{tag}"

    def blob(self, layer: ArtifactLayer, *, most_bytes: int) -> bytes:
        """Return a small blob, which is what its digest says."""
        what = f"{self.reference}: {layer.media_type} {layer.digest[:19]}"
        content = self._content(self._path(f"blobs/{layer.digest}"), most_bytes, what)
        if hashlib.sha256(content).hexdigest() != layer.sha256:
            hint = "look at the registry's storage, and publish again"
            raise DeployError("registry.damaged", f"{what}: what came is something else", hint=hint)
        return content

    def ask_blob(self, sha256: str, *, offset: int, length: int) -> RegistryResponse:
        """Return the answer whose body is the rest of a blob, from `offset` on if its status is 206, else from 0."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        path = self._path(f"blobs/sha256:{sha256}")
        return self._ask("GET", path, headers=headers, length_bytes=length - offset)

    def _content(self, path: str, most_bytes: int, what: str) -> bytes:
        answer = self._ask("GET", path)
        try:
            content = answer.read_all(most_bytes)
        finally:
            answer.close()
        if content is None:
            problem = f"{what}: it is longer than {most_bytes} bytes"
            raise DeployError("registry.artifact", problem, hint="edge-deploy publish makes no such artifact")
        return content

    def _path(self, rest: str) -> str:
        return f"/v2/{self.reference.repository}/{rest}"

    def _ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        allowed: tuple[int, ...] = (),
        place: str | None = None,
        body: BinaryIO | None = None,
        length_bytes: int = 0,
    ) -> RegistryResponse:
        """Ask at `path`, or at a `place` that came as an answer to `path`, for what is `length_bytes` long."""
        what = f"{self.reference.host}{path}"
        url = f"https://{what}" if place is None else self._moved(f"https://{what}", place, what)
        within_s = self._within_s + length_bytes / _SLOWEST_BYTES_PER_S
        # A blob is of any type: some registries answer 406 to who asks for one as a manifest.
        accept = OCI_MANIFEST if path.rpartition("/")[0].endswith("/manifests") else "*/*"
        asked = {"Accept": accept, "User-Agent": "edge-deploy", **(headers or {})}
        has_logged_in = False
        for _ in range(_MOST_REDIRECTS + 1):
            answer = self._once(method, url, asked, within_s, body)
            if answer.status in (200, 206, *allowed):
                return answer
            location, challenge = answer.header("Location"), answer.header("WWW-Authenticate")
            retry_s = retry_after_s(answer.header("Retry-After"))
            answer.close()
            if answer.status == 401 and not has_logged_in and self._is_ours(url):
                has_logged_in = True
                self._authorization = self._log_in(challenge or "", what)
            elif answer.status in _MOVED and location:
                url = self._moved(url, location, what)
            else:
                raise refused(answer.status, what, retry_s=retry_s)
        raise DeployError("registry.answer", f"{what}: it is moved again and again", hint="look at the registry")

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], within_s: float, body: BinaryIO | None
    ) -> RegistryResponse:
        parts = urlsplit(url)
        # Storage elsewhere, to which a registry sends us, has no business with our login.
        known = {"Authorization": self._authorization} if self._authorization and self._is_ours(url) else {}
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        host = self._host(parts.netloc)
        return host.ask(method, target or "/", {**headers, **known}, within_s=within_s, body=body)

    def _host(self, netloc: str) -> Https:
        return self._hosts.setdefault(netloc, Https(netloc, self._context, silence_s=self._silence_s))

    def _is_ours(self, url: str) -> bool:
        return host_of(urlsplit(url).netloc) == host_of(self.reference.host)

    def _moved(self, url: str, location: str, what: str) -> str:
        try:
            moved = urljoin(url, location)
            parts = urlsplit(moved)
            is_fit = parts.scheme == "https" and parts.hostname and parts.username is None and parts.port != 0
        except ValueError:  # no host, or no port
            is_fit = False
        if not is_fit or not moved.isascii() or not moved.isprintable():
            problem = f"{what}: it is said to be at {location.partition('?')[0][:100]!r}"  # a query may be a login
            raise DeployError("registry.answer", problem, hint="a registry is always reached by HTTPS")
        return moved

    def _log_in(self, header: str, what: str) -> str:
        challenge = read_challenge(header)
        if self._login is None and (challenge is None or not challenge.is_bearer):
            hint = "give one: --login FILE; on a device the credential registry-login: docs/fleet.md"
            raise DeployError("registry.denied", f"{what}: the registry asks for a login, and there is none", hint=hint)
        if challenge is None:
            raise refused(401, what)
        if not challenge.is_bearer:
            assert self._login is not None
            self.is_basic = True
            return self._login.header
        return f"Bearer {self._token(challenge, what)}"

    def _token(self, challenge: Challenge, what: str) -> str:
        url = self._moved(f"https://{self.reference.host}/", challenge.url, what)
        host = self.reference.host
        login = {} if self._login is None else {"Authorization": self._login.header_for(url, host)}
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{parts.query}"
        answer = self._host(parts.netloc).ask("GET", target, login, within_s=self._within_s)
        try:
            if answer.status != 200:
                raise refused(answer.status, f"{what}: token", retry_s=retry_after_s(answer.header("Retry-After")))
            told = token_in(answer.read_all(_MOST_TOKEN_BYTES))
        finally:
            answer.close()
        if told is None:
            raise DeployError("registry.answer", f"{what}: {parts.netloc} gives no token", hint="look at the registry")
        return told


class BlobFile:
    """A blob of `length` bytes, asked for when read, unchecked. For one thread. DeployError `registry.*`."""

    def __init__(self, client: RegistryClient, sha256: str, length: int, *, stop: threading.Event) -> None:
        self._client, self._sha256, self._length, self._stop = client, sha256, length, stop
        self._offset = 0
        self._answer: RegistryResponse | None = None
        self.name = f"{client.reference}@sha256:{sha256[:12]}"

    def seek(self, offset: int) -> int:
        if not 0 <= offset <= self._length:
            raise ValueError(f"expected an offset of 0 to {self._length} from the beginning, got {offset}")
        if offset != self._offset:
            self.close()
            self._offset = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at least one unless the end is reached, at most `size`."""
        left = self._length - self._offset
        most = left if size < 0 else min(size, left)
        for pause_s in (*_PAUSES_S, None):
            try:
                part = self._some(most) if most else b""
            except DeployError as error:
                self.close()
                if pause_s is None or not is_passing(error) or self._stop.wait(pause_s):
                    raise
            else:
                self._offset += len(part)
                return part
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Leave the connection to the next; what is read after that asks again."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _some(self, most: int) -> bytes:
        if self._answer is None:
            self._begin()
            assert self._answer is not None
        part = self._answer.read(most)
        if not part:
            raise DeployError("registry.unreachable", f"{self.name}: it ends after {self._offset} bytes")
        return part

    def _begin(self) -> None:
        # Held before the first byte is read: whatever goes wrong from here on, `close` ends it.
        self._answer = answer = self._client.ask_blob(self._sha256, offset=self._offset, length=self._length)
        left = 0 if answer.status == 206 else self._offset  # some registries know no Range
        while left:
            skipped = len(answer.read(min(left, _SKIP_BYTES)))
            if not skipped:
                raise DeployError("registry.unreachable", f"{self.name}: it ends after {self._offset - left} bytes")
            left -= skipped


def tags_in(content: bytes, *, where: str) -> list[str]:
    """DeployError `registry.answer` if it is no page of tags."""
    try:
        told = json_value(content)["tags"] or []
    except (ValueError, TypeError, KeyError):
        told = None
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise DeployError("registry.answer", f"{where}: no list of tags came", hint="look at the registry")
    return told


def token_in(content: bytes | None) -> str | None:
    try:
        told = json_value(content or b"")
    except ValueError:
        return None
    token = (told.get("token") or told.get("access_token")) if isinstance(told, dict) else None
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else None
