"""The digest of a file is that of its content, however long."""

import hashlib

import pytest

from edge.digest import sha256_and_length, sha256_of


@pytest.mark.parametrize("length", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 21) + 7])
def test_a_file_read_in_pieces_has_the_digest_of_the_whole(tmp_path, length):
    content = bytes(range(251)) * (length // 251 + 1)
    (tmp_path / "a").write_bytes(content[:length])

    expected = hashlib.sha256(content[:length]).hexdigest()
    assert sha256_and_length(tmp_path / "a") == (expected, length)
    assert sha256_of(tmp_path / "a") == expected


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sha256_of(tmp_path / "a")
