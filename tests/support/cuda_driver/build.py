"""Compiles the stand-in for the driver library and the real pycuda: `python -m tests.support.cuda_driver`.

pycuda exists as a source distribution only. Of NVIDIA's it needs two headers, which are on the package index. All of it
lies in `.cache/cuda`, which git ignores, and is made again when what it is made of has changed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILT = ROOT / ".cache" / "cuda"
KERNELS = ROOT / "edge" / "engine" / "cuda" / "kernels.cu"

PYCUDA = "pycuda==2026.1"
HEADERS = ("nvidia-cuda-runtime-cu12==12.6.77", "nvidia-cuda-profiler-api-cu12==12.6.77")
COMPILE = ("g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas", "-Wl,-soname,libcuda.so.1")
CONFIGURATION = """
CUDA_INC_DIR = [{include!r}]
CUDA_ENABLE_GL = False
CUDA_ENABLE_CURAND = False
CUDADRV_LIB_DIR = [{library!r}]
CUDADRV_LIBNAME = ["cuda"]
CXXFLAGS = ["-O0"]
"""
# At the end of a file that pycuda's setup.py imports: distutils compiles one file after the other.
TWO_AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from distutils.ccompiler import CCompiler


def compile_two_at_once(
    self,
    sources,
    output_dir=None,
    macros=None,
    include_dirs=None,
    debug=0,
    extra_preargs=None,
    extra_postargs=None,
    depends=None,
):
    given = (output_dir, macros, include_dirs, sources, depends, extra_postargs)
    _, objects, after, options, build = self._setup_compile(*given)
    words = self._get_cc_args(options, debug, extra_preargs)
    with ThreadPoolExecutor(2) as compilers:
        list(compilers.map(lambda one: self._compile(one, *build[one], words, after, options), build))
    return objects


CCompiler.compile = compile_two_at_once
"""


def driver_library() -> Path:
    """Return the stand-in, compiled if it is not."""
    sources = sorted(path for path in HERE.iterdir() if path.suffix in (".cpp", ".h"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, KERNELS))).hexdigest()[:16]
    library = BUILT / f"driver-{digest}" / "libcuda.so.1"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_name(f"made-{os.getpid()}")
        _run([*COMPILE, "-o", str(made), *(str(path) for path in sources if path.suffix == ".cpp"), "-lpthread"])
        made.rename(library)
    return library


def pycuda_folder() -> Path:
    """Return the folder that pycuda is imported from, compiled for this Python if it is not: some minutes."""
    version = PYCUDA.partition("==")[2]
    folder = BUILT / f"pycuda-{version}-{sys.implementation.cache_tag}"
    if not folder.exists():
        print(f"setup: compiling {PYCUDA} for the tests, once; some minutes", file=sys.stderr)
        with tempfile.TemporaryDirectory() as scratch:
            made = _compiled(Path(scratch))
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(made, folder)
    return folder


def _compiled(scratch: Path) -> Path:
    include, libraries = scratch / "include", scratch / "lib"
    libraries.mkdir()
    shutil.copy(driver_library(), libraries / "libcuda.so")
    _pip("download", "--no-deps", "--dest", str(scratch / "wheels"), *HEADERS)
    for wheel in (scratch / "wheels").glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(scratch / "headers")
    for folder in (scratch / "headers").glob("nvidia/*/include"):
        shutil.copytree(folder, include, dirs_exist_ok=True)
    _pip("download", "--no-deps", "--no-binary", "pycuda", "--dest", str(scratch / "source"), PYCUDA)
    (archive,) = (scratch / "source").glob("pycuda-*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(scratch)  # what pip has checked
    (source,) = scratch.glob("pycuda-*")
    configuration = CONFIGURATION.format(include=str(include), library=str(libraries))
    (source / "siteconf.py").write_text(configuration, encoding="utf-8")
    with (source / "aksetup_helper.py").open("a", encoding="utf-8") as helper:
        helper.write(TWO_AT_ONCE)
    # It refers to calls that nobody here makes, and that the stand-in has not.
    _pip("install", "--no-deps", "--target", str(scratch / "made"), str(source), LDFLAGS="-Wl,-z,lazy")
    return scratch / "made"


def _pip(*words: str, **environment: str) -> None:
    _run([sys.executable, "-m", "pip", "--disable-pip-version-check", words[0], "--quiet", *words[1:]], **environment)


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:6])} ... failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
