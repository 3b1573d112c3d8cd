"""Makes the compiled kernels that the package ships: `python -m tools.compile`, `make kernels`.

See docs/adr/0008 for which GPUs get a cubin, and by which compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from edge.engine.cuda.kernels import FOLDER, INDEX, SOURCE, TARGETS
from edge.errors import EngineError, MissingDependencyError

__all__ = ["Nvrtc", "find_nvrtc", "made_files", "options_of"]


class Nvrtc:
    """One NVRTC library.

    Args:
        path: of `libnvrtc.so`, as in the wheel `nvidia-cuda-nvrtc-cu11`.

    Raises:
        OSError: if it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, options: Sequence[str], *, is_ptx: bool) -> bytes:
        """Return the cubin, or the PTX text, of CUDA C++. Raises `EngineError` with the compiler's own words."""
        program = ctypes.c_void_p()
        text, name = source.encode(), b"kernels.cu"
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None))
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            # The compiler leaves the locale "C" to the thread that asked it, which then reads text as ASCII.
            with ThreadPoolExecutor(1) as thread:
                code = thread.submit(self._library.nvrtcCompileProgram, program, len(options), words).result()
            if code != 0:
                raise EngineError(f"NVRTC {self.version} refuses kernels.cu:\n{self._text(program, 'ProgramLog')}")
            return self._bytes(program, "PTX" if is_ptx else "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        content = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, content))
        return content.raw

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._bytes(program, what).rstrip(b"\0\n").decode("utf-8", "replace")

    def _check(self, code: int) -> None:
        if code != 0:
            raise EngineError(f"NVRTC: {self._library.nvrtcGetErrorString(code).decode()}")


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
    """Raises `MissingDependencyError` if it is not installed."""
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
