"""A small file that states a large picture is refused before memory is spent on it, whatever its format."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from edge.errors import DatasetError
from edge.media.images import MAX_PIXELS, read_image

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


def _png(side):
    """Return a black grey PNG: its length is a thousandth of what it takes."""
    packer, row = zlib.compressobj(9), bytes(1 + side)
    head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    data = _chunk(b"IDAT", b"".join(packer.compress(row) for _ in range(side)) + packer.flush())
    return head + data + _chunk(b"IEND", b"")


def _bmp(side):
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 1000, 0, 54, 40, side, side, 1, 24, *[0] * 6) + bytes(1000)


@pytest.mark.parametrize("make", [_png, _bmp, lambda side: b"P5 %d %d 255\n" % (side, side) + bytes(1000)])
def test_a_file_of_a_few_hundred_kilobytes_that_states_gigabytes_takes_none(make, tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(make(20_000))
    assert path.stat().st_size < 1 << 20
    command = ["prlimit", "--cpu=120", sys.executable, "-c", READ, str(path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told, grown_kib = ran.stdout.splitlines()
    assert f"{path}: expected at most {MAX_PIXELS} pixels" in told
    assert int(grown_kib) < 200 << 10


def test_a_link_to_an_endless_file_is_no_image(tmp_path):
    (tmp_path / "one.png").symlink_to("/dev/zero")
    with pytest.raises(DatasetError, match=r"one\.png: "):
        read_image(tmp_path / "one.png")
