"""One wheel, step by step: interpreter, environment, stand-in driver, build, proof."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.pycuda.gather import build_wheels, cuda_headers, pycuda_source, python_source
from tools.pycuda.inspect import driver_functions, faults
from tools.pycuda.recipe import Python
from tools.pycuda.root import GCC, GXX, MakeError, Root

__all__ = ["make_wheel"]

_HERE = Path(__file__).parent
_PLATFORM = ("--build=aarch64-linux-gnu", "--host=aarch64-linux-gnu")  # runs as if it were one, by emulation
_COMPILERS = {"CC": GCC, "CXX": GXX, "LDSHARED": f"{GXX} -shared", "AR": "aarch64-linux-gnu-ar"}
# Without curand, for which the device would need another library of CUDA's; nothing of ours draws random numbers.
_OPTIONS = """CUDA_ROOT = "/cuda"
CUDADRV_LIB_DIR = ["/cuda/lib"]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O2", "-g0"]
LDFLAGS = ["-s"]
"""
_IMPORT = """
import sys
try:
    import pycuda.driver as driver
    driver.init()
except Exception as error:
    sys.exit(0 if sys.argv[1] in str(error) else repr(error))
sys.exit("initialised, without a GPU")
"""


def make_wheel(python: Python, root: Root, downloads: Path, target: Path) -> Path:
    """Build pycuda for `python`, prove the wheel, put it into `target`; return it.
    Raises MakeError if a step fails, or the wheel is not what a device can load.
    """
    _interpreter(python, root, downloads)
    environment = _environment(python, root, downloads)
    _driver(root, downloads)
    source = pycuda_source(downloads)
    wheel = _build(python, root, environment, source)
    if found := faults(wheel, source, python):
        raise MakeError(f"{wheel.name} is not fit for a device: {'; '.join(found)}")
    _prove(root, environment, wheel)
    target.mkdir(parents=True, exist_ok=True)
    partial = target / f".{wheel.name}.partial"
    shutil.copyfile(wheel, partial)
    return partial.rename(target / wheel.name)


def _interpreter(python: Python, root: Root, downloads: Path) -> None:
    prefix, source = f"/opt/python{python.series}", f"/src/Python-{python.version}"
    if (root.path / prefix[1:] / ".complete").is_file():
        return
    archive = python_source(python, downloads)
    shutil.rmtree(root.path / source[1:], ignore_errors=True)
    shutil.unpack_archive(archive, root.path / "src")
    quick = "OPT=-DNDEBUG -O1 -g0 -Wall"
    compilers = [f"{name}={value}" for name, value in _COMPILERS.items() if name != "LDSHARED"]
    configure = ["./configure", "-q", f"--prefix={prefix}", "--without-ensurepip", *_PLATFORM, *compilers, quick]
    root.run(configure, folder=source)
    root.run(["make", "-s", "-j2"], folder=source)
    # Installing compiles each module three times, emulated: without these it takes a third of the time.
    for unused in ("test", "idlelib", "lib2to3", "tkinter", "turtledemo", "distutils/tests", "unittest/test"):
        shutil.rmtree(root.path / source[1:] / "Lib" / unused, ignore_errors=True)
    root.run(["make", "-s", "install"], folder=source)
    (root.path / prefix[1:] / ".complete").touch()


def _environment(python: Python, root: Root, downloads: Path) -> str:
    """Return the interpreter of an environment that can build pycuda, and import it."""
    home, wheels = f"/venv/{python.tag}", f"/wheels/{python.tag}"
    if not (root.path / home[1:] / ".complete").is_file():
        shutil.rmtree(root.path / home[1:], ignore_errors=True)
        shutil.copytree(build_wheels(python, downloads), root.path / wheels[1:], dirs_exist_ok=True)
        pip = next((root.path / wheels[1:]).glob("pip-*.whl")).name
        root.run([f"/opt/python{python.series}/bin/python{python.series}", "-m", "venv", "--without-pip", home])
        install = ["install", "-q", "--no-index", "--no-compile", "--find-links", wheels]
        names = ("pip", "setuptools", "wheel", "numpy", "pytools", "platformdirs", "mako")
        root.run([f"{home}/bin/python", f"{wheels}/{pip}/pip", *install, *names])
        (root.path / home[1:] / ".complete").touch()
    return f"{home}/bin/python"


def _driver(root: Root, downloads: Path) -> None:
    cuda_headers(downloads, root.path / "cuda/include")
    (root.path / "cuda/lib").mkdir(parents=True, exist_ok=True)
    shutil.copy(_HERE / "driver.c", root.path / "cuda/driver.c")
    root.run(_library("/cuda/driver.c", "/cuda/lib/libcuda.so"))


def _library(source: str, target: str) -> list[str]:
    return [GCC, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", target, source]


def _build(python: Python, root: Root, environment: str, source: Path) -> Path:
    folder, out = f"/src/{source.name.removesuffix('.tar.gz')}", f"/out/{python.tag}"
    for old in (folder, out):
        shutil.rmtree(root.path / old[1:], ignore_errors=True)
    shutil.unpack_archive(source, root.path / "src")
    (root.path / folder[1:] / "siteconf.py").write_text(_OPTIONS)
    # The same source gives the same wheel: without this it carries the time of its build.
    settings = {**_COMPILERS, "SOURCE_DATE_EPOCH": "315532800"}
    build = ["pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", out, "."]
    root.run([environment, "-m", *build], folder=folder, environment=settings)
    return next((root.path / out[1:]).glob("pycuda-*.whl"))


def _prove(root: Root, environment: str, wheel: Path) -> None:
    """Import it emulated: without a driver it asks for one; beside a stand-in it finds all names, and no device."""
    inside = f"/{wheel.relative_to(root.path)}"
    root.run([environment, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--force-reinstall", inside])
    root.run([environment, "-c", _IMPORT, "libcuda.so.1: cannot open shared object file"])
    driver = (_HERE / "driver.c").read_text()
    others = sorted(name for name in driver_functions(wheel) if f"int {name}(" not in driver)
    (root.path / "cuda/whole").mkdir(exist_ok=True)
    (root.path / "cuda/whole.c").write_text(
        driver + "".join(f"int {name}(void) {{ return 100; }}\n" for name in others)
    )
    root.run(_library("/cuda/whole.c", "/cuda/whole/libcuda.so.1"))
    settings = {"LD_LIBRARY_PATH": "/cuda/whole", "LD_BIND_NOW": "1"}
    root.run([environment, "-c", _IMPORT, "cuInit failed: this is a stand-in without a device"], environment=settings)
