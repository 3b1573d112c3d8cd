"""Wheels for tests: the device's own with changes, and made up ones."""

import hashlib
import io
import zipfile
from collections.abc import Mapping

from edge.bundle.manifest import Role
from edge.deploy.provision.wheels import OURS, own_wheel

OWN = f"wheels/{OURS}"
METADATA = "edge_deploy-0.1.0.dist-info/METADATA"


def wheel(files: Mapping[str, bytes]) -> bytes:
    """Return an archive with these files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def own_with(changes: Mapping[str, bytes]) -> bytes:
    """Return the device's own wheel in which some files are others."""
    with zipfile.ZipFile(io.BytesIO(own_wheel())) as archive:
        files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    return wheel({**files, **changes})


def tiny(mark: bytes = b"1", *, requires: tuple[str, ...] = ()) -> bytes:
    """Return a wheel by the name of ours that has next to nothing in it."""
    metadata = b"Metadata-Version: 2.1\nName: edge-deploy\n" + b"".join(
        b"Requires-Dist: %s\n" % one.encode() for one in requires
    )
    return wheel({"edge/__init__.py": b"MARK = %s\n" % mark, METADATA: metadata})


def software_files(own: bytes, **others: bytes) -> dict[str, tuple[Role, bytes]]:
    """Return the files of software among those of a release."""
    named = {OWN: own, **{f"wheels/{name}": content for name, content in others.items()}}
    return {path: (Role.SOFTWARE, content) for path, content in named.items()}


def key_of(files: Mapping[str, tuple[Role, bytes]]) -> str:
    """Return the key that software has by ADR 20: SHA-256 over name and digest of each wheel, a line each, sorted."""
    wheels = {path: content for path, (role, content) in files.items() if role is Role.SOFTWARE}
    lines = sorted(
        f"{path.rpartition('/')[2]} {hashlib.sha256(content).hexdigest()}\n" for path, content in wheels.items()
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()
