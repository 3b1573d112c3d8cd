"""Releases on a device: folders of links into the store, and the one link that says which of them serves.

Their store: blobs named by their SHA-256, and the partial files that become blobs.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from edge.device.durable import Durable, temporary, typed
from edge.device.engines import check_key
from edge.device.layout import Layout
from edge.errors import DeployError
from edge.reading import json_object

__all__ = ["MANIFEST", "SIGNATURE", "Releases", "Store", "check_release", "check_sha256", "locate_release"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1024 * 1024


def check_sha256(sha256: str) -> str:
    """Return `sha256` if it is one, so that it may become a file name; DeployError `request.digest`."""
    if not _SHA256.fullmatch(sha256):
        raise DeployError("request.digest", f"{sha256[:80]!r} is no SHA-256: expected 64 lower-case hex digits")
    return sha256


class Store:
    """The blobs of a device; a blob that is there is whole, because it got its name after its hash and its sync.

    `is_fetched`: partial files are those of a pull, which may fetch beside a push.
    """

    def __init__(self, layout: Layout, durable: Durable, *, is_fetched: bool = False) -> None:
        self._layout = layout
        self._is_fetched = is_fetched
        self._durable = durable
        self._files = durable.files

    def has(self, sha256: str) -> bool:
        return self._files.length(self._layout.blob(check_sha256(sha256))) is not None

    @typed
    def missing(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Return the offset to go on from for each blob of `wanted` (SHA-256 to length in bytes) that is not there."""
        absent = [sha256 for sha256 in wanted if not self.has(sha256)]
        return {sha256: self._offset(sha256, wanted[sha256]) for sha256 in absent}

    @typed
    def begin(self, sha256: str, length_bytes: int) -> int:
        """Reserve a blob's space; return the offset to go on from. DeployError `device.disk.space` leaves nothing."""
        partial = self._partial(check_sha256(sha256))
        offset = self._offset(sha256, length_bytes)
        self._durable.make_dirs(partial.parent)
        if offset == 0:
            self._forget(partial)
        try:
            self._files.allocate(partial, length_bytes)
        except OSError:
            if offset == 0:
                self._forget_quietly(partial)
            raise
        return offset

    @typed
    def write(self, sha256: str, offset: int, content: bytes) -> None:
        """DeployError `transfer.offset` if the bytes do not follow what is there."""
        partial = self._partial(check_sha256(sha256))
        length = self._files.length(partial)
        if length != offset:
            raise DeployError(
                "transfer.offset",
                f"blob {sha256[:12]}: expected bytes from offset {length}, got offset {offset}",
                hint="push again; it goes on where it stopped",
            )
        self._files.write_at(partial, offset, content)

    @typed
    def finish(self, sha256: str, length_bytes: int) -> None:
        """Prove a blob and name it; on DeployError `transfer.hash` the partial file is gone, it starts again at 0."""
        partial, blob = self._partial(check_sha256(sha256)), self._layout.blob(sha256)
        found, length = self._hash(partial), self._files.length(partial)
        if found != sha256 or length != length_bytes:
            self._forget(partial)
            raise DeployError(
                "transfer.hash",
                f"blob {sha256[:12]}: expected {length_bytes} bytes with SHA-256 {sha256}, "
                f"got {length} bytes with {found}",
                hint="push again; if it repeats, check the disk and the memory of both machines",
                evidence={"expected": sha256, "found": found, "length_bytes": length},
            )
        self._durable.make_dirs(blob.parent)
        self._files.protect(partial)
        try:
            self._durable.adopt(partial, blob)
        except DeployError:
            # After a sync that failed the kernel may call lost pages clean: what can be read now is no proof of what
            # is on the disk, so no later push may go on from here.
            self._forget_quietly(partial)
            raise

    @typed
    def verify(self, sha256: str) -> bool:
        """Return whether the blob is there and still what its name says; reads all of it."""
        return self.has(sha256) and self._hash(self._layout.blob(sha256)) == sha256

    @typed
    def quarantine(self, sha256: str) -> None:
        """Take a damaged blob out of the store, so that the next push sends it again; garbage collection removes it."""
        blob = self._layout.blob(check_sha256(sha256))
        self._durable.make_dirs(self._layout.incoming)
        self._files.rename(blob, self._layout.incoming / f"{sha256}.damaged")
        self._files.sync_dir(blob.parent)

    def _partial(self, sha256: str) -> Path:
        return self._layout.partial(sha256, is_fetched=self._is_fetched)

    def _offset(self, sha256: str, length_bytes: int) -> int:
        length = self._files.length(self._partial(sha256)) or 0
        return length if length <= length_bytes else 0

    def _hash(self, path: Path) -> str:
        digest, offset = hashlib.sha256(), 0
        while chunk := self._files.read_at(path, offset, _CHUNK_BYTES):
            digest.update(chunk)
            offset += len(chunk)
        return digest.hexdigest()

    def _forget(self, partial: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(partial)

    def _forget_quietly(self, partial: Path) -> None:
        with contextlib.suppress(OSError):
            self._files.remove(partial)


MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
AGAIN = "again.json"
"""Both of these, as they came later for the same content."""
ENGINE = "engine"
WHEELS = "wheels"
"""The folder of a release's software, as its manifest names it."""
_NAME = re.compile(r"[0-9a-f]{12}")


def check_release(name: str) -> str:
    """Return `name` if it is a release's, so that it may become a file name; DeployError `request.release`."""
    if not _NAME.fullmatch(name):
        raise DeployError("request.release", f"{name[:80]!r} is no release: expected 12 lower-case hex digits")
    return name


class Releases:
    """The releases of a device; one that has its name is whole, except for blobs that were taken from the store."""

    def __init__(self, layout: Layout, durable: Durable) -> None:
        self._layout = layout
        self._durable = durable
        self._files = durable.files

    @typed
    def stage(self, name: str, *, manifest: bytes, signature: bytes, files: Mapping[str, str]) -> None:
        """Make the release `name` of blobs in the store; `files` is path to SHA-256.

        A release that is there already, and was signed again since, keeps that beside it: equal content has an equal
        name, and two files cannot be replaced in one step.
        DeployError: `request.path` for a path that leaves the release; `device.disk.*`.
        """
        folder = self._layout.release(check_release(name))
        self._settle_blobs(files.values())
        self._durable.make_dirs(folder.parent)
        if self._files.is_dir(folder):
            self._durable.settle(folder)
            if (self.manifest(name), self.signature(name)) != (manifest, signature):
                self._sign_again(name, manifest, signature)
            return
        partial = temporary(folder)
        if self._files.is_dir(partial):
            self._durable.remove_tree(partial)
        self._files.make_dir(partial)
        for path, sha256 in sorted(files.items()):
            self._link(partial, _checked_path(path), check_sha256(sha256))
        self._files.write(partial / MANIFEST, manifest)
        self._files.write(partial / SIGNATURE, signature)
        self._durable.adopt_tree(partial, folder)

    @typed
    def names(self) -> list[str]:
        """Sorted by name."""
        if not self._files.is_dir(self._layout.releases):
            return []
        return [name for name in self._files.names(self._layout.releases) if _NAME.fullmatch(name)]

    @typed
    def current(self) -> str | None:
        """Return the release that the switch points to, valid or not; None: nothing serves."""
        target = self._files.link_target(self._layout.current)
        return None if target is None else PurePosixPath(target).name

    @typed
    def manifest(self, name: str) -> bytes:
        """Return the bytes that were signed last."""
        return self._signed(name, MANIFEST)

    @typed
    def signature(self, name: str) -> bytes:
        return self._signed(name, SIGNATURE)

    def sequence(self, name: str) -> int:
        """-1 if it cannot be read."""
        try:
            value = json_object(self.manifest(name))["sequence"]
        except (DeployError, ValueError, KeyError):
            return -1
        return value if isinstance(value, int) else -1

    @typed
    def blobs(self, name: str) -> dict[str, str]:
        """Return path to SHA-256 of the release's files, as its links say."""
        folder = self._layout.release(check_release(name))
        return {
            path.relative_to(folder).as_posix(): PurePosixPath(target).name
            for path, target in self._links(folder)
            if path != folder / ENGINE
        }

    @typed
    def is_complete(self, name: str) -> bool:
        """Return whether manifest, signature and blobs are there, unread; its software's only if not installed."""
        folder = self._layout.release(check_release(name))
        texts = all(self._files.length(folder / text) for text in (MANIFEST, SIGNATURE))
        aside = (folder / ENGINE, folder / WHEELS)
        return texts and all(
            self._files.length(path) is not None
            for path, _ in self._links(folder)
            if path not in aside and path.parent not in aside
        )

    @typed
    def is_ready(self, name: str) -> bool:
        """Return whether the release is complete and its engine is there: it could serve."""
        key = self.engine_key(name)
        return self.is_complete(name) and key is not None and self._files.is_dir(self._layout.engine(key))

    @typed
    def attach_engine(self, name: str, key: str) -> None:
        """Make `key` the engine of a release, in one step."""
        self._durable.settle(self._layout.engine(check_key(key)))
        self._durable.link(self._layout.release(check_release(name)) / ENGINE, f"../../engines/{check_key(key)}")

    @typed
    def engine_key(self, name: str) -> str | None:
        """Return None where no engine is attached yet."""
        target = self._files.link_target(self._layout.release(check_release(name)) / ENGINE)
        return None if target is None else PurePosixPath(target).name

    @typed
    def settle(self, name: str) -> None:
        """Make durable that a release is here with all that it stands on, also after a killed process."""
        folder = self._layout.release(check_release(name))
        if not self._files.is_dir(folder):
            return
        self._settle_blobs(self.blobs(name).values())
        self._durable.settle(folder)
        key = self.engine_key(name)
        if key is not None:
            self._durable.settle(self._layout.engine(check_key(key)))
            self._durable.settle(folder / ENGINE)

    def _signed(self, name: str, text: str) -> bytes:
        folder = self._layout.release(check_release(name))
        if self._files.length(folder / AGAIN):
            with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged: the first ones say it as well
                return base64.b64decode(json_object(self._files.read(folder / AGAIN))[text], validate=True)
        return self._files.read(folder / text)

    def _sign_again(self, name: str, manifest: bytes, signature: bytes) -> None:
        both = {MANIFEST: manifest, SIGNATURE: signature}
        told = {text: base64.b64encode(content).decode() for text, content in both.items()}
        partial = temporary(self._layout.incoming / name)  # not in its folder, which has nothing half in it
        self._durable.make_dirs(partial.parent)
        self._files.write(partial, json.dumps(told).encode())
        self._durable.adopt(partial, self._layout.release(name) / AGAIN)

    def _settle_blobs(self, digests: Iterable[str]) -> None:
        folders = sorted({self._layout.blob(check_sha256(sha256)).parent for sha256 in digests})
        for folder in folders:
            if self._files.is_dir(folder):
                self._files.sync_dir(folder)
        if folders:
            self._durable.settle(folders[0])

    def _link(self, folder: Path, path: PurePosixPath, sha256: str) -> None:
        link = folder / path
        for parent in reversed(link.parents):
            if parent.is_relative_to(folder) and not self._files.is_dir(parent):
                self._files.make_dir(parent)
        # From the link's folder up to /var/lib/edge-deploy: the folders of `path`, the release, "releases".
        up = "../" * (len(path.parts) + 1)
        inside = self._layout.blob(sha256).relative_to(self._layout.var).as_posix()
        self._files.symlink(link, up + inside)

    def _links(self, folder: Path) -> Iterator[tuple[Path, str]]:
        if not self._files.is_dir(folder):
            return
        for name in self._files.names(folder):
            path = folder / name
            target = self._files.link_target(path)
            if target is not None:
                yield path, target
            elif self._files.is_dir(path):
                yield from self._links(path)


def _checked_path(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    is_plain = path == pure.as_posix() and "\0" not in path and not pure.is_absolute()
    if not is_plain or ".." in pure.parts or not pure.parts or pure.parts[0] in (MANIFEST, SIGNATURE, ENGINE):
        raise DeployError("request.path", f"{path[:80]!r} cannot be a file of a release")
    return pure


def locate_release(folder: Path) -> tuple[Layout, str] | None:
    """Return the device and the release that `.../current` or `.../releases/NAME` stands for; None: for none.

    The device is told by the path alone: a user who may move `current` may choose among the releases of this device,
    but cannot lead to another folder with another list of signers.
    """
    path = Path(os.path.abspath(folder))
    above = path.parents
    try:
        if path.name == "current" and len(above) > 3:
            layout, name = Layout(above[3]), os.path.basename(os.readlink(path))
            return (layout, check_release(name)) if layout.current == path else None
        if len(above) > 4:
            layout = Layout(above[4])
            return (layout, check_release(path.name)) if layout.releases == above[0] else None
    except (OSError, DeployError):
        pass
    return None
