"""A machine whose cores are all taken."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Let so many processes do nothing but count."""
    command = [sys.executable, "-c", "while True: pass"]
    counting = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for one in counting:
            one.kill()
            one.wait()
