import io
import stat
import zipfile

import pytest

from edge.bundle import software as wheels
from edge.bundle.software import read_wheel_name, unpacked
from edge.errors import DeployError
from tests.support.raised import code_of
from tests.support.wheels import wheel


def files_of(content, name):
    return {one.path: b"".join(one.pieces) for one in unpacked(io.BytesIO(content), name)}


def zeros(count, how):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        archive.writestr("pkg/zeros", bytes(count))
    return packed.getvalue()


def with_size(content, name, size):
    """Return an archive whose directory states another size for one of its files."""
    at = content.rindex(name.encode()) - 46  # APPNOTE.TXT 4.3.12: the size is at 24 of a central header
    return content[: at + 24] + size.to_bytes(4, "little") + content[at + 28 :]


@pytest.mark.parametrize(
    ("name", "python", "architecture", "fits"),
    [
        ("edge_deploy-0.1.0-py3-none-any.whl", (3, 10), "aarch64", True),
        ("six-1.17.0-py2.py3-none-any.whl", (3, 12), "x86_64", True),
        ("numpy-2.2.6-cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", (3, 10), "aarch64", True),
        ("numpy-2.2.6-cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", (3, 11), "aarch64", False),
        ("numpy-2.2.6-cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", (3, 10), "x86_64", False),
        ("opencv_python_headless-4.13.0-cp37-abi3-manylinux_2_28_x86_64.whl", (3, 13), "x86_64", True),
        ("opencv_python_headless-4.13.0-cp313-abi3-manylinux_2_28_x86_64.whl", (3, 12), "x86_64", False),
        ("pycuda-2026.1-cp310-cp310-linux_aarch64.whl", (3, 10), "aarch64", True),
        ("openvino-2026.4-1-cp311-cp311-win_amd64.whl", (3, 11), "amd64", False),
        ("cryptography-45-cp39-cp39-manylinux_2_28_x86_64.whl", (3, 11), "x86_64", False),  # no abi3: only 3.9
    ],
)
def test_a_wheel_is_for_the_python_and_machine_that_its_tags_name(name, python, architecture, fits):
    assert read_wheel_name(name).fits(python=python, architecture=architecture) is fits


@pytest.mark.parametrize("name", ["edge_deploy.whl", "a-1-py3-none-any.zip", "a b-1-py3-none-any.whl", "", "-.whl"])
def test_what_is_no_name_of_a_wheel_is_told(name):
    assert read_wheel_name(name) is None


def test_a_wheel_unpacks_to_what_lies_on_the_path_and_its_scripts_go_nowhere():
    content = wheel(
        {
            "pkg/__init__.py": b"1",
            "pkg-1.dist-info/METADATA": b"m",
            "pkg-1.data/purelib/pkg/more.py": b"2",
            "pkg-1.data/platlib/pkg/native.so": b"3",
            "pkg-1.data/scripts/run": b"rm -rf /",
            "pkg-1.data/data/etc/passwd": b"root",
            "pkg-1.data/headers/pkg.h": b"h",
        }
    )

    assert files_of(content, "pkg.whl") == {
        "pkg/__init__.py": b"1",
        "pkg-1.dist-info/METADATA": b"m",
        "pkg/more.py": b"2",
        "pkg/native.so": b"3",
    }


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/cron.d/evil", "pkg/../../evil", "pkg//evil.py", "./evil.py", "pkg/\x00"[:4] + "./x"]
)
def test_a_path_that_leaves_the_folder_is_refused(name):
    with pytest.raises(DeployError, match="is no plain file within it") as refused:
        files_of(wheel({name: b"x"}), "evil.whl")
    assert refused.value.code == "build.software"


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_a_link_or_a_device_in_a_wheel_is_refused(kind):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        entry = zipfile.ZipInfo("pkg/link")
        entry.create_system, entry.external_attr = 3, (kind | 0o777) << 16
        archive.writestr(entry, "/etc/shadow")

    with pytest.raises(DeployError, match="is no plain file"):
        files_of(packed.getvalue(), "evil.whl")


def test_one_path_twice_by_two_ways_is_refused():
    content = wheel({"pkg/a.py": b"1", "pkg-1.data/purelib/pkg/a.py": b"2"})

    with pytest.raises(DeployError, match="there twice"):
        files_of(content, "evil.whl")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zeros(1001, zipfile.ZIP_DEFLATED), "unpacks to too much"),
        (wheel({f"pkg/{n}": b"" for n in range(3)}), "too much"),
        (zeros(1000, zipfile.ZIP_LZMA), "neither stored nor deflated"),  # these unpack more at once than is asked for
        (zeros(1000, zipfile.ZIP_BZIP2), "neither stored nor deflated"),
    ],
    ids=["bytes", "files", "lzma", "bzip2"],
)
def test_what_would_unpack_to_too_much_is_refused_before_it_is(monkeypatch, content, words):
    monkeypatch.setattr(wheels, "MOST_BYTES", 1000)
    monkeypatch.setattr(wheels, "MOST_FILES", 2)

    with pytest.raises(DeployError, match=words):
        files_of(content, "bomb.whl")


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
@pytest.mark.parametrize("stated", [1, 999, 1001, 100_000])
def test_a_file_that_is_not_of_the_size_that_it_states_is_refused(how, stated):
    assert code_of(files_of, with_size(zeros(1000, how), "pkg/zeros", stated), "bomb.whl") == "build.software"


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-30], lambda b: b"PK" + b, lambda _: b"", lambda b: b.replace(b"AB", b"AC", 1)]
)
def test_an_archive_that_is_damaged_is_an_error_and_no_traceback(damage):
    content = damage(wheel({"pkg/a.py": b"ABABABAB" * 10}))

    found, refusal = None, None
    try:
        found = files_of(content, "cut.whl")
    except DeployError as error:
        refusal = error.code

    # Bytes before an archive are passed over, as zip has it.
    assert refusal == "build.software" or found == {"pkg/a.py": b"ABABABAB" * 10}
