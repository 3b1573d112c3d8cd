"""Facts of the GPU engine before TensorRT is loaded: whether it can run here, and if not, what to do.

Whether driver, pycuda and TensorRT work, beyond being installed, is tried where a crash or a hang does no harm.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping

from edge.engine.kinds import KindFacts
from edge.engine.tensorrt.machine import ThisMachine, read_machine

__all__ = ["FACTS", "probe", "why_not"]

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


_MIB = 1024 * 1024
# TensorRT's own code by published logs of builds (1.1 to 1.8 GiB), the CUDA context and the workspace (options.py). By
# computation: the builder's copies of the model (float, requantized, by tactic), activations of tactics compared.
_REST_BYTES = 2304 * _MIB
_PER_MODEL_BYTE = 8
_PER_PIXEL_BYTES = 54  # of all images of a batch


def why_not(machine: ThisMachine) -> str | None:
    """Return what is missing on `machine`, with what to do; None: TensorRT can run there."""
    if not machine.nodes:
        if machine.is_jetson:
            return "the GPU's device files are not here: start the container with --runtime nvidia"
        return "this machine has no NVIDIA GPU (no /dev/nvidia0); TensorRT needs one, and its driver"
    if machine.closed_nodes:
        groups = ",".join(machine.missing_groups or ("video", "render"))
        node = machine.closed_nodes[0]
        return f"this user may not open {node}: sudo usermod -aG {groups} USER, then log in again"
    if machine.library is None:
        return _how_to_get(machine)
    return None


def _how_to_get(machine: ThisMachine) -> str:
    copies = machine.system_copies
    if any(copy.python in (machine.python, "3") for copy in copies):
        return (
            f"TensorRT {copies[0].version} of the system is hidden from this virtual environment: "
            "make it again with python3 -m venv --system-site-packages"
        )
    if copies:
        return (
            f"the system's TensorRT {copies[0].version} is for Python {copies[0].python}, this is {machine.python}: "
            f"make the virtual environment with /usr/bin/python{copies[0].python} (edge-deploy needs 3.10 or newer: "
            "JetPack 6 or 7)"
        )
    if machine.is_jetson:
        return "TensorRT is not installed: sudo apt install python3-libnvinfer (it is part of JetPack)"
    return "TensorRT is not installed: pip install tensorrt-cu12 (or, on a GeForce RTX, tensorrt-rtx)"


def _why_not() -> str | None:
    machine = read_machine()
    reason = why_not(machine)
    return reason if reason is not None or machine.library is None else probe(machine.library)


def _versions() -> Mapping[str, str]:
    machine = read_machine()
    library = machine.library or "tensorrt"
    version = machine.libraries.get(library, "not installed")
    return {
        library: version,
        **({"profiles": "shared"} if version.startswith("8.") else {}),  # plans without that are built again
        "architecture": machine.architecture,
        "gpu": machine.gpu or "none",
        **({} if machine.l4t is None else {"l4t": machine.l4t}),
    }


def _build_memory_bytes(model_bytes: int, pixels: int) -> int:
    return _REST_BYTES + _PER_MODEL_BYTE * model_bytes + _PER_PIXEL_BYTES * pixels


FACTS = KindFacts(
    name="tensorrt",
    rank=10,
    why_not=_why_not,
    versions=_versions,
    build_memory_bytes=_build_memory_bytes,
    is_quick=False,
    is_symmetric=True,
)
