"""Another local user: a process with another uid, which it cannot give back, and folders that it can reach."""

import grp
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAME, GROUP = "nobody", "nogroup"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to be two users at once")

_BECOME = "import os\nos.setgroups([])\nos.setresgid({gid}, {gid}, {gid})\nos.setresuid({uid}, {uid}, {uid})\n"
_EXCHANGE = """
import ctypes, os, sys
change = ctypes.CDLL(None, use_errno=True).renameat2
one, other = (os.fsencode(path) for path in sys.argv[1:])
print("begun", flush=True)
while True:
    change(-100, one, -100, other, 2)  # AT_FDCWD, RENAME_EXCHANGE: there is no moment in which a name is missing
"""


def ids() -> tuple[int, int]:
    """Return uid and gid of the other user."""
    return pwd.getpwnam(NAME).pw_uid, grp.getgrnam(GROUP).gr_gid


def start_as_other(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python program as the other user; it has stdin and stdout."""
    uid, gid = ids()
    whole = _BECOME.format(uid=uid, gid=gid) + program
    return subprocess.Popen(
        [sys.executable, "-I", "-c", whole, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        text=True,
    )


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Let the other user exchange two names without a pause within the block."""
    process = start_as_other(_EXCHANGE, one, other)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Give a folder that every local user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="edge-shared-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # however deep it is
