"""Which compiled kernels a GPU gets, and that they are what the source says."""

import hashlib
import json
import locale
import platform

import pytest

from edge.engine.cuda.kernels import FOLDER, INDEX, SOURCE, TARGETS, image_name, read_kernel_image
from edge.errors import EngineError, MissingDependencyError
from tools.compile import Nvrtc, find_nvrtc, made_files, options_of

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="NVRTC comes for x86-64")
needs_nvrtc_11 = pytest.mark.slow(reason="asks NVRTC 11, which only make test-rest installs")

KERNELS = {
    *("normalize_float32", "normalize_float16", "candidates_float32", "candidates_float16"),
    *("largest_float32", "largest_float16", "means_float32", "means_float16"),
    *("copy_peak", "float_peak"),
    *("tally_largest_float32", "tally_largest_float16", "tally_widen", "tally_count_float32", "tally_count_float16"),
}
OF_TENSOR_CORES = {"int8_peak", "half_peak"}


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((7, 5), "sm_75.cubin"),
        ((8, 6), "sm_86.cubin"),
        ((8, 7), "sm_87.cubin"),  # Orin
        ((9, 0), "sm_90.cubin"),
        ((8, 8), "compute_80.ptx"),
        ((11, 0), "compute_80.ptx"),  # Thor
        ((12, 1), "compute_80.ptx"),
    ],
)
def test_a_cubin_for_each_gpu_that_is_named_and_ptx_for_later_ones(capability, name):
    assert image_name(capability) == name
    assert read_kernel_image(capability)[:4] == (b"\x7fELF" if name.endswith(".cubin") else b"//\n/")


@pytest.mark.parametrize("capability", [(5, 3), (6, 2), (7, 0), (7, 2)])
def test_an_older_gpu_is_refused_with_what_there_is(capability):
    with pytest.raises(
        EngineError, match=r"capability {}\.{}; there are for 7\.5, .*9\.0 and newer".format(*capability)
    ):
        image_name(capability)


@needs_nvrtc_11
def test_the_shipped_kernels_are_what_the_source_gives():
    found = {path.name: path.read_bytes() for path in FOLDER.iterdir()}

    assert found == dict(made_files(Nvrtc(find_nvrtc()))), "run `make kernels`"


@needs_nvrtc_11
def test_a_thread_that_compiled_reads_text_as_before():
    before = locale.nl_langinfo(locale.CODESET)

    Nvrtc(find_nvrtc()).compile(SOURCE.read_text(), options_of("sm_87"), is_ptx=False)

    assert locale.nl_langinfo(locale.CODESET) == before


def test_the_index_says_what_they_were_made_of():
    index = json.loads(INDEX.read_text())

    assert index["source_sha256"] == hashlib.sha256(SOURCE.read_bytes()).hexdigest(), "run `make kernels`"
    for name, told in index["files"].items():
        assert told["sha256"] == hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
    assert set(index["files"]) == set(TARGETS.values())


@pytest.mark.parametrize("architecture", ["75", "87", "90"])
@pytest.mark.parametrize("major", [pytest.param("11", marks=needs_nvrtc_11), "12"])
def test_both_compilers_take_every_kernel(major, architecture):
    nvrtc = Nvrtc(find_nvrtc(major))

    cubin = nvrtc.compile(SOURCE.read_text(), options_of(f"sm_{architecture}"), is_ptx=False)

    kernels = KERNELS | (OF_TENSOR_CORES if int(architecture) >= 80 else set())
    assert {name for name in KERNELS | OF_TENSOR_CORES if f".text.{name}".encode() in cubin} == kernels
    assert nvrtc.version.split(".")[0] == major


def test_the_tensor_cores_are_asked_for_by_their_instruction():
    ptx = (FOLDER / "compute_80.ptx").read_text()

    assert ptx.count("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32") >= 8
    assert ".local" not in ptx, "a kernel keeps an array in memory instead of registers"


@needs_nvrtc_11
def test_what_the_compiler_refuses_is_told_in_its_words():
    with pytest.raises(EngineError, match=r"NVRTC 11\.8 refuses kernels\.cu:\n.*storage class"):
        Nvrtc(find_nvrtc()).compile("nonsense", options_of("sm_87"), is_ptx=False)


def test_a_compiler_that_is_not_there_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("tools.compile.find_spec", lambda name: None)

    with pytest.raises(MissingDependencyError, match="pip install nvidia-cuda-nvrtc-cu11"):
        find_nvrtc()
