"""`edge-deploy bundle --again`: what was bundled before, signed once more for a new sequence: a way back for a ring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.checks import read_time
from edge.bundle.folder import open_bundle, write_bundle
from edge.bundle.manifest import Manifest, encode_manifest
from edge.bundle.sign import fingerprint, sign
from edge.deploy.packing.bounds import check_signable
from edge.deploy.packing.bundle import Bundled, next_sequence
from edge.deploy.provision.keys import find_key
from edge.errors import DeployError

__all__ = ["AgainOptions", "make_again"]

_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainOptions:
    """A bundle to sign again; `expires_days` None: valid for as long as before, from `created_at` on."""

    bundle: Path
    out: Path
    created_at: datetime
    key: Path | None = None
    sequence: int | None = None
    expires_days: int | None = None


def make_again(options: AgainOptions) -> Bundled:
    """Write the bundle: the same content, so the same release, with a sequence above that it had.

    Raises `DeployError` `bundle.*` if it is damaged, a downgrade, or cannot be signed so; nothing is written then.
    """
    before = open_bundle(options.bundle)
    files = {file.path: before.path_of(file) for file in before.manifest.files}
    key = find_key(options.key)
    manifest = _anew(before.manifest, options)
    if before.manifest.downgrade_from is not None:
        raise DeployError(
            "bundle.downgrade",
            f"{options.bundle}: is a permission to go back, which counts once",
            hint="sign another one of its pipeline: edge-deploy bundle --downgrade",
        )
    if manifest.sequence <= before.manifest.sequence:
        raise DeployError(
            "bundle.sequence",
            f"{options.bundle}: has sequence {before.manifest.sequence}, which {manifest.sequence} is not above",
            hint="leave --sequence out",
        )
    check_signable(manifest, now=datetime.now(timezone.utc))
    content = encode_manifest(manifest)
    made = write_bundle(options.out, manifest, manifest_bytes=content, signature=sign(content, key), files=files)
    return Bundled(bundle=made, golden=None, model_license=None, signer=fingerprint(key), key=key, is_again=True)


def _anew(before: Manifest, options: AgainOptions) -> Manifest:
    created_at = options.created_at.astimezone(timezone.utc).replace(microsecond=0)
    valid = None if options.expires_days is None else timedelta(days=options.expires_days)
    if valid is None and before.expires_at is not None:
        valid = read_time("expires_at", before.expires_at) - read_time("created_at", before.created_at)
    sequence = options.sequence
    if sequence is None:
        sequence = max(before.sequence + 1, next_sequence(options.out, before, int(created_at.timestamp())))
    return replace(
        before,
        sequence=sequence,
        created_at=created_at.strftime(_TIME),
        expires_at=None if valid is None else (created_at + valid).strftime(_TIME),
    )
