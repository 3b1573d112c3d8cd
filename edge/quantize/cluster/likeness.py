"""What the machines of a cluster have to have in common, so that it does not matter which of them did what.

Versions, because arithmetic and formats change with them; the code of edge-deploy itself, because a version is not told
apart from what was changed in it; the processor with its instructions, because sums in another order differ in their
last bits (docs/adr/0042). Asked of each worker, and of the machine that asks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import edge
from edge.engine.kinds import facts_of_kind
from edge.version import __version__

__all__ = ["CODE", "PROCESSOR", "differences", "likeness_here"]

CODE = ("edge-deploy", "its code", "Python")
PROCESSOR = ("processor", "instructions", "limits on them")
_DIGITS = 12
_DISTRIBUTIONS = ("numpy", "onnx", "msgspec")
_OPENCV = ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
_MODEL = ("vendor_id", "cpu family", "model", "model name", "CPU implementer", "CPU part", "CPU variant")
_VECTOR = ("sse", "ssse", "avx", "amx", "fma", "f16c", "gfni", "asimd", "sve", "i8mm", "bf16", "fp16", "sme")
_LIMITS = ("ONEDNN_", "DNNL_", "NPY_DISABLE_CPU", "NPY_ENABLE_CPU", "OPENCV_CPU_DISABLE", "OPENCV_IPP")


def likeness_here(kinds: Sequence[str]) -> dict[str, str]:
    """Return what has to be equal on all machines, by name; `kinds` are those of the engines."""
    found = {
        "edge-deploy": __version__,
        "its code": _code(),
        "Python": f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}",
        "OpenCV": next((version for name in _OPENCV if (version := _version(name))), "not installed"),
    }
    found |= {name: _version(name) or "not installed" for name in _DISTRIBUTIONS}
    for kind in kinds:
        found |= facts_of_kind(kind).versions()
    return found | dict(zip(PROCESSOR, _processor(), strict=True))


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Return in words what is not equal, by name."""
    return {
        name: _told(name, here.get(name, "nothing"), there.get(name, "nothing"))
        for name in dict.fromkeys((*here, *there))
        if here.get(name) != there.get(name)
    }


def _told(name: str, here: str, there: str) -> str:
    if len(here) + len(there) < 100:
        return f"{name} {there} there, {here} here"
    mine, theirs = set(here.split()), set(there.split())
    parts = [
        f"{' '.join(sorted(more))} {where} only"
        for more, where in ((theirs - mine, "there"), (mine - theirs, "here"))
        if more
    ]
    return f"{name}: {', '.join(parts)}"


@functools.cache
def _code() -> str:
    """Return a digest of the files of this package."""
    digest, folder = hashlib.sha256(), Path(edge.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:_DIGITS]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> tuple[str, str, str]:
    known = dict(_cpuinfo())
    model = " ".join(known[name] for name in _MODEL if name in known) or platform.processor() or "unknown"
    instructions = known.get("flags", known.get("Features", "unknown")).split()
    limits = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(_LIMITS))
    return (
        f"{platform.machine()} {model}",
        " ".join(sorted(one for one in instructions if one.startswith(_VECTOR))),
        " ".join(limits) or "none",
    )


def _cpuinfo() -> Iterator[tuple[str, str]]:
    """Yield what Linux says of the first core."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        yield name.strip(), value.strip()
