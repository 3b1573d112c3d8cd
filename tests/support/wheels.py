"""Wheels: the device's own with changes, ones of metadata only, locks that name them, software that is broken."""

import base64
import ensurepip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edge.bundle.manifest import Role
from edge.deploy.provision.facts import ENVIRONMENTS, Lock, LockedWheel, ProvisionFacts, facts_from_text
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
    """Return the key that software has: SHA-256 over name and digest of each wheel, a line each, sorted."""
    wheels = {path: content for path, (role, content) in files.items() if role is Role.SOFTWARE}
    lines = sorted(
        f"{path.rpartition('/')[2]} {hashlib.sha256(content).hexdigest()}\n" for path, content in wheels.items()
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


ROOT = Path(__file__).parents[2]
_BOTH_COMMANDS = b"""[console_scripts]
edge-deploy = edge.cli.entry:edge_deploy
edge-runtime = edge.cli.entry:edge_runtime
"""


def real_pip(folder: Path) -> Path:
    """Copy the pip that this Python brings into a folder: Debian keeps it in a place of its own."""
    places = (Path("/usr/share/python-wheels"), Path(ensurepip.__file__).parent / "_bundled")
    pip = next(one for place in places for one in place.glob("pip-*.whl"))
    return Path(shutil.copy2(pip, folder / pip.name))


def device_facts(
    python: tuple[int, int] = (3, 10),
    architecture: str = "aarch64",
    l4t: str | None = None,
    glibc: tuple[int, int] = (2, 35),
    name: str = "gate-01",
) -> ProvisionFacts:
    return ProvisionFacts(
        architecture=architecture,
        python=python,
        glibc=glibc,
        gpu_nodes=("nvmap", "dri/renderD128") if l4t is not None else (),
        has_argus=l4t is not None,
        l4t=l4t,
        has_key=False,
        has_signer=False,
        has_video=True,
        credentials=(),
        free_bytes=1 << 40,
        name=name,
    )


def facts_told(script: str) -> ProvisionFacts:
    """Return what a script of facts finds here; what this machine may lack to be a device is passed over."""
    told = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    assert told.stderr == ""
    lines = [line for line in told.stdout.splitlines() if not line.startswith(("missing=", "systemd="))]
    return facts_from_text("\n".join([*lines, "systemd=249"]), target="gate-01")


def software_values(site: Path, name: str) -> dict[str, Any]:
    """Return the values of the step that installs in `opt/NAME` of a place what lies in its store now."""
    store = site / "cache/edge-deploy/wheels"
    wheels = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.glob("*.whl")}
    parts = {file: file.split("-") for file in wheels if not file.startswith("pip-")}
    return {
        "path": str(site / "opt" / name),
        "link": str(site / "opt/edge"),
        "title": "edge-deploy 1.0",
        "requirements": "".join(
            f"{one[0].replace('_', '-')}=={one[1]} --hash=sha256:{wheels[file]}\n" for file, one in parts.items()
        ),
        "pip": next(file for file in wheels if file not in parts),
        "wheels": wheels,
        "store": str(store),
    }


def little_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *requires: str,
    tag: str = "py3-none-any",
    extras: tuple[str, ...] = (),
) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-{tag}.whl"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Provides-Extra: {one}" for one in extras]
    lines += [f"Requires-Dist: {one}" for one in requires]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", "\n".join(lines) + "\n")
        is_pure = str(tag.endswith("any")).lower()
        archive.writestr(f"{stem}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def little_lock(wheels: Iterable[Path], *, jetson: tuple[str, ...] = ()) -> Lock:
    """Return a lock with these wheels for every device; those named in `jetson` for Jetsons alone."""
    locked = []
    for wheel in sorted(wheels):
        name, version = wheel.name.split("-")[:2]
        use = "install" if name == "pip" else "jetson" if name in jetson else "serve"
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        locked.append(
            LockedWheel(name=name.replace("_", "-"), version=version, wheel=wheel.name, sha256=sha256, use=use)
        )
    return Lock(made_at="2026-11-22T00:00:00Z", environments=dict.fromkeys(ENVIRONMENTS, tuple(locked)))


def whole_wheel(folder: Path) -> Path:
    """Return a wheel of all of the package, with both commands, as a workstation installs it."""
    files = {}
    for place, folders, names in os.walk(ROOT / "edge", followlinks=True):
        folders[:] = [one for one in folders if one != "__pycache__"]
        paths = (Path(place, name) for name in names)
        files |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
    stated = zipfile.ZipFile(io.BytesIO(own_wheel()))
    for name in (one for one in stated.namelist() if ".dist-info/" in one and not one.endswith("RECORD")):
        files[name] = stated.read(name)
    info = next(name for name in files if name.endswith("METADATA")).removesuffix("METADATA")
    files[f"{info}entry_points.txt"] = _BOTH_COMMANDS
    rows = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    with zipfile.ZipFile(folder / OURS, "w") as archive:
        for name, content in {**files, f"{info}RECORD": "".join(rows).encode()}.items():
            archive.writestr(name, content)
    return folder / OURS


def pip_installed(wheel: Path, site: Path) -> Path:
    """Install a wheel into a folder by the real pip, without what it requires; return the folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", f"--target={site}", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return site


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


REPOSITORY = Path(__file__).parents[2]
NEXT = {"edge/version.py": (REPOSITORY / "edge/version.py").read_bytes().replace(b'"0.1.0"', b'"0.2.0"')}
# Each breaks where it is used; what cannot even be imported is found out before anything is built.
BREAKS = {
    "edge/runtime/serve/engine.py": (
        b"    device, release = device_of_release(folder)\n",
        b"    raise SystemExit(1)\n",
    ),
    "edge/runtime/build/worker.py": (
        b"def main(",
        b"def main(*_):\n    raise OSError('this worker is broken')\n\n\ndef _(",
    ),
    "edge/runtime/agent/serve.py": (
        b"    layout = Layout(",
        b"    raise ImportError('this agent is broken')\n    layout = Layout(",
    ),
    "edge/runtime/serve/parts.py": (
        b"from __future__ import annotations\n",
        b"raise ImportError('this software is broken')\n",
    ),
}


def broken(name):
    """Return a file of the package that fails where it is used."""
    before, after = BREAKS[name]
    text = (REPOSITORY / name).read_bytes()
    assert text.count(before) == 1, (name, before)
    return text.replace(before, after)
