"""A recording that would unfold to all memory is refused by what its archive states."""

import zipfile

import numpy as np
import pytest

from edge.errors import DatasetError
from edge.media import recorded
from edge.media.recorded import read_recording


def test_a_small_recording_that_unfolds_to_more_than_the_bound_is_not_unfolded(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("images.npy", "w", force_zip64=True) as out,
    ):
        shape = {"descr": "|u1", "fortran_order": False, "shape": (1100, 1024, 1024, 1)}
        np.lib.format.write_array_header_1_0(out, shape)
        for _ in range(1100):
            out.write(bytes(1 << 20))
    assert path.stat().st_size < 2_000_000
    monkeypatch.setattr(recorded.np, "load", lambda *_, **__: pytest.fail("it was unfolded"))

    with pytest.raises(DatasetError, match="1 GiB"):
        read_recording(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"\x93NUMPY\x01\x00"])
def test_what_is_no_archive_is_said_to_be_none(content, tmp_path):
    path = tmp_path / "odd.npz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"expected an \.npz file"):
        read_recording(path)


def test_a_header_that_states_more_than_is_there_is_refused(tmp_path):
    path = tmp_path / "short.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("images.npy", "w") as out:
        np.lib.format.write_array_header_1_0(
            out, {"descr": "|u1", "fortran_order": False, "shape": (1 << 20, 1 << 20, 1 << 20, 3)}
        )
    with pytest.raises(DatasetError, match=r"expected an \.npz file"):
        read_recording(path)
