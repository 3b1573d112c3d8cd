"""Files of images that are none."""

import os

import pytest

from edge.errors import DatasetError
from edge.quantize.stills import image_digest


def test_a_pipe_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "a.jpg")

    with pytest.raises(DatasetError, match="expected a regular file"):
        image_digest(tmp_path / "a.jpg")
