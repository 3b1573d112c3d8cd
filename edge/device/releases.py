"""Releases on a device: folders of links into the store, and the one link that says which of them serves."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from edge.device.durable import Durable, temporary, typed
from edge.device.engines import check_key
from edge.device.layout import Layout
from edge.device.store import check_sha256
from edge.errors import DeployError
from edge.reading import json_object

__all__ = ["MANIFEST", "SIGNATURE", "Releases", "check_release", "locate_release"]

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
