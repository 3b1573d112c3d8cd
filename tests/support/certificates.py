"""A throw-away authority and server certificate, made by openssl."""

import functools
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

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
