"""Blobs named by their SHA-256, and the partial files that become blobs."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from edge.device.durable import Durable, typed
from edge.device.layout import Layout
from edge.errors import DeployError

__all__ = ["Store", "check_sha256"]

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
