"""A throw-away authority and server certificate, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    ca: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path, *, host: str = "localhost", also: tuple[str, ...] = ()) -> Certificates:
    """Make an authority and a certificate for `host`, and for the names in `also`."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    ca_key = directory / "ca.key"
    extensions = directory / "extensions"
    extensions.write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in (host, *also)) + "\n")
    key_type = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl("req", "-x509", *key_type, "-keyout", ca_key, "-out", made.ca, "-days", "2", "-subj", "/CN=test authority")
    request = directory / "request.pem"
    _openssl("req", *key_type, "-keyout", made.key, "-out", request, "-subj", f"/CN={host}")
    signing = ["-CA", made.ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions]
    _openssl("x509", "-req", "-in", request, "-out", made.certificate, *signing)
    return made


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
