"""A device that is a folder, and bundles signed by a key that it knows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edge.bundle.folder import Bundle, write_bundle
from edge.bundle.manifest import BundledFile, HealthLimits, Manifest, Role, encode_manifest, release_name
from edge.bundle.sign import sign
from edge.delivery.deliver import deliver
from edge.delivery.event import Event
from edge.delivery.options import DeliveryOptions
from edge.delivery.outcome import Outcome
from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.units import BUILD_UNIT, RUNTIME_UNIT, SOFTWARE_UNIT, TRIAL_UNIT
from edge.transport.channel import Channel
from edge.transport.local import LocalChannel

AGENT = Path(__file__).with_name("agent_process.py")


class DeviceRoot:
    """`root` is the device's file system; `key` is whom it trusts."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "root"
        self.layout = Layout(self.root)
        self.key = directory / "signer"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
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
            f'ops namespaces="edge-release,edge-release-downgrade,edge-device-reset" {" ".join(public.split()[:2])}\n'
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
        """End the processes of its units that are still there."""
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
        """Return a signed bundle of these files."""
        contents = {path: content for path, (_, content) in parts.items()}
        roles = {path: role for path, (role, _) in parts.items()}
        files = tuple(
            BundledFile(
                path=path, role=roles[path], length_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
            )
            for path, content in sorted(contents.items())
        )
        values = {
            "release": "0" * 12,
            "pipeline_name": name,
            "channel": "stable",
            "sequence": sequence,
            "created_at": "2026-11-20T12:00:00Z",
            "expires_at": None,
            "compatible": ("lab",),
            "health": HealthLimits(hold_s=1.0, min_available_bytes=0),
            "files": files,
            **changes,
        }
        manifest = Manifest(**values)
        manifest = replace(manifest, release=release_name(manifest))
        content = encode_manifest(manifest)
        return write_bundle(
            self.directory / "bundles",
            manifest,
            manifest_bytes=content,
            signature=sign(content, self.key),
            files=contents,
        )

    def connect(self) -> Channel:
        return LocalChannel(self.command)

    def connect_impatient(self, *, silence_s: float) -> Channel:
        """Return a connection to an agent that gives a silent client up after `silence_s`, not after 30 s."""
        return LocalChannel([*self.command, str(silence_s)])

    def push(self, bundle: Bundle, connect=None, *, stop=None, on_event=None, **options: object) -> Outcome:
        return deliver(
            bundle,
            connect or self.connect,
            target="gate-01",
            options=DeliveryOptions(who="tester", **options),
            on_event=on_event or self.events.append,
            stop=stop or threading.Event(),
        )
