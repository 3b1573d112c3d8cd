"""NVRTC, the compiler of kernels, through ctypes: it makes the files in `compiled` and needs no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edge.errors import EngineError

__all__ = ["Nvrtc"]


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
        """Return the cubin, or the PTX text, of CUDA C++.

        Raises:
            EngineError: with the compiler's own words.
        """
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
