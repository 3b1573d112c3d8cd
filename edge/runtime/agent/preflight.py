"""Whether a device has what a release will take: asked before the first byte, because a full disk comes too late."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from edge.bundle.manifest import Manifest, Role
from edge.bundle.software import software_of
from edge.device.device import Device
from edge.device.facts import DeviceSettings, read_settings
from edge.device.layout import Layout
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, SOFTWARE_UNIT, TRIAL_UNIT
from edge.engine.kinds import AUTO, Choice, choose_kind
from edge.errors import ConfigError, DeployError
from edge.media.gstreamer import binding as gstreamer
from edge.reading import text_of
from edge.reports import Facts
from edge.runtime.software.binding import installation_of

__all__ = ["Need", "lacks", "need_of"]

_MIB = 1024 * 1024
# A plan is about as large as the float weights at most; while it is built its parts lie beside it. The timing cache
# and the Q/DQ model are the rest.
_ENGINE_FACTOR = 3
_ENGINE_REST_BYTES = 64 * _MIB
_SOFTWARE_FACTOR = 4  # wheels unpacked, with their bytecode
_INODES_PER_WHEEL = 2000
_INODES_PER_FILE = 2  # a blob and a link to it
_INODES_REST = 200
_CREDENTIAL = re.compile(r"\s*(?:Load|Set)Credential(?:Encrypted)?=([^:\s]+)")
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Space that a release still takes, in bytes; `inodes` are files and links.

    `build_memory_bytes` is what the builder takes for a time, `spare_memory_bytes` what has to be left beside it.
    """

    blob_bytes: int
    engine_bytes: int
    inodes: int
    build_memory_bytes: int
    spare_memory_bytes: int


def need_of(manifest: Manifest, device: Device) -> Need:
    lengths = {one.sha256: one.length_bytes for one in manifest.files}
    missing = device.store.missing(lengths)
    # The disk has already given a partial blob its whole length.
    blobs = sum(lengths[sha256] for sha256, offset in missing.items() if offset == 0)
    model = sum(one.length_bytes for one in manifest.files_of(Role.MODEL))
    is_built = device.releases.is_ready(manifest.release)
    brought = software_of(manifest)
    installation = installation_of(brought)
    is_new = installation is not None and device.software.origin(installation.name) is None
    return Need(
        blob_bytes=blobs + (_SOFTWARE_FACTOR * brought.length_bytes if brought is not None and is_new else 0),
        engine_bytes=0 if is_built else _ENGINE_FACTOR * model + _ENGINE_REST_BYTES,
        inodes=_INODES_PER_FILE * len(manifest.files)
        + _INODES_REST
        + (_INODES_PER_WHEEL * len(brought.wheels) if brought is not None and is_new else 0),
        build_memory_bytes=0 if is_built else _build_memory_bytes(manifest, model),
        spare_memory_bytes=manifest.health.min_available_bytes,
    )


def _build_memory_bytes(manifest: Manifest, model_bytes: int) -> int:
    size = manifest.engine.get("input")
    shape = [manifest.engine.get("max_batch"), *(size if isinstance(size, (list, tuple)) else ())]
    sides = [one for one in shape if isinstance(one, int)]
    # Of a manifest that says less, the model alone is counted: that is no reason to refuse it.
    pixels = math.prod(sides) if len(sides) == len(shape) == 3 else 0
    try:
        facts = _engine_of(manifest).facts
    except ConfigError:  # which `_engine` tells
        return 0
    return facts.build_memory_bytes(model_bytes, pixels)


def _engine_of(manifest: Manifest) -> Choice:
    return choose_kind(str(manifest.engine.get("kind", AUTO)))


def lacks(manifest: Manifest, need: Need, facts: Facts, layout: Layout) -> Iterator[DeployError]:
    """Yield what is missing here that a release takes, each `preflight.*` of its own."""
    settings = read_settings(layout.device_toml)
    yield from _engine(manifest)
    yield from _software(manifest, facts, layout)
    yield from _secrets(manifest, layout)
    yield from _media(manifest)
    yield from _one_file_system(facts, layout)
    yield from _space(need, facts, settings, layout)
    yield from _inodes(need, facts, layout)
    yield from _memory(need, facts, settings)
    yield from _units(layout)


def _engine(manifest: Manifest) -> Iterator[DeployError]:
    """Yield the error if what is to run the model is not to be had here, with what is missing.

    What a release's own software can run, its build shows.
    """
    if software_of(manifest) is not None:
        return
    try:
        facts = _engine_of(manifest).facts
        why_not = facts.why_not()
        problem, hint = f"the release asks for engine.kind {facts.name}: {why_not}", None
    except ConfigError as error:
        why_not, problem, hint = error.problem, f"the release cannot run here: {error.problem}", error.hint
    if why_not is not None:
        yield DeployError("preflight.engine", problem, hint=hint or "install it on the device, or use engine.kind auto")


def _software(manifest: Manifest, facts: Facts, layout: Layout) -> Iterator[DeployError]:
    """Yield the error if the software that a release brings is for another kind of device."""
    brought = software_of(manifest)
    if brought is None:
        return
    major, minor = (int(part) for part in facts.python.split(".")[:2])
    misfit = brought.misfit(python=(major, minor), architecture=facts.architecture)
    if misfit is not None:
        yield DeployError(
            "preflight.software",
            f"{misfit} is not for Python {major}.{minor} on {facts.architecture}",
            hint="bundle it for this kind of device: --libraries, or --compatible for the others",
        )
    if not _has_unit(layout, SOFTWARE_UNIT):
        yield DeployError(
            "preflight.software",
            f"the release brings software, and {SOFTWARE_UNIT} is not installed",
            hint="run once more: edge-deploy provision",
        )


def _secrets(manifest: Manifest, layout: Layout) -> Iterator[DeployError]:
    """Yield the error if the service would not be given what the release needs of the device."""
    absent = sorted(set(manifest.secrets) - _given_secrets(layout))
    if absent:
        files = " and ".join(f"/etc/edge-deploy/credentials/{name}" for name in absent)
        yield DeployError(
            "preflight.secret",
            f"the device keeps no secret {', '.join(absent)}, which the release names",
            hint=f"on the device write user:password to {files}, then run edge-deploy provision again",
            evidence={"absent": absent},
        )


def _given_secrets(layout: Layout) -> set[str]:
    """Return the names of what systemd hands the service, by the unit and what adds to it."""
    found: set[str] = set()
    for folder in _UNIT_FOLDERS:
        unit = layout.root / folder / RUNTIME_UNIT
        for path in (unit, *sorted(unit.with_name(f"{RUNTIME_UNIT}.d").glob("*.conf"))):
            found |= {match[1] for match in map(_CREDENTIAL.match, text_of(path).splitlines()) if match}
    return found


def _media(manifest: Manifest) -> Iterator[DeployError]:
    """Yield the error if nothing is installed here that decodes the streams of the release."""
    brought = software_of(manifest)
    has_pyav = importlib.util.find_spec("av") is not None or any(
        one.path.startswith("wheels/av-") for one in (brought.wheels if brought is not None else ())
    )
    has = {"pyav": has_pyav, "software": gstreamer.is_installed(), "nvmm": gstreamer.is_installed()}
    has["auto"] = any(has.values())
    absent = [one for one in manifest.decoders if not has.get(one, True)]
    if absent:
        names = "PyAV" if absent == ["pyav"] else "GStreamer's bindings for Python"
        yield DeployError(
            "preflight.media",
            f"the release decodes by {', '.join(absent)}, and {names} are not installed on the device",
            hint="bundle it with decoder: auto" if names == "PyAV" else f"on the device: sudo {gstreamer.APT}",
            evidence={"decoders": absent},
        )


def _space(need: Need, facts: Facts, settings: DeviceSettings, layout: Layout) -> Iterator[DeployError]:
    wanted = need.blob_bytes + need.engine_bytes
    reserve = max(settings.reserve_bytes, int(settings.reserve_share * facts.disk_bytes))
    if wanted + reserve > facts.disk_free_bytes:
        yield DeployError(
            "preflight.space",
            f"{layout.var} has {_mib(facts.disk_free_bytes)} free; {_mib(wanted + reserve)} are needed: "
            f"{_mib(need.blob_bytes)} for files, about {_mib(need.engine_bytes)} for the engine, and "
            f"{_mib(reserve)} in reserve",
            hint=f"free space in the file system of {layout.var} on the device, or lower reserve_bytes and "
            "reserve_share in its device.toml",
            evidence={
                "blob_bytes": need.blob_bytes,
                "engine_bytes": need.engine_bytes,
                "free_bytes": facts.disk_free_bytes,
                "reserve_bytes": reserve,
            },
        )


def _inodes(need: Need, facts: Facts, layout: Layout) -> Iterator[DeployError]:
    if need.inodes > facts.inodes_free:
        yield DeployError(
            "preflight.inodes",
            f"the release takes up to {need.inodes} files; {facts.inodes_free} are left in {layout.var}",
            hint=f"remove small files from the file system of {layout.var} on the device",
            evidence={"needed": need.inodes, "free": facts.inodes_free},
        )


def _memory(need: Need, facts: Facts, settings: DeviceSettings) -> Iterator[DeployError]:
    spare = max(need.spare_memory_bytes, settings.reserve_memory_bytes)
    if facts.memory_available_bytes < need.build_memory_bytes + spare:
        yield DeployError(
            "preflight.memory",
            f"{_mib(facts.memory_available_bytes)} of memory are available; the build takes about "
            f"{_mib(need.build_memory_bytes)}, and {_mib(spare)} have to stay free",
            hint="stop what else runs on the device, use a smaller batch.max_frames, or lower reserve_memory_bytes",
            evidence={
                "available_bytes": facts.memory_available_bytes,
                "build_bytes": need.build_memory_bytes,
                "reserve_bytes": spare,
            },
        )


def _one_file_system(facts: Facts, layout: Layout) -> Iterator[DeployError]:
    if not facts.is_one_file_system:
        yield DeployError(
            "preflight.filesystem",
            f"{layout.var} spans more than one file system, so a switch would not be one step",
            hint="mount one file system at it, not at its folders",
        )


def _units(layout: Layout) -> Iterator[DeployError]:
    absent = [unit for unit in (RUNTIME_UNIT, BUILD_UNIT, TRIAL_UNIT) if not _has_unit(layout, unit)]
    if absent:
        yield DeployError(
            "preflight.units",
            f"units are not installed: {', '.join(absent)}",
            hint="run: edge-deploy provision",
            evidence={"absent": absent},
        )


def _has_unit(layout: Layout, unit: str) -> bool:
    return any((layout.root / folder / unit).exists() for folder in _UNIT_FOLDERS)


def _mib(count: int) -> str:
    return f"{count / _MIB:.0f} MiB"
