"""`edge-deploy bundle`: a pipeline file, checked, proven and signed, as a folder that can be pushed at any time.

With `--again`, what was bundled before is signed once more for a new sequence: a way back for a ring.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec

from edge.bundle.checks import read_time
from edge.bundle.folder import SUFFIX, Bundle, open_bundle, require_writable, write_bundle
from edge.bundle.manifest import BundledFile, GoldenFrames, GoldenLimits, Manifest, Role, encode_manifest, release_name
from edge.bundle.sbom import ModelCard, make_sbom, make_software_sbom
from edge.bundle.sign import DOWNGRADE, RELEASE, fingerprint, sign
from edge.bundle.software import software_of
from edge.calibrate.table import CalibrationTable
from edge.config.pipeline import Pipeline, load_pipeline
from edge.deploy.packing.bounds import check_bound, check_pairs, check_signable
from edge.deploy.packing.contents import Contents, collect_contents, device_software, tools
from edge.deploy.packing.golden import PackedGolden, find_golden_candidates, make_golden
from edge.deploy.provision.facts import Environment, read_lock
from edge.deploy.provision.keys import find_key
from edge.deploy.provision.wheels import OURS, gather_libraries, own_wheel
from edge.engine.section import max_batch_of, open_model, read_section
from edge.errors import DeployError
from edge.evaluate.golden import encode_golden
from edge.quantize.forms import Forms
from edge.quantize.precision import ComputedPrecision, precision_of
from edge.types import ModelSpec
from edge.version import __version__

__all__ = ["AgainOptions", "BundleOptions", "Bundled", "make_again", "make_bundle"]

_GOLDEN, _SBOM, _SOFTWARE = "golden.json", "sbom.cdx.json", "software.cdx.json"
_MAX_SAID = 200  # of a text in a stranger's model file
_NOT_SIGNED = ("bundle.ahead", "bundle.downgrade")
_TIME = "%Y-%m-%dT%H:%M:%SZ"
Bounds = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOptions:
    """Inputs of a bundle: the pipeline, its device classes, the signing key.

    `out`: the folder of bundles.
    `created_at`: whole seconds are kept. With a given time, the same inputs give the same bytes.
    `key`: SSH key; None: the first of ~/.ssh.
    `golden`: folder of images; None: frames of the clips. Not `has_golden`: only devices that say so take it.
    `golden_limits`: bounds on them, here and on the device.
    `calibration_images`: the folder that the table was made from, to leave those out for sure.
    `sequence`: None: `created_at` in seconds, or one more than a newer bundle in `out` has.
    `downgrade_from`: a permission to go back, for devices whose counter of the channel is this; needs `targets` and
    `expires_days` (None: never).
    `has_software`: the release brings this edge-deploy along, and runs with it; `libraries`: with its libraries for
    this kind of device, which is then the only one.
    """

    pipeline: Path
    out: Path
    created_at: datetime
    key: Path | None = None
    golden: Path | None = None
    has_golden: bool = True
    golden_limits: GoldenLimits = field(default_factory=GoldenLimits)
    calibration_images: Path | None = None
    channel: str = "stable"
    sequence: int | None = None
    compatible: tuple[str, ...] = ("any",)
    targets: tuple[str, ...] = ()
    tensorrt: Bounds = (None, None)
    l4t: Bounds = (None, None)
    expires_days: int | None = None
    downgrade_from: int | None = None
    has_software: bool = False
    libraries: Environment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """The bundle; `signer` is the fingerprint of the key; `golden` None: without golden frames, or not made anew.

    `model_license` None: neither the pipeline nor the model file states one. `beyond`, `not_taken`: see `check_bound`,
    `check_pairs`. `is_again`: it was made before, and is only signed anew.
    """

    bundle: Bundle
    golden: PackedGolden | None
    model_license: str | None
    signer: str
    key: Path
    beyond: tuple[str, ...] = ()
    not_taken: tuple[str, ...] = ()
    is_again: bool = False

    def as_json(self) -> dict[str, Any]:
        manifest = self.bundle.manifest
        return {
            "bundle": str(self.bundle.path),
            "release": manifest.release,
            "pipeline": manifest.pipeline_name,
            "channel": manifest.channel,
            "sequence": manifest.sequence,
            "downgrade_from": manifest.downgrade_from,
            "created_at": manifest.created_at,
            "expires_at": manifest.expires_at,
            "compatible": list(manifest.compatible),
            "targets": list(manifest.targets),
            "software": None if (software := software_of(manifest)) is None else software.version,
            "files": len(manifest.files),
            "bytes": sum(one.length_bytes for one in manifest.files),
            "golden_frames": manifest.golden_frames.value,
            "golden": None if self.golden is None else self.golden.score.as_json(self.golden.golden.labels),
            "model_license": self.model_license,
            "signer": self.signer,
            "beyond_bound": list(self.beyond),
            "pairs_not_taken": list(self.not_taken),
        }


def make_bundle(options: BundleOptions, *, on_step: Callable[[str], None] = lambda name: None) -> Bundled:
    """Write a bundle and return it; `on_step` is called with what begins now.

    Raises EdgeError if an input or the key is of no use, or the release fails its golden gate: nothing is written then.
    """
    pipeline = load_pipeline(options.pipeline, is_for_here=False)
    key = find_key(options.key)
    signer = fingerprint(key)
    require_writable(options.out)
    file, spec = open_model(pipeline)
    computed = precision_of(pipeline, spec, file.graph)
    not_taken = check_pairs(pipeline, file.graph)
    beyond = check_bound(pipeline, options.compatible)
    contents = collect_contents(pipeline, needs_table=computed.table is not None)
    with tempfile.TemporaryDirectory(prefix="edge-bundle-") as folder:
        golden = None
        if options.has_golden:
            on_step("golden frames")
            forms = Forms(spec, computed.table, file=file)
            golden = _golden(options, pipeline, forms, computed, contents, folder=Path(folder))
        if options.has_software:
            on_step("software")
            contents.add(f"wheels/{OURS}", Role.SOFTWARE, own_wheel())
            for name, path in (gather_libraries(options.libraries) if options.libraries else {}).items():
                contents.add(f"wheels/{name}", Role.SOFTWARE, path)
        on_step("files")
        card = _card(spec, computed, contents, said=_said(pipeline, file.graph.metadata))
        _add_sbom(contents, card, name=_name(pipeline), golden=golden)
        try:
            manifest = _manifest(options, pipeline, spec, computed, contents, golden)
            content = encode_manifest(manifest)
            check_signable(manifest, now=datetime.now(timezone.utc))
        except DeployError as error:  # what a device would refuse is not written in the first place
            code = error.code if error.code in _NOT_SIGNED else "bundle.manifest"
            raise DeployError(code, f"{options.pipeline}: {error.problem}", hint=error.hint) from error
        on_step(f"signature by {key}")
        signature = sign(content, key, RELEASE if options.downgrade_from is None else DOWNGRADE)
        files = {path: entry.content for path, entry in contents.entries.items()}
        bundle = write_bundle(options.out, manifest, manifest_bytes=content, signature=signature, files=files)
    return Bundled(
        bundle=bundle,
        golden=golden,
        model_license=card.license,
        signer=signer,
        key=key,
        beyond=beyond,
        not_taken=not_taken,
    )


def _golden(
    options: BundleOptions,
    pipeline: Pipeline,
    forms: Forms,
    computed: ComputedPrecision,
    contents: Contents,
    *,
    folder: Path,
) -> PackedGolden:
    candidates = find_golden_candidates(
        pipeline, forms.spec, computed.table, folder=options.golden, calibration_images=options.calibration_images
    )
    golden = make_golden(pipeline, forms, computed.precision, candidates, folder=folder, limits=options.golden_limits)
    for path, picture in golden.pictures.items():
        contents.add(path, Role.GOLDEN_IMAGE, picture)
    contents.add(_GOLDEN, Role.GOLDEN, encode_golden(golden.golden))
    return golden


def _said(pipeline: Pipeline, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return what is stated of the model's author and license; the pipeline file counts before the model file."""
    author, licensed = (" ".join(metadata.get(key, "").split())[:_MAX_SAID] for key in ("author", "license"))
    made = {"author": author} if author else {}
    for text, by in ((pipeline.config.model.license, "pipeline file"), (licensed, "model file")):
        if text:
            return {**made, "license": text, "license_stated_by": by}
    return made


def _card(spec: ModelSpec, computed: ComputedPrecision, contents: Contents, *, said: Mapping[str, str]) -> ModelCard:
    size, table = spec.preprocess.size, computed.table
    evidence = None if table is None else table.evidence
    dataset = None if table is None else table.dataset
    digests = {entry.role: entry.sha256 for entry in contents.entries.values()}
    return ModelCard(
        name=spec.name,
        sha256=spec.sha256,
        family=spec.family.value,
        inputs=f"images, {size} px, letterboxed, {spec.preprocess.colour_order.value}",
        outputs=f"boxes with scores of {len(spec.labels)} classes",
        precision=computed.precision.value,
        calibration_sha256=digests.get(Role.CALIBRATION),
        dataset_sha256=None if dataset is None else dataset.sha256,
        dataset_images=None if dataset is None else dataset.images,
        method=None if table is None else table.method,
        metrics=()
        if evidence is None
        else ((evidence.metric, "float", evidence.float_), (evidence.metric, "int8", evidence.int8)),
        **said,
    )


def _add_sbom(contents: Contents, card: ModelCard, *, name: str, golden: PackedGolden | None) -> None:
    others = {
        path: entry.sha256
        for path, entry in contents.entries.items()
        if entry.role not in (Role.MODEL, Role.CALIBRATION)
    }
    lock = read_lock()
    software = make_software_sbom(made_at=lock.made_at, devices=device_software(lock))
    ran = tools(None if golden is None else golden.golden.engine)
    sbom = make_sbom(card, name=name, made_at=lock.made_at, files=others, software=software, tools=ran)
    contents.add(_SOFTWARE, Role.SBOM, software.content)
    contents.add(_SBOM, Role.SBOM, sbom)


def _manifest(
    options: BundleOptions,
    pipeline: Pipeline,
    spec: ModelSpec,
    computed: ComputedPrecision,
    contents: Contents,
    golden: PackedGolden | None,
) -> Manifest:
    created_at = options.created_at.astimezone(timezone.utc).replace(microsecond=0)
    expires_at = None if options.expires_days is None else created_at + timedelta(days=options.expires_days)
    size = spec.preprocess.size
    unnamed = Manifest(
        release="0" * 12,
        pipeline_name=_name(pipeline),
        channel=options.channel,
        sequence=options.sequence or options.downgrade_from or 0,
        created_at=created_at.strftime(_TIME),
        expires_at=None if expires_at is None else expires_at.strftime(_TIME),
        compatible=tuple(sorted(options.compatible)),
        targets=tuple(sorted(options.targets)),
        downgrade_from=options.downgrade_from,
        tensorrt=options.tensorrt,
        l4t=options.l4t,
        engine={
            "kind": read_section(pipeline).kind,
            "precision": computed.precision.value,
            "max_batch": max_batch_of(pipeline),
            "input": [size.width, size.height],
            "preprocess_sha256": spec.preprocess.sha256,
        },
        calibration=_evidence(computed.table),
        golden=options.golden_limits if golden is None else golden.limits,
        golden_frames=GoldenFrames.NONE if golden is None else golden.proof,
        secrets=_secrets(pipeline),
        decoders=tuple(sorted({stream.decoder for stream in pipeline.config.streams})),
        max_fps={stream.id: stream.max_fps for stream in pipeline.config.streams if stream.max_fps is not None},
        files=tuple(
            BundledFile(path=path, role=one.role, length_bytes=one.length_bytes, sha256=one.sha256)
            for path, one in sorted(contents.entries.items())
        ),
        made_by=f"edge-deploy {__version__}",
    )
    named = replace(unnamed, release=release_name(unnamed))
    if options.sequence is not None or options.downgrade_from is not None:
        return named
    return replace(named, sequence=_next_sequence(options.out, named, int(created_at.timestamp())))


def _secrets(pipeline: Pipeline) -> tuple[str, ...]:
    config = pipeline.config
    names = {stream.credential for stream in config.streams} | {config.mqtt.credential if config.mqtt else None}
    return tuple(sorted(name for name in names if name is not None))


def _evidence(table: CalibrationTable | None) -> dict[str, object]:
    if table is None:
        return {}
    made: dict[str, object] = {"method": table.method, "kept_in_float": len(table.keep_float)}
    for name, value in (("dataset", table.dataset), ("evidence", table.evidence)):
        if value is not None:
            made[name] = msgspec.to_builtins(value)
    return made


def _next_sequence(out: Path, manifest: Manifest, now_s: int) -> int:
    """Return the time in seconds, which needs no memory; more, where a clock that was ahead has made a bundle here."""
    seen = [now_s]
    for path in sorted(out.glob(f"*{SUFFIX}")) if out.is_dir() else ():
        try:
            other = open_bundle(path).manifest
        except DeployError:  # somebody else's, or half copied: it says nothing about the sequence
            continue
        if other.channel == manifest.channel and other.release != manifest.release:
            seen.append(other.sequence + 1)
    return max(seen)


def _name(pipeline: Pipeline) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", pipeline.path.stem)[:64].lstrip(".-") or "pipeline"


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
        sequence = max(before.sequence + 1, _next_sequence(options.out, before, int(created_at.timestamp())))
    return replace(
        before,
        sequence=sequence,
        created_at=created_at.strftime(_TIME),
        expires_at=None if valid is None else (created_at + valid).strftime(_TIME),
    )
