"""A bundle on a workstation's disk: `NAME.bundle/` with manifest.json, manifest.json.sig and the files."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from edge.bundle.manifest import MAX_MANIFEST_BYTES, BundledFile, Manifest, decode_manifest
from edge.bundle.sign import MAX_SIGNATURE_BYTES
from edge.digest import sha256_and_length
from edge.errors import DeployError
from edge.writing import remedy

__all__ = [
    "MANIFEST",
    "SIGNATURE",
    "SUFFIX",
    "Bundle",
    "bundle_name",
    "open_bundle",
    "require_writable",
    "write_bundle",
]

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
SUFFIX = ".bundle"
_ELSEWHERE = "give another folder: edge-deploy bundle -o DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """An opened bundle. Its files are checked when they are asked for; its signature is checked by the device."""

    path: Path
    manifest: Manifest
    manifest_bytes: bytes
    signature: bytes
    _checked: set[str] = field(default_factory=set, repr=False, compare=False)

    def path_of(self, file: BundledFile) -> Path:
        """Return where a file lies; DeployError `bundle.file` if missing, no plain file or not as the manifest says."""
        path = self.path / file.path
        if file.path not in self._checked:
            _check_file(self.path, file)
            self._checked.add(file.path)
        return path

    @contextmanager
    def opened(self, file: BundledFile) -> Iterator[BinaryIO]:
        """Give a file of the manifest open for reading, checked as by `path_of`; DeployError `bundle.file`."""
        path = self.path_of(file)
        try:
            with path.open("rb") as content:
                yield content
        except OSError as error:
            raise _unreadable(path, error) from None


def bundle_name(manifest: Manifest) -> str:
    return f"{manifest.pipeline_name}-{manifest.release}{SUFFIX}"


def open_bundle(path: Path) -> Bundle:
    """Return the bundle in a folder; DeployError `bundle.folder` if it is none, `verify.manifest.*` by its manifest."""
    if not path.is_dir():
        raise DeployError(
            "bundle.folder", f"{path}: expected the folder of a bundle", hint="make it: edge-deploy bundle"
        )
    content = _read(path / MANIFEST, MAX_MANIFEST_BYTES)
    signature = _read(path / SIGNATURE, MAX_SIGNATURE_BYTES)
    return Bundle(path=path, manifest=decode_manifest(content), manifest_bytes=content, signature=signature)


def require_writable(folder: Path) -> None:
    """Raise DeployError `bundle.write` where `write_bundle` could not put one; nothing is made yet."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "this user may not write there" if there.is_dir() else "no folder"
        raise DeployError("bundle.write", f"{folder}: cannot be written: {there}: {why}", hint=_ELSEWHERE)


def write_bundle(
    folder: Path, manifest: Manifest, *, manifest_bytes: bytes, signature: bytes, files: Mapping[str, Path | bytes]
) -> Bundle:
    """Write a bundle into `folder`, whole or not at all, and return it opened.

    A bundle of the same name, which has the same content under another sequence, is replaced. `signature` is over
    `manifest_bytes`; `files` are content, or where it lies, by path in the bundle.
    DeployError: `bundle.write` if the disk refuses, `bundle.file` if a source is not what the manifest says.
    """
    target = folder / bundle_name(manifest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=folder) as workshop:
            made = Path(workshop) / "new"
            _fill(made, {MANIFEST: manifest_bytes, SIGNATURE: signature, **files})
            for file in manifest.files:
                _check_file(made, file)
            _replace(made, target, aside=Path(workshop) / "old")
    except OSError as error:
        raise DeployError(
            "bundle.write",
            f"{target}: cannot be written: {error.strerror or error}",
            hint=remedy(error, _ELSEWHERE),
        ) from error
    return open_bundle(target)


def _fill(made: Path, contents: Mapping[str, Path | bytes]) -> None:
    for name, content in contents.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            shutil.copyfile(content, path)
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _replace(made: Path, target: Path, *, aside: Path) -> None:
    if os.path.lexists(target):
        target.rename(aside)
    made.rename(target)


def _check_file(folder: Path, file: BundledFile) -> None:
    path = folder / file.path
    try:
        # The folder may have come from anywhere: a link in it could name any file of this machine.
        parts = [
            folder.joinpath(*path.relative_to(folder).parts[:depth]) for depth in range(1, file.path.count("/") + 2)
        ]
        if any(part.is_symlink() for part in parts) or not stat.S_ISREG(path.lstat().st_mode):
            raise DeployError("bundle.file", f"{path}: is a link or no plain file", hint="copy the bundle again")
        if path.stat().st_size != file.length_bytes or sha256_and_length(path) != (file.sha256, file.length_bytes):
            raise DeployError("bundle.file", f"{path}: is not what the manifest says", hint="copy the bundle again")
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DeployError:
    return DeployError("bundle.file", f"{path}: cannot be read: {error.strerror}", hint="copy the bundle again")


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise DeployError("bundle.folder", f"{path}: is a link or no plain file", hint="copy the bundle again")
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        raise DeployError(
            "bundle.folder", f"{path}: cannot be read: {error.strerror}", hint="make the bundle: edge-deploy bundle"
        ) from error
