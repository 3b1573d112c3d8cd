"""Manifests, keys and allowed signers for tests, by the real ssh-keygen; and certificates."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
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


def ssh_certificate(folder: Path, name: str) -> Path:
    """Return a certificate of a key that is made beside it; it has run out."""
    key = ssh_key(folder, name)
    keygen("-s", ssh_key(folder, "ca"), "-I", name, "-n", "edge", "-V", "20200101:20200102", key.with_suffix(".pub"))
    return folder / f"{name}-cert.pub"


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


_NAMES = ("ca.pem", "server.pem", "server.key")


@dataclass(frozen=True)
class Certificates:
    ca: Path
    certificate: Path
    key: Path


def make_certificates(
    directory: Path,
    *,
    host: str = "localhost",
    also: tuple[str, ...] = (),
    authority: str = "test authority",
    days: int = 2,
) -> Certificates:
    """Give a certificate for `host`, and for the names in `also`; one process has one authority of a name.

    With no `days` it has expired.

    Its key and what it has signed are made when they are first asked for.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in _made(authority, days, host, *also).items():
        (directory / name).write_bytes(content)
    return Certificates(*(directory / name for name in _NAMES))


def make_self_signed(directory: Path) -> Certificates:
    """Give a certificate that only itself vouches for, as cameras make it."""
    directory.mkdir(parents=True, exist_ok=True)
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    _openssl(str(directory), f"req -x509 {key} -keyout own.key -out own.pem -days 2 -subj /CN=camera")
    return Certificates(directory / "own.pem", directory / "own.pem", directory / "own.key")


def fingerprint_of(certificates: Certificates) -> str:
    told = subprocess.run(
        ["openssl", "x509", "-in", str(certificates.certificate), "-noout", "-fingerprint", "-sha256"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return "sha256:" + told.stdout.strip().partition("=")[2]


@functools.cache
def _made(authority: str, days: int, *hosts: str) -> dict[str, bytes]:
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    with tempfile.TemporaryDirectory(prefix="edge-tls-") as folder:
        names = ",".join(f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in hosts)
        Path(folder, "extensions").write_text(f"subjectAltName={names}\n")
        signing = f"-CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -extfile extensions"
        _openssl(folder, f"req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj", f"/CN={authority}")
        _openssl(folder, f"req {key} -keyout server.key -out request.pem -subj", f"/CN={hosts[0]}")
        _openssl(folder, f"x509 -req -in request.pem -out server.pem {signing}")
        if not days:
            time.sleep(1.1)  # it is valid to the second
        return {name: Path(folder, name).read_bytes() for name in _NAMES}


def _openssl(folder: str, words: str, *more: str) -> None:
    subprocess.run(["openssl", *words.split(), *more], cwd=folder, check=True, capture_output=True)
