"""`edge-deploy provision` as a person runs it, against a virtual device."""

import os
import subprocess
import sys
from pathlib import Path

from tests.lab.device import VirtualDevice

ROOT = Path(__file__).parents[2]


def edge_deploy(*arguments: str, timeout_s: float = 600.0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the workstation's command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "edge.cli.edge_deploy", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def provision(device: VirtualDevice, *arguments: str, timeout_s: float = 600.0) -> subprocess.CompletedProcess[str]:
    """Run `provision` as the device's administrator, letting the lab's push key push and sign."""
    keys = () if "--undo" in arguments else ("--key", f"{device.push_key}.pub", "--signer", f"{device.push_key}.pub")
    whole = ("--admin", "admin", "--ssh-config", str(device.ssh_config), *keys, *arguments)
    return edge_deploy("provision", device.name, *whole, timeout_s=timeout_s)


def have_patience(device: VirtualDevice) -> None:
    """Let systemd wait longer, where an engine that is built beside the service may slow a batch to half a minute."""
    folder = "/etc/systemd/system/edge-runtime.service.d"
    limits = "[Service]\nWatchdogSec=300s\nTimeoutStartSec=900s\n"
    device.run(f"mkdir -p {folder}; cat > {folder}/90-patience.conf; systemctl daemon-reload", content=limits)
