"""Files in memory whose power can be cut: every tree that a disk may hold after the cut can be asked for.

The model is stricter than a journaling file system. The content of a file is durable after `sync`, a change of a
folder after `sync_dir` of that folder. At a cut, any subset of the changes that are not durable may have reached the
disk, each change of a folder as a whole and in their order; content that is not durable may be old, empty, torn or new.
A rename from one folder to another is two changes: the new name may be there without the old one being gone, never the
other way. What has no way from the root is not there.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edge.reading import SMALL_BYTES, UnfitFile

MAX_PENDING = 9  # 2^9 subsets; above that prefixes, single omissions, single survivors and samples
SAMPLES = 256
MAX_LINKS = 16


@dataclass(frozen=True)
class Link:
    target: str


@dataclass
class Content:
    """A file: what is on the disk, what a reader sees, and what a cut may leave besides those two."""

    durable: bytes = b""
    cached: bytes = b""
    between: tuple[bytes, ...] = ()
    modified_s: float = 0.0

    def change(self, content: bytes, *between: bytes) -> None:
        self.between = tuple(dict.fromkeys((*self.between, self.cached, *between)))
        self.cached = content

    def flush(self) -> None:
        self.durable, self.between = self.cached, ()

    def possible(self) -> list[bytes]:
        return list(dict.fromkeys((self.durable, *self.between, self.cached)))


class Folder:
    """A folder: names as a reader sees them, and as they are on the disk."""

    def __init__(self) -> None:
        self.cached: dict[str, Folder | Content | Link] = {}
        self.durable: dict[str, Folder | Content | Link] = {}


@dataclass(eq=False)
class Change:
    """Names that appear or vanish together in one folder; `needs` has to be on the disk first."""

    folder: Folder
    names: tuple[tuple[str, Folder | Content | Link | None], ...]
    needs: Change | None = None


Tree = tuple[tuple[str, object], ...]  # (path, None for a folder, str for a link, bytes for a file), sorted


class CutFiles:
    """`Files` in memory; `on_step` is called before each step that changes something, and counts as a place to cut.

    `skips` are the numbers of the syncs (from 0) that do nothing, as if they had been forgotten; None: all of them.
    `idle` are those that had nothing to do: they are for what a killed process has left.
    """

    def __init__(self, tree: Tree = (), *, on_step: Callable[[CutFiles], None] | None = None) -> None:
        self.root = Folder()
        self.pending: list[Change] = []
        self.on_step = on_step
        self.skips: frozenset[int] | None = frozenset()
        self.steps = 0
        self.syncs: list[str] = []
        self.idle: set[int] = set()
        self._last = ""
        self.now_s = 0.0
        for path, what in tree:
            self._plant(path, what)

    # -- Files

    def read(self, path: Path, *, most_bytes: int = SMALL_BYTES) -> bytes:
        content = self._file(path).cached
        if len(content) > most_bytes:
            raise UnfitFile(path, f"expected at most {most_bytes} bytes, it has {len(content)}")
        return content

    def read_at(self, path: Path, offset: int, length: int) -> bytes:
        return self._file(path).cached[offset : offset + length]

    def write(self, path: Path, content: bytes, *, mode: int = 0o644) -> None:
        del mode
        file = self._created(path)
        self._step()
        if file.cached:
            file.change(b"")
        file.change(content, content[: len(content) // 2])
        file.modified_s = self.now_s

    def write_at(self, path: Path, offset: int, content: bytes) -> None:
        file = self._file(path)
        self._step()
        old = file.cached.ljust(offset, b"\0")
        new = old[:offset] + content + old[offset + len(content) :]
        longer = old[:offset] + bytes(len(content)) + old[offset + len(content) :]
        file.change(new, new[: offset + len(content) // 2], longer)  # torn, and a length whose content never came
        file.modified_s = self.now_s

    def allocate(self, path: Path, length: int) -> None:
        del length
        self._created(path)

    def protect(self, path: Path) -> None:
        self._file(path)
        self._step()

    def append(self, path: Path, content: bytes) -> None:
        file = self._created(path)
        self._step()
        file.change(file.cached + content, file.cached + content[: len(content) // 2])
        file.modified_s = self.now_s

    def sync(self, path: Path) -> None:
        file = self._file(path)
        self._step()
        if self._counts(f"sync {path}"):
            file.flush()

    def sync_dir(self, path: Path) -> None:
        folder = self._folder(path)
        self._step()
        if not any(change.folder is folder for change in self.pending):
            self.idle.add(len(self.syncs))
        if not self._counts(f"sync_dir {path}"):
            return
        wanted: set[int] = set()
        for change in self.pending:
            if change.folder is folder:
                wanted.add(id(change))
                if change.needs is not None:
                    wanted.add(id(change.needs))
        done = [change for change in self.pending if id(change) in wanted]
        self.pending = [change for change in self.pending if id(change) not in wanted]
        for change in done:
            _apply(change.folder.durable, change)
        for change in self.pending:
            if change.needs is not None and id(change.needs) in wanted:
                change.needs = None

    def rename(self, source: Path, target: Path) -> None:
        here, there = self._parent(source), self._parent(target)
        thing = self._entry(source)
        old = there.cached.get(target.name)
        if isinstance(old, Folder) and not isinstance(thing, Folder):
            raise _error(errno.EISDIR, target)
        if isinstance(old, Folder) and old.cached:
            raise _error(errno.ENOTEMPTY, target)
        if isinstance(thing, Folder) and isinstance(old, (Content, Link)):
            raise _error(errno.ENOTDIR, target)
        self._step()
        if here is there:
            self._change(Change(here, ((source.name, None), (target.name, thing))))
            return
        added = self._change(Change(there, ((target.name, thing),)))
        self._change(Change(here, ((source.name, None),), needs=added))

    def symlink(self, path: Path, target: str) -> None:
        self._create(path, Link(target))

    def make_dir(self, path: Path, *, mode: int = 0o750) -> None:
        self._create(path, Folder())

    def remove(self, path: Path) -> None:
        if isinstance(self._entry(path), Folder):
            raise _error(errno.EISDIR, path)
        self._step()
        self._change(Change(self._parent(path), ((path.name, None),)))

    def remove_dir(self, path: Path) -> None:
        folder = self._entry(path)
        if not isinstance(folder, Folder):
            raise _error(errno.ENOTDIR, path)
        if folder.cached:
            raise _error(errno.ENOTEMPTY, path)
        self._step()
        self._change(Change(self._parent(path), ((path.name, None),)))

    def names(self, path: Path) -> list[str]:
        return sorted(self._folder(path).cached)

    def link_target(self, path: Path) -> str | None:
        try:
            entry = self._entry(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return entry.target if isinstance(entry, Link) else None

    def length(self, path: Path) -> int | None:
        try:
            entry = self._followed(path)
        except FileNotFoundError:
            return None
        return len(entry.cached) if isinstance(entry, Content) else None

    def modified_s(self, path: Path) -> float:
        return self._file(path).modified_s

    def is_dir(self, path: Path) -> bool:
        try:
            return isinstance(self._followed(path), Folder)
        except (FileNotFoundError, NotADirectoryError):
            return False

    # -- the cut

    def tree(self) -> Tree:
        return _tree(self.root, lambda folder: folder.cached, lambda file: file.cached)

    def trees_after_cut(self) -> Iterator[Tree]:
        """Yield every tree that the disk may hold if the power goes now; some more than once."""
        for kept in _subsets(self.pending):
            folders: dict[int, dict[str, Folder | Content | Link]] = {}
            for change in kept:
                names = folders.setdefault(id(change.folder), dict(change.folder.durable))
                _apply(names, change)
            yield from _settled(self.root, folders)

    # -- inside

    def _step(self) -> None:
        self.steps += 1
        if self.on_step is not None:
            self.on_step(self)

    def _counts(self, what: str) -> bool:
        self.syncs.append(what + self._last)
        self._last = ""
        return self.skips is not None and len(self.syncs) - 1 not in self.skips

    def _change(self, change: Change) -> Change:
        self._last = f" after {change.names[-1][0]}"
        _apply(change.folder.cached, change)
        self.pending.append(change)
        return change

    def _create(self, path: Path, thing: Folder | Content | Link) -> None:
        folder = self._parent(path)
        if path.name in folder.cached:
            raise _error(errno.EEXIST, path)
        self._step()
        self._change(Change(folder, ((path.name, thing),)))

    def _created(self, path: Path) -> Content:
        entry = self._parent(path).cached.get(path.name)
        if entry is None:
            entry = Content(modified_s=self.now_s)
            self._create(path, entry)
        if isinstance(entry, Link):
            raise _error(errno.ELOOP, path)
        if isinstance(entry, Folder):
            raise _error(errno.EISDIR, path)
        return entry

    def _entry(self, path: Path) -> Folder | Content | Link:
        name = str(path).rpartition("/")[2]
        entry = self._parent(path).cached.get(name) if name else self.root
        if entry is None:
            raise _error(errno.ENOENT, path)
        return entry

    def _folder(self, path: Path | str) -> Folder:
        entry = self._followed(path)
        if not isinstance(entry, Folder):
            raise _error(errno.ENOTDIR, path)
        return entry

    def _parent(self, path: Path) -> Folder:
        return self._folder(str(path).rpartition("/")[0])

    def _file(self, path: Path) -> Content:
        entry = self._followed(path)
        if isinstance(entry, Folder):
            raise _error(errno.EISDIR, path)
        return entry

    def _followed(self, path: Path | str) -> Folder | Content:
        """Return what a path leads to; by strings, because most of the time of an enumeration is spent here."""
        parts, way, links = str(path).split("/"), [self.root], 0
        parts.reverse()
        while parts:
            name = parts.pop()
            if name in ("", "."):
                continue
            if name == "..":
                way = way[:-1] or [self.root]
                continue
            here = way[-1]
            if not isinstance(here, Folder):
                raise _error(errno.ENOTDIR, path)
            entry = here.cached.get(name)
            if entry is None:
                raise _error(errno.ENOENT, path)
            if isinstance(entry, Link):
                links += 1
                if links > MAX_LINKS:
                    raise _error(errno.ELOOP, path)
                way = [self.root] if entry.target.startswith("/") else way
                parts += reversed(entry.target.split("/"))
                continue
            way.append(entry)
        return way[-1]

    def _plant(self, path: str, what: object) -> None:
        folder = self.root
        *above, name = path.split("/")[1:]
        for one in above:
            folder = folder.durable[one]
        things = {bytes: lambda: Content(what, what), str: lambda: Link(what), type(None): Folder}
        folder.durable[name] = folder.cached[name] = things[type(what)]()


def _apply(names: dict, change: Change) -> None:
    for name, thing in change.names:
        if thing is None:
            names.pop(name, None)
        else:
            names[name] = thing


def _subsets(pending: list[Change]) -> Iterator[list[Change]]:
    for kept in _choices(len(pending)):
        chosen = {id(pending[index]) for index in kept}
        if all(pending[i].needs is None or id(pending[i].needs) in chosen for i in kept):
            yield [pending[index] for index in kept]


def _choices(count: int) -> Iterable[tuple[int, ...]]:
    every = range(count)
    if count <= MAX_PENDING:
        return itertools.chain.from_iterable(itertools.combinations(every, size) for size in range(count + 1))
    dice = random.Random(count)
    found = [tuple(every[:size]) for size in range(count + 1)]
    found += [tuple(index for index in every if index != one) for one in every]
    found += [(one,) for one in every]
    found += [tuple(index for index in every if dice.random() < 0.5) for _ in range(SAMPLES)]
    return found


def _settled(root: Folder, folders: dict[int, dict]) -> Iterator[Tree]:
    def names_of(folder: Folder) -> dict:
        return folders.get(id(folder), folder.durable)

    dirty = [file for file in _files(root, names_of) if len(file.possible()) > 1]
    for contents in itertools.product(*(file.possible() for file in dirty)):
        chosen = {id(file): content for file, content in zip(dirty, contents, strict=True)}
        yield _tree(root, names_of, lambda file, chosen=chosen: chosen.get(id(file), file.durable))


def _files(folder: Folder, names_of: Callable) -> list[Content]:
    found: dict[int, Content] = {}
    for entry in names_of(folder).values():
        if isinstance(entry, Content):
            found[id(entry)] = entry
        elif isinstance(entry, Folder):
            found.update({id(file): file for file in _files(entry, names_of)})
    return list(found.values())


_SHARED: dict[tuple[str, object], tuple[str, object]] = {}  # one object for what many trees have in common


def _tree(root: Folder, names_of: Callable, content_of: Callable) -> Tree:
    found: list[tuple[str, object]] = []

    def walk(folder: Folder, path: str) -> None:
        for name, entry in sorted(names_of(folder).items()):
            here = f"{path}/{name}"
            pair = (here, _what(entry, content_of))
            found.append(_SHARED.setdefault(pair, pair))
            if isinstance(entry, Folder):
                walk(entry, here)

    walk(root, "")
    return tuple(found)


def _what(entry: Folder | Content | Link, content_of: Callable) -> object:
    if isinstance(entry, Folder):
        return None
    return entry.target if isinstance(entry, Link) else content_of(entry)


def _error(number: int, path: Path | str) -> OSError:
    return OSError(number, os.strerror(number), str(path))
