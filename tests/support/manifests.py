"""Manifests, keys and allowed signers for tests; keys are made by the real ssh-keygen."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edge.bundle.manifest import BundledFile, Manifest, Role, release_name


def bundled(path, role, content=b"x"):
    return BundledFile(path=path, role=role, length_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def manifest(**changes):
    """Return a small valid manifest of two files, named by its content."""
    values = {
        "release": "0" * 12,
        "pipeline_name": "gates",
        "channel": "stable",
        "sequence": 7,
        "created_at": "2026-11-20T12:00:00Z",
        "expires_at": None,
        "compatible": ("any",),
        "files": (bundled("model.onnx", Role.MODEL), bundled("pipeline.yaml", Role.PIPELINE, b"version: 1\n")),
    }
    made = Manifest(**{**values, **changes})
    return made if "release" in changes else dataclasses.replace(made, release=release_name(made))


def ssh_key(folder: Path, name="key") -> Path:
    """Return an Ed25519 key, in one process always the same of that name; its public half lies beside it."""
    private, public = _key_pair(name)
    path = folder / name
    path.touch(0o600)
    path.write_bytes(private)
    path.with_suffix(".pub").write_bytes(public)
    return path


@functools.cache
def _key_pair(name: str) -> tuple[bytes, bytes]:
    with tempfile.TemporaryDirectory(prefix="edge-key-") as folder:
        path = Path(folder, "key")
        keygen("-t", "ed25519", "-N", "", "-C", name, "-f", path)
        return path.read_bytes(), path.with_suffix(".pub").read_bytes()


def allowed(path: Path, key: Path, options='namespaces="edge-release"', principal="ana@example") -> Path:
    """Write an allowed-signers file with one line, and return it."""
    path.unlink(missing_ok=True)
    return allow(path, key, options, principal)


def allow(path: Path, key: Path, options='namespaces="edge-release"', principal="ana@example") -> Path:
    """Add a line to an allowed-signers file, and return it."""
    kind, public = key.with_suffix(".pub").read_text().split()[:2]
    with path.open("a") as file:
        file.write(f"{principal} {options} {kind} {public}\n")
    return path


def revocation(path: Path, *keys: Path) -> Path:
    keygen("-k", "-f", path, *(key.with_suffix(".pub") for key in keys))
    return path


@contextlib.contextmanager
def ssh_agent(folder: Path, monkeypatch, *keys: Path) -> Iterator[None]:
    """Have an agent within the block that holds these keys."""
    started = subprocess.run(["ssh-agent", "-s", "-a", folder / "agent"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(folder / "agent"))
    try:
        for key in keys:
            subprocess.run(["ssh-add", "-q", key], check=True, timeout=10, stdin=subprocess.DEVNULL)
        yield
    finally:
        os.kill(int(started.stdout.partition("SSH_AGENT_PID=")[2].partition(";")[0]), signal.SIGTERM)


def keygen(*arguments) -> None:
    subprocess.run(["ssh-keygen", "-q", *map(str, arguments)], check=True, timeout=30, stdin=subprocess.DEVNULL)
