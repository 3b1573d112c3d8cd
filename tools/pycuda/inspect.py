"""What a wheel of pycuda asks of the machine that it is installed on, and whether a Jetson has it."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection, DynamicTag
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from tools.pycuda.recipe import Python

__all__ = ["Library", "driver_functions", "faults", "faults_of_library", "libraries"]

_DRIVER = "libcuda.so.1"
_GIVEN = {_DRIVER, "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"}
_FUNCTION = re.compile(r"cu[A-Z]\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A shared object: its machine, the libraries and versions that it asks for, its own search path, its names."""

    name: str
    machine: str
    needed: frozenset[str]
    paths: frozenset[str]
    versions: frozenset[str]
    undefined: frozenset[str]
    defined: frozenset[str]


def faults(wheel: Path, source: Path, python: Python) -> list[str]:
    """Return what is wrong with a wheel that was built of `source`; nothing, if a device with `python` can load it."""
    expected = f"-{python.tag}-{python.tag}-linux_aarch64.whl"
    found = [] if wheel.name.endswith(expected) else [f"its name does not end with {expected}"]
    found += [f"{name} is not of pycuda's source" for name in _strangers(wheel, source)]
    inside = list(libraries(wheel))
    if not any(_DRIVER in library.needed for library in inside):
        found.append(f"nothing in it asks for {_DRIVER}")
    return found + [fault for library in inside for fault in faults_of_library(library, python)]


def driver_functions(wheel: Path) -> set[str]:
    """Return what it expects of the driver library."""
    return {name for library in libraries(wheel) for name in library.undefined if _FUNCTION.fullmatch(name)}


def libraries(wheel: Path) -> Iterator[Library]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".so" in Path(name).suffixes:
                yield _read(name, archive.read(name))


def faults_of_library(library: Library, python: Python) -> Iterator[str]:
    """Yield what keeps a shared object from being loaded on a device with `python`, or from being handed on."""
    if library.machine != "EM_AARCH64":
        yield f"{library.name} is for {library.machine}"
    if strange := library.needed - _GIVEN:
        yield f"{library.name} asks for {', '.join(sorted(strange))}, which a device need not have"
    if library.paths:
        yield f"{library.name} looks for libraries in {', '.join(sorted(library.paths))}"
    limits = {"GLIBC": python.glibc, "GLIBCXX": python.glibcxx}
    for version in sorted(library.versions):
        family, _, number = version.partition("_")
        if family in limits and tuple(map(int, number.split("."))) > limits[family]:
            yield f"{library.name} asks for {version}, newer than the device's"
    if own := sorted(name for name in library.defined if _FUNCTION.fullmatch(name)):
        yield f"{library.name} holds functions of the driver: {', '.join(own[:3])}"


def _strangers(wheel: Path, source: Path) -> list[str]:
    """Return the files that are neither compiled from pycuda's source nor byte for byte in it."""
    with tarfile.open(source) as archive, zipfile.ZipFile(wheel) as built:
        known = {}
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                known[member.name.partition("/")[2]] = file.read()
        names = [name for name in built.namelist() if not name.endswith("/") and ".dist-info/" not in name]
        compiled = re.compile(r"pycuda/(_driver|_pvt_struct)\.cpython-\d+-aarch64-linux-gnu\.so")
        return [name for name in names if not compiled.fullmatch(name) and known.get(name) != built.read(name)]


def _texts(tags: Iterable[DynamicTag], kind: str) -> frozenset[str]:
    return frozenset(getattr(tag, kind) for tag in tags if tag.entry.d_tag == f"DT_{kind.upper()}")


def _read(name: str, content: bytes) -> Library:
    elf = ELFFile(io.BytesIO(content))
    tags = [tag for one in elf.iter_sections() if isinstance(one, DynamicSection) for tag in one.iter_tags()]
    needs = [one for one in elf.iter_sections() if isinstance(one, GNUVerNeedSection)]
    symbols = elf.get_section_by_name(".dynsym")
    names = list(symbols.iter_symbols()) if isinstance(symbols, SymbolTableSection) else []
    return Library(
        name=name,
        machine=elf["e_machine"],
        needed=_texts(tags, "needed"),
        paths=_texts(tags, "rpath") | _texts(tags, "runpath"),
        versions=frozenset(one.name for need in needs for _, ones in need.iter_versions() for one in ones),
        undefined=frozenset(one.name for one in names if one["st_shndx"] == "SHN_UNDEF"),
        defined=frozenset(one.name for one in names if one["st_shndx"] != "SHN_UNDEF"),
    )
