"""A bundle into a registry: blobs first, what the registry has is not sent again, the tag at the very end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edge.bundle.folder import MANIFEST as MANIFEST_FILE
from edge.bundle.folder import SIGNATURE as SIGNATURE_FILE
from edge.bundle.folder import Bundle
from edge.bundle.manifest import Manifest
from edge.deploy.publish.kept_login import kept_login
from edge.deploy.publish.writer import RegistryWriter
from edge.registry.artifact import EMPTY, EMPTY_CONTENT, FILE, MANIFEST, SIGNATURE, ArtifactLayer, encode_artifact
from edge.registry.login import Login
from edge.registry.reference import Reference

__all__ = ["Published", "publish"]

OnStep = Callable[[str, int, int], None]


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
