"""Opens a release on a device for serving: each part is verified a moment before."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from edge.bundle.manifest import Manifest, Role
from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.device.device import Device
from edge.device.engines import EngineRecord
from edge.device.facts import read_settings
from edge.device.layout import Layout
from edge.device.releases import locate_release
from edge.errors import ConfigError, DeployError
from edge.quantize.precision import CALIBRATION_DIGITS
from edge.runtime.software.binding import require_software
from edge.runtime.trial.soundness import require_engine, require_files
from edge.runtime.trial.trust import require_known
from edge.types import Precision

__all__ = ["Deployed", "device_of_release", "open_release"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A verified release.

    Attributes:
        model_name: what the messages call the model: the name of the pipeline that was bundled.
        device: the name of this device in its device.toml, for pipelines that state none; None: it has none.
        record, plan: of the engine.
    """

    release: str
    model_name: str
    layout: Layout
    device: str | None
    record: EngineRecord
    plan: bytes

    @property
    def precision(self) -> Precision:
        """The precision that runs, which a fallback may have decided."""
        return Precision(self.record.precision)

    @property
    def calibration(self) -> str | None:
        """First digits of the SHA-256 of the calibration table's file, where it has a part in what runs."""
        sha256 = self.record.inputs.calibration_sha256
        return sha256[:CALIBRATION_DIGITS] if sha256 is not None and self.precision is Precision.INT8 else None


def device_of_release(folder: Path) -> tuple[Device, str]:
    """`folder` may be `current`. Raises `ConfigError` if no release of a device is there."""
    # `current` is read once: if the switch moves while this runs, all files are still of one release.
    found = locate_release(folder)
    if found is None or not found[0].release(found[1]).is_dir():
        raise ConfigError(
            f"--release {folder}: expected a release of this device, /var/lib/edge-deploy/current or releases/NAME",
            hint="push one: edge-deploy push",
        )
    return Device(found[0]), found[1]


def open_release(folder: Path) -> tuple[Pipeline, Deployed]:
    """Return the pipeline of a release, and what is run of it. Raises `ConfigError` if there is no release, it was
    changed, no trusted key has signed it, or its engine is damaged or was built by other software.
    """
    device, release = device_of_release(folder)
    try:
        require_software(device, release)
        manifest = _verified(device, release)
        record, plan = require_engine(device, release)
    except DeployError as error:
        raise ConfigError(f"{error.problem} ({error.code})", hint=error.hint) from error
    pipeline = load_pipeline(device.layout.release(release) / manifest.files_of(Role.PIPELINE)[0].path)
    return pipeline, Deployed(
        release=release,
        model_name=manifest.pipeline_name,
        layout=device.layout,
        device=_name_of(device),
        record=record,
        plan=plan,
    )


def _verified(device: Device, release: str) -> Manifest:
    try:
        signed = require_known(device, release)
    except DeployError as problem:
        if problem.code.startswith("verify."):
            raise
        # No ssh-keygen, no list of signers: what was verified when it came goes on (docs/adr/0016).
        _log.error("release is served though its signature cannot be verified release=%s reason=%s", release, problem)
        return require_files(device, release, has_clips=True)
    if signed.withdrawn is not None:
        _log.warning("release is served though its signer is not trusted any more release=%s", release)
    return require_files(device, release, signed.manifest, has_clips=True)


def _name_of(device: Device) -> str | None:
    try:
        return read_settings(device.layout.device_toml).name
    except DeployError:  # then by the host's name, as for every pipeline
        return None
