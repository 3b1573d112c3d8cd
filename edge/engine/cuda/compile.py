"""Makes the compiled kernels that the package ships: `python -m edge.engine.cuda.compile`, `make kernels`.

See docs/adr/0014 for which GPUs get a cubin, and by which compiler.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from edge.engine.cuda.images import FOLDER, INDEX, SOURCE, TARGETS
from edge.engine.cuda.nvrtc import Nvrtc
from edge.errors import MissingDependencyError

__all__ = ["find_nvrtc", "made_files", "options_of"]

_PACKAGE = {"11": "nvidia-cuda-nvrtc-cu11", "12": "nvidia-cuda-nvrtc-cu12"}


def options_of(target: str) -> tuple[str, ...]:
    """Return NVRTC's options for a target such as `sm_87` (a cubin) or `compute_80` (PTX)."""
    return (f"--gpu-architecture={target}", "--std=c++14", "--fmad=false")


def made_files(nvrtc: Nvrtc) -> Mapping[str, bytes]:
    """Return everything that belongs into `compiled`, by file name."""
    source = SOURCE.read_text(encoding="utf-8")
    files = {
        name: nvrtc.compile(source, options_of(target), is_ptx=name.endswith(".ptx"))
        for target, name in TARGETS.items()
    }
    index = {
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "compiler": f"NVRTC {nvrtc.version}",
        "files": {
            name: {"options": list(options_of(target)), "sha256": hashlib.sha256(files[name]).hexdigest()}
            for target, name in TARGETS.items()
        },
    }
    return {**files, INDEX.name: (json.dumps(index, indent=1) + "\n").encode()}


def find_nvrtc(major: str = "11") -> Path:
    """Return where the NVRTC of CUDA `major` lies.

    Raises:
        MissingDependencyError: if it is not installed.
    """
    spec = find_spec("nvidia")
    folders = [] if spec is None else [Path(path) for path in spec.submodule_search_locations or ()]
    found = [path for folder in folders for path in folder.glob(f"cuda_nvrtc*/lib/libnvrtc.so.{major}*")]
    if not found:
        raise MissingDependencyError(f"NVRTC of CUDA {major} is not installed", hint=f"pip install {_PACKAGE[major]}")
    return found[0]


def _main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, content in made_files(Nvrtc(find_nvrtc())).items():
        (FOLDER / name).write_bytes(content)
        sys.stderr.write(f"{name}: {len(content)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
