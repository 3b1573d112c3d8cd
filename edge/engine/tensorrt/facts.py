"""Facts of the GPU engine before TensorRT is loaded: whether it can run here, and if not, what to do."""

from __future__ import annotations

from collections.abc import Mapping

from edge.engine.kinds import KindFacts
from edge.engine.tensorrt.machine import ThisMachine, read_machine
from edge.engine.tensorrt.probe import probe

__all__ = ["FACTS", "why_not"]

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
