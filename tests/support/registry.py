"""Registries: a real one (Debian's docker-registry) over TLS with one user; one that answers as told; one in memory."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge.bundle.folder import Bundle
from edge.registry.artifact import FILE, MANIFEST, OCI_MANIFEST, SIGNATURE, ArtifactLayer, encode_artifact
from edge.registry.https import refused
from edge.registry.login import Login
from edge.registry.reference import Reference
from tests.support.manifests import make_certificates
from tests.support.ports import free_port
from tests.support.wait import wait_until

LOGIN = Login("edge", "secret-of-the-lab")
_HASH = "$2y$05$9GWRuRDFgGQQorkzWV1RKOu3CbLYKURixb2vXaImcON88BT2gYu0."  # of its password


class Reachable:
    """A registry on a port of this machine, with a log."""

    port: int
    _log_path: Path

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    @property
    def log(self) -> str:
        return self._log_path.read_text()

    def reference(self, tag: str | None = None, repository: str = "farms/gates") -> Reference:
        return Reference(self.host, repository, tag)


class Registry(Reachable):
    """Started by `with`; `log` is what it wrote, `folder` where its blobs lie; `also`: other names of this machine."""

    login = LOGIN

    def __init__(self, directory: Path, *, host: str = "127.0.0.1", also: tuple[str, ...] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.certificates = make_certificates(directory / "tls", also=also)
        self.port = free_port()
        self.folder, self._log_path = directory / "blobs", directory / "registry.log"
        self._process: subprocess.Popen | None = None
        (directory / "htpasswd").write_text(f"{LOGIN.user}:{_HASH}\n")
        self._config = directory / "config.yml"
        tls = {"certificate": str(self.certificates.certificate), "key": str(self.certificates.key)}
        self._config.write_text(
            json.dumps(  # YAML, too
                {
                    "version": "0.1",
                    "log": {"level": "info"},
                    "storage": {"filesystem": {"rootdirectory": str(self.folder)}, "delete": {"enabled": True}},
                    "http": {"addr": f"{host}:{self.port}", "tls": tls},
                    "auth": {"htpasswd": {"realm": "lab", "path": str(directory / "htpasswd")}},
                }
            )
        )

    def __enter__(self) -> Registry:
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(["docker-registry", "serve", self._config], stdout=log, stderr=log)
        wait_until(lambda: "listening on" in self.log, what=f"registry on {self.port}")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


REPOSITORY = "farms/gates"


Meddler = Callable[["Handler"], bool]
"""Answers a request in its own way and returns True, or returns False."""


def saying(status: int, content: bytes = b"", **headers: str) -> Meddler:
    """Return what answers everything by this; `_` in the name of a header stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request: request.say(status, content, named)


def on(part: str, answer: Callable[[Handler], object], *commands: str) -> Meddler:
    """Return what answers by `answer` that has `part` in its path; only these commands, if any are named."""

    def meddle(request: Handler) -> bool:
        if part not in request.path or (commands and request.command not in commands):
            return False
        answer(request)
        return True

    return meddle


class Handler(http.server.BaseHTTPRequestHandler):
    """One request; `registry.meddle` may answer it in its own way by returning True."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        registry = self.server.registry
        if registry.refuse is not None and registry.refuse(self):  # as servers of Go: half a second, then closed
            self.close_connection = True
            time.sleep(0.5)
            return
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        registry.asked.append((self.command, self.path, dict(self.headers)))
        with suppress(OSError):
            if registry.meddle is not None and registry.meddle(self):
                return
            self.usual()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - the names are those of http.server

    def usual(self) -> None:
        """Answer as a registry does; without Range."""
        registry, name = self.server.registry, self.path.rpartition("/")[2]
        if self.command == "POST":
            self.say(202, headers={"Location": f"/v2/{REPOSITORY}/blobs/uploads/1"})
        elif self.command == "PUT":
            self._take(name)
        elif "/manifests/" in self.path and name in registry.tags:
            content = registry.tags[name]
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            self.say(200, content, {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": digest})
        elif name.removeprefix("sha256:") in registry.blobs:
            self.say(200, registry.blobs[name.removeprefix("sha256:")])
        else:
            self.say(404)

    def _take(self, name: str) -> None:
        registry, sha256 = self.server.registry, hashlib.sha256(self.content).hexdigest()
        if "/manifests/" in self.path:
            registry.tags[name] = self.content
        elif name.endswith(f"sha256%3A{sha256}"):
            registry.blobs[sha256] = self.content
        else:
            self.say(400)
            return
        self.say(201, headers={"Docker-Content-Digest": f"sha256:{sha256}"})

    def say(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> bool:
        """Answer; return True, as who meddles does."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        return True

    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    registry: OddRegistry

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self._context = context

    def finish_request(self, request, client_address) -> None:  # in the thread of the request: a handshake may hang
        with suppress(OSError), self._context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def handle_error(self, request, client_address) -> None:
        pass


class OddRegistry:
    """Serves `tags` and `blobs`; `asked` is what came. Started by `with`."""

    def __init__(self, directory: Path) -> None:
        certificates = make_certificates(directory / "tls", also=("127.0.0.1",))
        self.ca = certificates.ca
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.key)
        self._server = _Server(context)
        self._server.registry = self
        self.tags: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.meddle: Meddler | None = None
        self.refuse: Meddler | None = None  # answers before the body has come

    @property
    def host(self) -> str:
        return f"localhost:{self._server.server_port}"

    def reference(self, tag: str = "stable-all") -> Reference:
        return Reference(self.host, REPOSITORY, tag)

    def take(self, bundle: Bundle) -> None:
        parts = {MANIFEST: bundle.manifest_bytes, SIGNATURE: bundle.signature}
        manifest, signed = (ArtifactLayer(kind, self._put(content), len(content)) for kind, content in parts.items())
        files = []
        for one in bundle.manifest.files:
            self._put(bundle.path_of(one).read_bytes())
            files.append(ArtifactLayer(FILE, one.sha256, one.length_bytes, one.path))
        self.tags["stable-all"] = json.dumps(encode_artifact(manifest, signed, files, annotations={})).encode()

    def _put(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        return sha256

    def __enter__(self) -> OddRegistry:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class MemoryRegistry:
    """Blobs by digest and manifests by tag; `asked` counts devices' requests by the second of `now_s`."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.asked: Counter[int] = Counter()

    def client(self, tag: str | None = None) -> MemoryClient:
        return MemoryClient(self, Reference("registry.example", "farms/gates", tag))

    def ask(self) -> None:
        self.asked[int(self._now_s())] += 1

    def put_bundle(self, manifest: bytes, signature: bytes, files: Mapping[str, bytes]) -> str:
        """Take a release; return the digest of its artifact."""
        layers = []
        for media_type, content in (
            (MANIFEST, manifest),
            (SIGNATURE, signature),
            *((FILE, content) for content in files.values()),
        ):
            layer = ArtifactLayer(media_type, hashlib.sha256(content).hexdigest(), len(content))
            self.blobs[layer.sha256] = content
            layers.append(layer)
        return self.client().put_manifest(encode_artifact(*layers[:2], layers[2:], annotations={}), "latest")


class MemoryClient:
    """What `RegistryClient` and `RegistryWriter` do, for the one reference."""

    is_basic = True

    def __init__(self, registry: MemoryRegistry, reference: Reference) -> None:
        self._registry, self.reference = registry, reference

    def name_of(self, tag: str) -> str:
        return f"{self.reference.host}/{self.reference.repository}:{tag}"

    def tags(self, *, prefix: str) -> list[str]:
        return sorted(tag for tag in self._registry.tags if tag.startswith(prefix))

    def digest_of(self, tag: str) -> str:
        self._registry.ask()
        if tag not in self._registry.tags:
            raise refused(404, self.name_of(tag))
        return self._registry.tags[tag]

    def manifest(self, tag: str) -> tuple[bytes, str]:
        digest = tag if tag.startswith("sha256:") else self.digest_of(tag)
        return self._registry.manifests[digest], digest

    def blob(self, layer: ArtifactLayer, *, most_bytes: int) -> bytes:
        self._registry.ask()
        return self._registry.blobs[layer.sha256]

    def ask_blob(self, sha256: str, *, offset: int, length: int) -> MemoryAnswer:
        self._registry.ask()
        content = self._registry.blobs[sha256]
        return MemoryAnswer(content[offset:], 206 if offset else 200)

    def has(self, layer: ArtifactLayer) -> bool:
        return layer.sha256 in self._registry.blobs

    def put(self, layer: ArtifactLayer, content: bytes) -> None:
        self._registry.blobs[layer.sha256] = content

    def put_manifest(self, manifest: Mapping[str, Any], tag: str) -> str:
        return self.tag(json.dumps(manifest).encode(), tag)

    def tag(self, manifest: bytes, tag: str) -> str:
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        self._registry.manifests[digest] = manifest
        self._registry.tags[tag] = digest
        return digest


class MemoryAnswer(io.BytesIO):
    def __init__(self, content: bytes, status: int) -> None:
        super().__init__(content)
        self.status = status
