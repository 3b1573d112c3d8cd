"""What a process did to files, as the kernel saw it (strace); and what its disk holds after a power cut."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Step = tuple[
    str, ...
]  # ("write" | "sync" | "symlink" | "make_dir" | "remove" | "remove_dir", path), ("rename", from, to)

_CALLS = "openat,write,pwrite64,fallocate,fsync,fdatasync,rename,renameat,renameat2,symlink,symlinkat,mkdir,mkdirat,"
_CALLS += "unlink,unlinkat,rmdir,link,linkat,truncate,ftruncate"
_LINE = re.compile(r"^(?P<thread>\d+) +(?P<call>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<thread>\d+) +<\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)$")
_PADDED = re.compile(r"\) {2,}= ")  # short lines, as those of calls that were resumed, are filled with blanks
_TEXT = re.compile(r'"([^"]*)"')
_OPEN_FILE = re.compile(r"^\d+<([^>]*)>")
_NAMED = {
    "symlink": "symlink",
    "symlinkat": "symlink",
    "mkdir": "make_dir",
    "mkdirat": "make_dir",
    "rmdir": "remove_dir",
}
_FILLED = ("write", "pwrite64", "fallocate", "ftruncate")


def why_not() -> str | None:
    """Return why no process can be traced here; None if one can."""
    try:
        done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return "strace is not installed"
    return None if done.returncode == 0 else f"strace cannot trace here: {done.stderr.strip()}"


def traced(words: Sequence[str], *, log: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with `words`; what it and its threads asked of the kernel is in `log`."""
    command = ["strace", "-f", "-y", "-s", "0", "-e", f"trace={_CALLS}", "-o", str(log), sys.executable, "-B", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def kernel_steps(log: Path, root: Path) -> list[Step]:
    """Return what was done below `root` and did not fail, in its order; paths are relative to it."""
    return without_repeats(_below(step, root) for step in _steps(log) if _is_below(step, root))


def without_repeats(steps: Iterator[Step]) -> list[Step]:
    """Return the steps; one `write` for several in a row to one file, which no power cut tells apart from one."""
    found: list[Step] = []
    for step in steps:
        if step[0] != "write" or found[-1:] != [step]:
            found.append(step)
    return found


def _steps(log: Path) -> Iterator[Step]:
    for call, rest in calls_in(log):
        arguments, _, result = _PADDED.sub(") = ", rest).rpartition(") = ")
        if result.startswith("-1") or not arguments:
            continue
        yield from _step(call, arguments)


def _step(call: str, arguments: str) -> Iterator[Step]:
    paths, opened = _TEXT.findall(arguments), _OPEN_FILE.match(arguments)
    if call == "openat":
        if re.search(r"O_WRONLY|O_RDWR", arguments):
            yield ("write", paths[0])
    elif call in ("fsync", "fdatasync") and opened:
        yield ("sync", opened[1])
    elif call in _FILLED and opened:
        yield ("write", opened[1])
    elif call.startswith("rename"):
        yield ("rename", paths[0], paths[1])
    elif call.startswith("unlink"):
        yield ("remove_dir" if "AT_REMOVEDIR" in arguments else "remove", paths[0])
    elif call in _NAMED:
        yield (_NAMED[call], paths[-1])
    elif call.startswith(("link", "truncate")):
        yield (call, *paths)  # nothing of ours does this; it would be seen here


def calls_in(log: Path) -> Iterator[tuple[str, str]]:
    """Yield the calls in the order in which they ended; one that another thread interrupted is put together again."""
    begun: dict[str, str] = {}
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if resumed := _RESUMED.match(line):
            yield resumed["call"], begun.pop(resumed["thread"], "") + resumed["rest"].lstrip()
        elif match := _LINE.match(line):
            if match["rest"].endswith("<unfinished ...>"):
                begun[match["thread"]] = match["rest"].removesuffix("<unfinished ...>")
            else:
                yield match["call"], match["rest"]


def _is_below(step: Step, root: Path) -> bool:
    return any(Path(path).is_relative_to(root) for path in step[1:])


def _below(step: Step, root: Path) -> Step:
    return (step[0], *(str(Path(path).relative_to(root)) for path in step[1:]))


PAGE = 4096
_ASKED = "openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,rename,link"
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
    command = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={_ASKED}", "-o", str(log), sys.executable]
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
