"""What makes a wheel of pycuda unfit for a Jetson is seen before anybody installs it."""

import dataclasses
import importlib.util
import tarfile
import zipfile

import pytest

from tools.pycuda.inspect import Library, driver_functions, faults, faults_of_library, libraries
from tools.pycuda.recipe import PYTHONS

CP310, CP312 = PYTHONS
# As readelf shows it of a wheel that was made.
GOOD = Library(
    name="pycuda/_driver.cpython-310-aarch64-linux-gnu.so",
    machine="EM_AARCH64",
    needed=frozenset({"libcuda.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"}),
    paths=frozenset(),
    versions=frozenset({"GLIBC_2.17", "GLIBC_2.34", "GLIBCXX_3.4.29", "CXXABI_1.3.9"}),
    undefined=frozenset({"cuInit", "PyLong_FromLong"}),
    defined=frozenset({"PyInit__driver"}),
)


def test_a_library_that_a_jetson_can_load_has_no_faults():
    assert list(faults_of_library(GOOD, CP310)) == []
    assert list(faults_of_library(GOOD, CP312)) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"machine": "EM_X86_64"}, "is for EM_X86_64"),
        ({"needed": GOOD.needed | {"libcurand.so.10"}}, "asks for libcurand.so.10"),
        ({"paths": frozenset({"/cuda/lib"})}, "looks for libraries in /cuda/lib"),
        ({"versions": frozenset({"GLIBC_2.36"})}, "GLIBC_2.36, newer"),
        ({"versions": frozenset({"GLIBCXX_3.4.31"})}, "GLIBCXX_3.4.31, newer"),
        ({"defined": frozenset({"cuInit"})}, "functions of the driver: cuInit"),
    ],
)
def test_what_makes_a_library_unfit(change, fault):
    found = list(faults_of_library(dataclasses.replace(GOOD, **change), CP310))

    assert len(found) == 1
    assert fault in found[0]


def test_a_newer_jetson_has_newer_symbols():
    library = dataclasses.replace(GOOD, versions=frozenset({"GLIBC_2.39", "GLIBCXX_3.4.31"}))

    assert list(faults_of_library(library, CP312)) == []


@pytest.fixture
def wheel(tmp_path):
    """A wheel with a real shared object of this machine in pycuda's place, and the source it claims to be of."""
    source, path = tmp_path / "pycuda-1.tar.gz", tmp_path / "pycuda-1-cp310-cp310-linux_aarch64.whl"
    (tmp_path / "tools.py").write_text("x = 1\n")
    with tarfile.open(source, "w:gz") as archive:
        archive.add(tmp_path / "tools.py", "pycuda-1/pycuda/tools.py")
    real = importlib.util.find_spec("msgspec._core")
    assert real is not None
    assert real.origin is not None
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pycuda/tools.py", "x = 1\n")
        archive.writestr("pycuda-1.dist-info/METADATA", "Name: pycuda\n")
        archive.write(real.origin, GOOD.name)
    return path, source


def test_a_shared_object_is_read_as_the_linker_reads_it(wheel):
    (found,) = libraries(wheel[0])

    assert "libc.so.6" in found.needed
    assert any(name.startswith("GLIBC_2.") for name in found.versions)
    assert "PyInit__core" in found.defined
    assert "PyLong_FromLong" in found.undefined
    assert driver_functions(wheel[0]) == set()


def test_a_wheel_that_needs_no_driver_is_not_pycudas(wheel):
    assert any("asks for libcuda.so.1" in fault for fault in faults(*wheel, CP310))


def test_files_that_are_not_of_the_source_are_named(wheel):
    path, source = wheel
    assert not any("source" in fault for fault in faults(path, source, CP310))
    with zipfile.ZipFile(path) as archive:
        real = archive.read(GOOD.name)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pycuda/cuda/cuda.h", "")
        archive.writestr("pycuda/libcuda.so.1", real)

    found = [fault.split()[0] for fault in faults(path, source, CP310) if "source" in fault]
    assert found == ["pycuda/cuda/cuda.h", "pycuda/libcuda.so.1"]


def test_a_changed_file_is_not_of_the_source(wheel, tmp_path):
    path, source = wheel
    changed = tmp_path / path.name.replace("pycuda-1", "pycuda-2")
    with zipfile.ZipFile(changed, "w") as archive:
        archive.writestr("pycuda/tools.py", "x = 2\n")

    assert any(fault.startswith("pycuda/tools.py") for fault in faults(changed, source, CP310))


def test_a_wheel_for_another_python_is_named(wheel):
    assert any("cp312-cp312-linux_aarch64" in fault for fault in faults(*wheel, CP312))
