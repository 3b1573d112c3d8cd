"""Threads that come and go do not each leave an arena of malloc behind: counted by glibc itself, in a process apart."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

THREADS = 12
COUNT = f"""
import ctypes, sys, threading
{{before}}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
barrier = threading.Barrier({THREADS})
def work():
    libc.malloc(100_000)
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range({THREADS})]
for one in threads: one.start()
for one in threads: one.join()
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w")))
libc.fflush(None)
"""


def arenas(folder: Path, before: str, **environ: str) -> int:
    said = folder / "malloc.xml"
    environ = {name: text for name, text in os.environ.items() if name != "MALLOC_ARENA_MAX"} | environ
    subprocess.run([sys.executable, "-c", COUNT.format(before=before), str(said)], env=environ, check=True)
    return said.read_text(encoding="ascii").count("<heap nr=")


@pytest.mark.skipif(not hasattr(os, "confstr") or "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="of glibc")
def test_all_threads_share_two_arenas_unless_the_environment_says_otherwise(tmp_path):
    limit = "from edge.cli.commands.run import limit_arenas; limit_arenas()"
    assert arenas(tmp_path, "") > 2
    assert arenas(tmp_path, limit) == 2
    assert arenas(tmp_path, limit, MALLOC_ARENA_MAX="4") == 4
