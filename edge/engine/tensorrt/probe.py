"""Whether driver, pycuda and TensorRT work here, beyond being installed: tried where a crash or a hang does no harm."""

from __future__ import annotations

import functools
import subprocess
import sys

__all__ = ["probe"]

# The driver first: it is what everything else crashes without.
_PROGRAM = """
import ctypes, importlib, sys
code = ctypes.CDLL("libcuda.so.1").cuInit(0)
if code:
    sys.exit(f"the CUDA driver gives no GPU (cuInit returns {code}); nvidia-smi tells more")
try:
    import pycuda.driver
except Exception:
    pass  # the driver is then called without it
importlib.import_module(sys.argv[1]).__version__
"""
_ENOUGH_S = 60.0  # importing TensorRT from a cold SD card takes ten


@functools.cache
def probe(library: str) -> str | None:
    """Return what goes wrong when `library`, an import name, is used here; None: nothing does. Asked once a process."""
    is_isolated = ["-I"] if sys.flags.isolated else []  # a child does not inherit that
    command = [sys.executable, *is_isolated, "-c", _PROGRAM, library]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_ENOUGH_S, check=False)
    except subprocess.TimeoutExpired:
        return f"driver, pycuda and {library} could not be loaded within {_ENOUGH_S:g} s"
    except OSError as error:
        return f"{library} could not be tried: {error}"
    if done.returncode == 0:
        return None
    told = done.stderr.strip().splitlines()[-1:] or [f"the process that tried ended with {done.returncode}"]
    return f"{library} is installed, and does not work: {told[0]}"
