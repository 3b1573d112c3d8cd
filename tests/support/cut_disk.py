"""What a disk may hold after a power cut, of a program that really ran: its calls are recorded by strace.

The content of a file is durable after its fsync, names of a folder after the fsync of that folder. At a cut, each page
of 4 KiB that was written and not synced may be on the disk or not, by itself, torn in the middle too; a length may be
the old or the new one; names that are not durable may be there or not, in their order. SQLite's own assumption, that a
sector is written as a whole or not at all, is not made.
"""

import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kernel_steps import calls_in

PAGE = 4096
_CALLS = "openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,rename,link"
_OPEN_FILE = re.compile(r"^\d+<([^>]*)>")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True)
class Call:
    """One call that changed something below the folder; `say` is what the program wrote to its standard output."""

    kind: str  # create, write, sync, sync_dir, truncate, unlink, rename, link, say
    path: str = ""
    target: str = ""
    offset: int = 0
    content: bytes = b""


def record(words: Sequence[str], folder: Path, *, cwd: Path) -> list[Call]:
    """Run Python with `words` and return what it did to files in `folder`, and what it said, in that order."""
    log = folder.with_name(f"{folder.name}.strace")
    command = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={_CALLS}", "-o", str(log), sys.executable]
    done = subprocess.run([*command, "-B", *words], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [call for line in calls_in(log) for call in _call(*line, folder)]


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _call(call: str, rest: str, folder: Path) -> Iterator[Call]:
    arguments, _, result = rest.rpartition(" = ")
    if result.startswith("-1"):
        return
    texts = [_plain(text) for text in _BYTES.findall(arguments)]
    opened = _OPEN_FILE.match(arguments)
    path = Path(opened[1].replace("\\x", "") if opened else "/")
    if opened:
        path = Path(_plain(opened[1]).decode() if "\\x" in opened[1] else opened[1])
    if call == "write" and arguments.startswith("1<"):
        yield Call("say", content=texts[0])
    elif call == "openat" and "O_CREAT" in arguments and (one := Path(texts[0].decode())).parent == folder:
        yield Call("create", one.name)
    elif opened and path == folder and call in ("fsync", "fdatasync"):
        yield Call("sync_dir")
    elif opened and path.parent == folder:
        yield from _on_file(call, path.name, arguments, texts)
    elif call in ("unlink", "rename", "link") and (one := Path(texts[0].decode())).parent == folder:
        yield Call(call, one.name, Path(texts[-1].decode()).name)


def _on_file(call: str, name: str, arguments: str, texts: list[bytes]) -> Iterator[Call]:
    last = arguments.rstrip(") ").rpartition(", ")[2]
    if call == "pwrite64":
        yield Call("write", name, offset=int(last, 0), content=texts[0])
    elif call == "ftruncate":
        yield Call("truncate", name, offset=int(last, 0))
    elif call in ("fsync", "fdatasync"):
        yield Call("sync", name)
    else:
        raise AssertionError(f"a call that the model does not know: {call}({arguments[:80]}")


@dataclass
class _File:
    durable: bytes = b""
    cached: bytes = b""
    pieces: list[tuple[int, bytes]] = field(default_factory=list)  # written since the last sync, cut at pages

    def write(self, offset: int, content: bytes) -> None:
        self.cached = _written(self.cached, offset, content)
        while content:
            length = PAGE - offset % PAGE
            self.pieces.append((offset, content[:length]))
            offset, content = offset + length, content[length:]

    def truncate(self, length: int) -> None:
        self.cached = self.cached[:length].ljust(length, b"\0")
        self.pieces.append((-1 - length, b""))

    def sync(self) -> None:
        self.durable, self.pieces = self.cached, []

    def after_cut(self, dice: random.Random, share: float) -> bytes:
        content = self.durable
        for offset, piece in self.pieces:
            if dice.random() < share:
                if offset < 0:
                    content = content[: -1 - offset].ljust(-1 - offset, b"\0")
                else:
                    content = _written(content, offset, piece if dice.random() < 0.9 else piece[: len(piece) // 2])
        return content


def _written(old: bytes, offset: int, content: bytes) -> bytes:
    old = old.ljust(offset, b"\0")
    return old[:offset] + content + old[offset + len(content) :]


class CutDisk:
    """A folder whose power can be cut after each recorded call."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._pending: list[tuple[tuple[str, _File | None], ...]] = []

    def apply(self, call: Call) -> None:
        """Do what was done."""
        if call.kind == "create" and call.path not in self._names:
            self._change((call.path, _File()))
        elif call.kind == "unlink":
            self._change((call.path, None))
        elif call.kind == "rename":
            self._change((call.path, None), (call.target, self._names[call.path]))
        elif call.kind == "link":
            self._change((call.target, self._names[call.path]))
        elif call.kind == "sync_dir":
            self._durable, self._pending = dict(self._names), []
        elif call.kind == "write":
            self._names[call.path].write(call.offset, call.content)
        elif call.kind == "truncate":
            self._names[call.path].truncate(call.offset)
        elif call.kind == "sync":
            self._names[call.path].sync()

    def _change(self, *names: tuple[str, _File | None]) -> None:
        self._pending.append(names)
        _renamed(self._names, names)

    def killed(self) -> dict[str, bytes]:
        """Return what the folder holds when the process is killed now, and the machine runs on."""
        return {name: file.cached for name, file in self._names.items()}

    def states(self, dice: random.Random, most: int) -> Iterator[dict[str, bytes]]:
        """Yield what the disk may hold if the power goes now: nothing, all, and samples of what is not durable."""
        seen: set[tuple[tuple[str, bytes], ...]] = set()
        for number in range(most):
            share = (0.0, 1.0, 0.5, 0.2, 0.8)[number % 5]
            names = dict(self._durable)
            kept = len(self._pending) if share == 1.0 else dice.randint(0, len(self._pending)) if share else 0
            for change in self._pending[:kept]:
                _renamed(names, change)
            state = {name: file.after_cut(dice, share if share != 1.0 else 2.0) for name, file in names.items()}
            key = tuple(sorted(state.items()))
            if key not in seen:
                seen.add(key)
                yield state


def _renamed(names: dict[str, _File], change: tuple[tuple[str, _File | None], ...]) -> None:
    for name, file in change:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
