"""What a wheel is made from, each thing with its version and digest, and what its device has."""

from __future__ import annotations

from dataclasses import dataclass

from edge.deploy.provision.facts import PYCUDA_SOURCE_SHA256, PYCUDA_VERSION

__all__ = ["CUDA_HEADERS", "DEBIAN", "PYCUDA", "PYCUDA_NEEDS", "PYTHONS", "Python", "Source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file on the network; what comes is used only if its SHA-256 is this one."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """A JetPack's Python: its source, and the newest symbols that the C and C++ libraries beside it have."""

    tag: str
    version: str
    source: Source
    glibc: tuple[int, ...]
    glibcxx: tuple[int, ...]

    @property
    def series(self) -> str:
        """Major and minor version."""
        return ".".join(self.version.split(".")[:2])


# From Ubuntu's archive, where JetPack's own Python comes from; the digests are also those of python.org's releases.
# Ubuntu for aarch64 itself is on other mirrors, which a workstation need not reach.
_POOL = "http://archive.ubuntu.com/ubuntu/pool/main/p"
PYTHONS = (
    Python(
        tag="cp310",
        version="3.10.12",
        source=Source(
            url=f"{_POOL}/python3.10/python3.10_3.10.12.orig.tar.xz",
            sha256="afb74bf19130e7a47d10312c8f5e784f24e0527981eab68e20546cfb865830b8",
        ),
        glibc=(2, 35),
        glibcxx=(3, 4, 30),
    ),
    Python(
        tag="cp312",
        version="3.12.3",
        source=Source(
            url=f"{_POOL}/python3.12/python3.12_3.12.3.orig.tar.xz",
            sha256="56bfef1fdfc1221ce6720e43a661e3eb41785dd914ce99698d8c7896af4bdaa1",
        ),
        glibc=(2, 39),
        glibcxx=(3, 4, 33),
    ),
)

PYCUDA = (f"pycuda=={PYCUDA_VERSION}", PYCUDA_SOURCE_SHA256)
"""On the package index, source only; and the SHA-256 of that."""

PYCUDA_NEEDS = ("mako", "platformdirs>=2.2.0", "pytools>=2011.2")
"""What it requires; provision holds the lock of wheels against the wheel's own words again."""

CUDA_HEADERS = (
    "nvidia-cuda-runtime-cu12==12.2.140",
    "nvidia-cuda-nvcc-cu12==12.2.140",
    "nvidia-cuda-profiler-api-cu12==12.2.140",
)
"""Headers only, of the oldest driver that a device may have (JetPack 6.0): newer drivers keep its functions."""

DEBIAN = "bookworm"
"""Of the root: its glibc is as old as JetPack 6's in all that pycuda uses, which is checked in the wheel."""
