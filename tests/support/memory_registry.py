"""A registry in memory: what a device's client and a workstation's writer ask of it, counted by the second."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from edge.registry.artifact import FILE, MANIFEST, SIGNATURE, ArtifactLayer, encode_artifact
from edge.registry.https import refused
from edge.registry.reference import Reference


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
