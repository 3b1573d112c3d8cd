"""What a process did to the files of one folder, as the kernel saw it: strace, read in the words of `Files`."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
