"""A device that is a folder, and bundles signed by a key that it knows, also as permissions to go back."""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edge.bundle.folder import Bundle, open_bundle, write_bundle
from edge.bundle.manifest import HealthLimits, Role, encode_manifest
from edge.bundle.sign import DOWNGRADE, sign
from edge.config.targets import Target
from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.outcome import Event, Outcome
from edge.deploy.fleet.over_ssh import roll_back
from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, SOFTWARE_UNIT, TRIAL_UNIT
from edge.transport.channel import Channel, ChildChannel
from tests.support.manifests import bundled, manifest, ssh_key

AGENT = Path(__file__).with_name("agent_process.py")


class DeviceRoot:
    """`root` is the device's file system; `key` is whom it trusts."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "root"
        self.layout = Layout(self.root)
        self.key = ssh_key(directory, "signer")
        self._make()
        self.events: list[Event] = []

    def _make(self) -> None:
        layout = self.layout
        for folder in (
            layout.etc,
            layout.workshop,
            layout.store,
            layout.incoming,
            layout.releases,
            layout.engines,
            layout.software,
            layout.run,
        ):
            folder.mkdir(parents=True)
        layout.device_toml.write_text(
            'name = "gate-01"\ncompatible = ["lab"]\nreserve_bytes = 0\nreserve_share = 0.0\n'
            "reserve_memory_bytes = 0\nallow_unproven = true\n"
        )
        public = self.key.with_suffix(".pub").read_text()
        layout.allowed_signers.write_text(
            f'ops namespaces="edge-release,edge-release-downgrade" {" ".join(public.split()[:2])}\n'
        )
        units = self.root / "etc/systemd/system"
        units.mkdir(parents=True)
        for unit in (RUNTIME_UNIT, BUILD_UNIT, TRIAL_UNIT, SOFTWARE_UNIT):
            (units / unit).touch()
        (self.root / "proc").mkdir()
        (self.root / "proc/meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n")

    @property
    def device(self) -> Device:
        return Device(self.layout)

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(AGENT), str(self.root)]

    def stop(self) -> None:
        for path in (self.root / "pids").glob("*"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)

    def agent_pid(self) -> int:
        return int((self.root / "agent.pid").read_text())

    def script(self, **values: object) -> None:
        """Say how builder and trial behave from now on, see `tests.support.process_units`."""
        (self.root / "lab.json").write_text(json.dumps(values))

    def bundle(self, name: str = "one", *, sequence: int = 1, model: bytes = b"", **changes: object) -> Bundle:
        """Return a signed bundle whose content depends on `name` and `model`; it can be pushed, but not run."""
        files = {
            "model.onnx": (Role.MODEL, model or b"model of " + name.encode()),
            "pipeline.yaml": (Role.PIPELINE, b"name: " + name.encode()),
        }
        return self.bundle_of(files, name, sequence=sequence, **changes)

    def bundle_of(
        self, parts: Mapping[str, tuple[Role, bytes]], name: str, *, sequence: int, **changes: object
    ) -> Bundle:
        contents = {path: content for path, (_, content) in parts.items()}
        usual = {"compatible": ("lab",), "health": HealthLimits(hold_s=1.0, min_available_bytes=0)}
        files = tuple(bundled(path, role, content) for path, (role, content) in sorted(parts.items()))
        made = manifest(pipeline_name=name, sequence=sequence, files=files, **{**usual, **changes})
        content = encode_manifest(made)
        return write_bundle(
            self.directory / "bundles",
            made,
            manifest_bytes=content,
            signature=sign(content, self.key),
            files=contents,
        )

    def connect(self) -> Channel:
        return ChildChannel(self.command)

    def connect_impatient(self, *, silence_s: float) -> Channel:
        """Return a connection to an agent that gives a silent client up after `silence_s`, not after 30 s."""
        return ChildChannel([*self.command, str(silence_s)])

    def go_back(self, to: str | None = None, *, exit_code: int = 0) -> Outcome:
        """Have a person go back to the release before, or to one that is kept."""
        one = roll_back(to, DeliveryOptions(who="ops"), connect=lambda _: self.connect())
        went = one(Target(name="gate-01", host="gate-01"), self.events.append, threading.Event())
        assert went.exit_code == exit_code, went
        return went

    def push(self, bundle: Bundle, connect=None, *, stop=None, on_event=None, **options: object) -> Outcome:
        return deliver(
            bundle,
            connect or self.connect,
            target="gate-01",
            options=DeliveryOptions(who="tester", **options),
            on_event=on_event or self.events.append,
            stop=stop or threading.Event(),
        )


def permission(device: DeviceRoot, *, counted: int, **changes: object) -> Bundle:
    """Return a release that takes the device back, from this counter and for a day."""
    return as_permission(device.bundle("old", **{**bounds_from(counted), **changes}), device.key)


def bounds_from(counted: int | None) -> dict[str, object]:
    """Return what the manifest of a permission from this counter says besides; None: it is none."""
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    bounds = {"targets": ("gate-01",), "expires_at": f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}", "downgrade_from": counted}
    return {} if counted is None else bounds


def as_permission(bundle: Bundle, key: Path) -> Bundle:
    (bundle.path / "manifest.json.sig").write_bytes(sign(bundle.manifest_bytes, key, DOWNGRADE))
    return open_bundle(bundle.path)
