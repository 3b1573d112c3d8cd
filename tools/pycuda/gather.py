"""What comes from the network: sources and wheels, checked against the recipe."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.pycuda.recipe import CUDA_HEADERS, PYCUDA, Python, Source
from tools.pycuda.root import MakeError

__all__ = ["build_wheels", "cuda_headers", "pycuda_source", "python_source"]

_TOOLS = ("pip", "setuptools", "wheel", "numpy", "pytools", "platformdirs", "mako")


def python_source(python: Python, folder: Path) -> Path:
    """Return the source as a tar file. Raises MakeError if it cannot be fetched, or is not what the recipe names."""
    return _fetched(python.source, folder)


def pycuda_source(folder: Path) -> Path:
    """Return the source as a tar file. Raises MakeError as `python_source`."""
    requirement, sha256 = PYCUDA
    _pip(["download", "--no-deps", "--no-binary=pycuda", "--dest", str(folder), requirement])
    return _proven(folder / f"{requirement.replace('==', '-')}.tar.gz", sha256)


def build_wheels(python: Python, folder: Path) -> Path:
    """Return a folder with the wheels that build pycuda, and those that importing it needs, for a Python."""
    folder = folder / python.tag
    tags = ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64"]
    options = ["--only-binary=:all:", f"--python-version={python.series}", "--implementation=cp"]
    _pip(["download", "--dest", str(folder), *options, *(f"--platform={tag}" for tag in tags), *_TOOLS])
    return folder


def cuda_headers(folder: Path, target: Path) -> None:
    """Unpack the CUDA headers into `target`; they are the same for every architecture, and stay here."""
    options = ["--no-deps", "--only-binary=:all:", "--platform=manylinux1_x86_64"]
    _pip(["download", "--dest", str(folder), *options, *CUDA_HEADERS])
    target.mkdir(parents=True, exist_ok=True)
    for requirement in CUDA_HEADERS:
        name, version = requirement.replace("-", "_").split("==")
        with zipfile.ZipFile(next(folder.glob(f"{name}-{version}-*.whl"))) as wheel:
            for member in wheel.namelist():
                _, found, inner = member.partition("/include/")
                if found and not inner.endswith(("/", "__init__.py")):
                    (target / inner).parent.mkdir(parents=True, exist_ok=True)
                    (target / inner).write_bytes(wheel.read(member))


def _fetched(source: Source, folder: Path) -> Path:
    path = folder / source.url.rpartition("/")[2]
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        try:
            urllib.request.urlretrieve(source.url, partial)
        except OSError as error:
            raise MakeError(f"{source.url}: {error}; put the file into {folder} by hand") from None
        partial.rename(path)
    return _proven(path, source.sha256)


def _proven(path: Path, sha256: str) -> Path:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        raise MakeError(f"{path} has SHA-256 {found}, expected {sha256}; remove it, and mistrust where it came from")
    return path


def _pip(arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), timeout=1800, check=False)
    if done.returncode:
        raise MakeError(f"pip {arguments[0]} failed: {done.stderr.strip()[-800:]}")
