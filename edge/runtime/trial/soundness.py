"""Whether a release on this device can serve: its files and its engine are what they were. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from edge.bundle.manifest import Manifest, Role, decode_manifest
from edge.device.device import Device
from edge.device.engines import EngineRecord, read_plan, read_record
from edge.device.releases import MANIFEST
from edge.engine.kinds import AUTO, better_kind, kinds
from edge.errors import DeployError
from edge.runtime.software.binding import damaged, is_this, problem_of_software, require_intact, said_of

__all__ = [
    "engine_versions",
    "is_sound",
    "problem_of_release",
    "put_aside",
    "require_engine",
    "require_files",
    "told_of_better",
    "why_better",
]

# What is computed with. There may be gigabytes of clips: only their decoder looks at them first.
_CHECKED = (Role.PIPELINE, Role.MODEL, Role.CALIBRATION, Role.CERTIFICATE)


def require_files(
    device: Device, release: str, manifest: Manifest | None = None, *, has_clips: bool = False
) -> Manifest:
    """Return the manifest of a release whose files are all there, and are what it says.

    Args:
        manifest: of which the signature was verified; None: the one that is there.
        has_clips: the clips are used, too.

    Raises `DeployError` `device.release.missing`, `device.release.damaged` with the blob's digest in its evidence;
    `verify.manifest.*`.
    """
    if not device.releases.is_complete(release):
        raise DeployError(
            "device.release.missing", f"release {release}: it or one of its files is not here", hint="push it again"
        )
    manifest = manifest or decode_manifest(device.releases.manifest(release))
    if manifest.release != release:
        raise DeployError(
            "device.release.damaged",
            f"release {release}: the manifest in its folder is of release {manifest.release}",
            hint="push it again",
            evidence={"path": MANIFEST},
        )
    checked = (*_CHECKED, Role.CLIP) if has_clips else _CHECKED
    blobs = device.releases.blobs(release)
    for one in manifest.files:
        if blobs.get(one.path) != one.sha256:
            raise damaged(release, one.path, one.sha256, "leads to another blob than the manifest says")
    require_intact(device, release, (one for one in manifest.files if one.role in checked))
    return manifest


def require_engine(device: Device, release: str) -> tuple[EngineRecord, bytes]:
    """Return the record and the plan of the release's engine, which fits this device as it is now.
    Raises `DeployError` `device.engine.missing`, `device.engine.damaged`, `device.engine.changed`.
    """
    key = device.releases.engine_key(release)
    if key is None:
        raise DeployError("device.engine.missing", f"release {release}: no engine was built", hint="push it again")
    # What the engine of other software depends on is known to that one, which looks when it starts (docs/adr/0018).
    return read_plan(device.engines, key, versions_of=engine_versions if is_this(device, release) else None)


def engine_versions(kind: str) -> Mapping[str, str]:
    """Return what an engine of this kind depends on, as of now; nothing is imported for that.

    Of a kind that this version does not have, nothing fits: its engine is built anew, of another kind if it may be.
    """
    facts = kinds().get(kind)
    return {kind: "not known to this edge-deploy"} if facts is None else facts.versions()


def why_better(device: Device, release: str) -> str | None:
    """Return what is to be said of a release whose engine is not of the kind that `auto` prefers here by now.

    Such an engine serves as well as on the day when it was built. Another kind needs a build, which a push does. None
    also where that cannot be known: other checks report damage.
    """
    key = device.releases.engine_key(release)
    try:
        asked = str(decode_manifest(device.releases.manifest(release)).engine.get("kind", AUTO))
        if key is None or asked != AUTO or not is_this(device, release):
            return None
        built = read_record(device.engines, key).inputs.kind
    except DeployError:
        return None
    better = better_kind(built)
    return None if better is None else told_of_better(better.name, built)


def told_of_better(better: str, built: str) -> str:
    return f"{better} runs here by now and {AUTO} prefers it to {built}: push the release again to build for it"


def problem_of_release(device: Device, release: str) -> DeployError | None:
    """Return why the release cannot serve; None if it can."""
    try:
        require_files(device, release)
        missing = problem_of_software(device, release)
        require_engine(device, release)
    except DeployError as error:
        return error
    return missing  # the least of all: it is installed again before anything is built


def is_sound(device: Device, release: str) -> bool:
    """Return whether a release can serve; what a build mends first, which begins with its software, counts as well."""
    problem = problem_of_release(device, release)
    if problem is not None and problem.code == "device.software.missing":
        return said_of(device, release) is None  # else it is known not to be had here
    return problem is None or problem.code == "device.engine.changed"


def put_aside(device: Device, release: str, problem: DeployError) -> None:
    """The next push or build makes it anew; nothing that is intact is touched."""
    if problem.code == "device.release.damaged" and "sha256" in problem.evidence:
        device.store.quarantine(str(problem.evidence["sha256"]))
    key = device.releases.engine_key(release)
    if problem.code == "device.engine.damaged" and key is not None and device.engines.has(key):
        device.engines.quarantine(key)
