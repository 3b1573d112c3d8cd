"""What pip would install on a kind of device, asked on this machine and held against the device's own markers."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from email.utils import getaddresses
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from edge.deploy.provision.facts import PYTHONS, Environment, LockedWheel, Use
from tools.lock.needs import Needs, Package, needs_of
from tools.pycuda.recipe import PYCUDA, PYCUDA_NEEDS

__all__ = ["LockError", "choose", "license_of", "locked_from", "newest_pip", "supplier_of"]

_GLIBC_MINOR = 35  # JetPack 6's, which is the oldest
_ROOT = Path(__file__).parents[2]
_DEADLINE_S = 900
_OURS, _PYCUDA = "edge-deploy", "pycuda"
_EXTRA = "jetson"  # of edge-deploy, for a Jetson for which there is a wheel of pycuda
_MAX_LICENSE = 60  # longer than this, a package has put the whole text there


class LockError(Exception):
    """No wheels can be chosen."""


def newest_pip(folder: Path) -> Path:
    """Return a pip that can be run, fetched into `folder`; an older one does not report License-Expression."""
    _pip([sys.executable, "-m", "pip"], ["download", "--no-deps", f"--dest={folder}", "pip"], {})
    return next(folder.glob("pip-*.whl")) / "pip"


def choose(environment: Environment, pip: Path) -> tuple[LockedWheel, ...]:
    """Return the wheels of an environment, the newest that go together, sorted by name; asked by `pip`.
    Raises LockError if the index has none, or states no SHA-256 of one.
    """
    has_gpu = environment.architecture == "aarch64" and environment.python in PYTHONS
    ours = Package(version="0", requires=_our_requirements())
    pycuda = Package(version=PYCUDA[0].partition("==")[2], requires=PYCUDA_NEEDS)
    wanted = ["pip", *_needs({_OURS: ours}, [(_OURS, "")], environment).unmet, *(PYCUDA_NEEDS if has_gpu else ())]
    while True:
        items: dict[str, dict[str, Any]] = {
            canonicalize_name(one["metadata"]["name"]): one for one in _report(wanted, environment, pip)
        }
        packages: dict[str, Package] = {name: _package(one) for name, one in items.items()}
        packages |= {_OURS: ours, _PYCUDA: pycuda}
        serving = _needs(packages, [(_OURS, "")], environment)
        asked = [(_OURS, ""), ("pip", ""), *([(_OURS, _EXTRA)] if has_gpu else [])]
        whole = _needs(packages, asked, environment)
        if not whole.unmet:
            break
        if set(whole.unmet) <= set(wanted):
            raise LockError(f"no wheels go together: {', '.join(whole.unmet)}")
        wanted += whole.unmet
    names = sorted(whole.edges.keys() - {_OURS, _PYCUDA})
    return tuple(locked_from(name, items[name], whole.edges[name], _use(name, serving)) for name in names)


def _use(name: str, serving: Needs) -> Use:
    if name == "pip":
        return "install"
    return "serve" if name in serving.edges else "jetson"


def _needs(packages: Mapping[str, Package], asked: Sequence[tuple[str, str]], environment: Environment) -> Needs:
    return needs_of(packages, asked, architecture=environment.architecture, python=environment.python)


def _our_requirements() -> tuple[str, ...]:
    setup = configparser.ConfigParser()
    setup.read(_ROOT / "setup.cfg", encoding="utf-8")
    lines = [line for line in setup["options"]["install_requires"].splitlines() if line]
    extra = [line for line in setup["options.extras_require"][_EXTRA].splitlines() if line]
    return (*lines, *(f'{line}; extra == "{_EXTRA}"' for line in extra))


def _report(wanted: Sequence[str], environment: Environment, pip: Path) -> list[dict[str, Any]]:
    machine = environment.architecture
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(17, _GLIBC_MINOR + 1)] + [f"manylinux2014_{machine}"]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={_dotted(environment.python)}"]
    options += [f"--platform={tag}" for tag in reversed(tags)]
    with tempfile.TemporaryDirectory() as folder:
        # Wheels that lie in folders here are nobody's but this machine's; pip passes over a variable that is empty.
        (Path(folder) / "none.txt").touch()
        own = {"PIP_FIND_LINKS": folder, "PIP_EXTRA_INDEX_URL": Path(folder).as_uri()}
        own["PIP_CONSTRAINT"] = str(Path(folder) / "none.txt")
        report = Path(folder) / "report.json"
        command = ["install", "--dry-run", "--ignore-installed", f"--target={folder}/none", f"--report={report}"]
        _pip([sys.executable, str(pip)], [*command, *options, *wanted], own)
        items: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return items


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _pip(program: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    command = [*program, "--quiet", "--disable-pip-version-check", *arguments]
    whole = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=whole, timeout=_DEADLINE_S, check=False)
    if done.returncode:
        raise LockError(f"pip failed: {done.stderr.strip()[-800:]}")


def _package(item: Mapping[str, Any]) -> Package:
    metadata = item["metadata"]
    return Package(version=metadata["version"], requires=tuple(metadata.get("requires_dist", ())))


def locked_from(name: str, item: Mapping[str, Any], requires: Sequence[str], use: Use) -> LockedWheel:
    """Return an entry of the lock from an item of pip's report.
    Raises LockError if the index states no SHA-256, or the wheel did not come over TLS.
    """
    metadata, url = item["metadata"], item["download_info"]["url"]
    sha256 = item["download_info"]["archive_info"].get("hashes", {}).get("sha256")
    if sha256 is None or not url.startswith("https://"):
        raise LockError(f"{name}: the index states no SHA-256, or is not asked over TLS")
    return LockedWheel(
        name=name,
        version=metadata["version"],
        wheel=url.rpartition("/")[2].partition("#")[0],
        sha256=sha256,
        use=use,
        requires=tuple(sorted(requires)),
        supplier=supplier_of(metadata),
        license=license_of(metadata),
    )


def supplier_of(metadata: Mapping[str, Any]) -> str | None:
    """Return author or maintainer as the package states; None: it does not."""
    for role in ("author", "maintainer"):
        if metadata.get(role):
            return str(metadata[role])
        for name, mail in getaddresses([metadata.get(f"{role}_email") or ""]):
            if name or mail:
                return name or mail
    return None


def license_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the license as the package states, in a few words; None: it does not."""
    for stated in (metadata.get("license_expression"), metadata.get("license")):
        if stated and "\n" not in stated and len(stated) <= _MAX_LICENSE:
            return str(stated)
    found = [one for one in metadata.get("classifier", ()) if one.startswith("License ::")]
    return re.sub(r".* :: ", "", found[0]) if found else None
