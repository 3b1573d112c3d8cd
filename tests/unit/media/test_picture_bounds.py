"""A small file that states a large picture is refused by its header, before memory is spent on it."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from edge.errors import DatasetError
from edge.media.images import MAX_PIXELS, read_image, stated_size, write_image

ROOT = Path(__file__).parents[3]
READ = """
import resource, sys
from pathlib import Path
from edge.errors import DatasetError
from edge.media.images import read_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_image(Path(sys.argv[1]))
except DatasetError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def _chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png(path, width, height):
    """Write a black grey PNG: its length is a thousandth of what it takes."""
    packer, row = zlib.compressobj(9), bytes(1 + width)
    with path.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)))
        file.write(_chunk(b"IDAT", b"".join(packer.compress(row) for _ in range(height)) + packer.flush()))
        file.write(_chunk(b"IEND", b""))
    return path


def test_a_png_of_a_few_hundred_kilobytes_that_takes_two_gigabytes_takes_none(tmp_path):
    path = _png(tmp_path / "bomb.png", 20_000, 20_000)
    assert path.stat().st_size < 1 << 20
    command = ["prlimit", "--cpu=120", sys.executable, "-c", READ, str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told, grown_kib = ran.stdout.splitlines()
    assert f"{path}: expected at most {MAX_PIXELS} pixels" in told
    assert "20000 x 20000" in told
    assert int(grown_kib) < 200 << 10


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".webp", ".tiff"])
def test_the_header_says_what_the_decoder_finds(suffix, tmp_path):
    path = tmp_path / f"one{suffix}"
    write_image(path, np.zeros((37, 53, 3), np.uint8))
    assert stated_size(path.read_bytes()) == (53, 37)
    assert read_image(path).shape == (37, 53, 3)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".webp", ".tiff"])
def test_a_header_that_is_cut_short_states_nothing_and_breaks_nothing(suffix, tmp_path):
    path = tmp_path / f"one{suffix}"
    write_image(path, np.zeros((37, 53, 3), np.uint8))
    content = path.read_bytes()
    assert all(stated_size(content[:length]) in (None, (53, 37)) for length in range(min(len(content), 600)))


def test_a_format_whose_header_is_not_read_is_bounded_by_the_decoder(tmp_path):
    path = tmp_path / "one.png"
    path.write_bytes(b"P5 20000 20000 255\n" + bytes(1000))
    with pytest.raises(DatasetError, match=r"one\.png"):
        read_image(path)


def test_a_link_to_an_endless_file_is_no_image(tmp_path):
    (tmp_path / "one.png").symlink_to("/dev/zero")
    with pytest.raises(DatasetError, match=r"one\.png: "):
        read_image(tmp_path / "one.png")
