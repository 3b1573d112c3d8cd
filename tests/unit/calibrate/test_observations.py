import json

import numpy as np
import pytest

from edge.calibrate.histogram import count
from edge.calibrate.observations import Observations, merge_observations, read_observations, write_observations
from edge.errors import CalibrationError


def observations(seed, *, model="m", names=("images", "/model.0/conv (1): 2")):
    random = np.random.default_rng(seed)
    histograms = {name: count(random.normal(0, seed + 1, 500).astype(np.float32)) for name in names}
    return Observations(model_sha256=model, preprocess_sha256="p", images=3, histograms=histograms)


def test_what_was_saved_is_read_again(tmp_path):
    write_observations(tmp_path / "a.npz", observations(1))

    assert read_observations(tmp_path / "a.npz") == observations(1)


def test_saved_parts_merge_to_the_whole_byte_for_byte(tmp_path):
    first, second, third = (observations(seed) for seed in range(3))
    write_observations(tmp_path / "first.npz", first)
    write_observations(tmp_path / "rest.npz", merge_observations(second, third))
    merged = merge_observations(read_observations(tmp_path / "rest.npz"), read_observations(tmp_path / "first.npz"))
    write_observations(tmp_path / "merged.npz", merged)
    write_observations(tmp_path / "whole.npz", merge_observations(merge_observations(first, second), third))

    assert merged.images == 9
    assert (tmp_path / "merged.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_observations_of_another_model_do_not_merge():
    with pytest.raises(CalibrationError, match="model_sha256 m and other"):
        merge_observations(observations(0), observations(1, model="other"))


def test_observations_of_other_tensors_do_not_merge():
    with pytest.raises(CalibrationError, match='"b" is in one'):
        merge_observations(observations(0, names=("a",)), observations(1, names=("a", "b")))


@pytest.mark.parametrize("damage", ["cut", "no zip", "empty", "other", "lying"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "a.npz"
    write_observations(path, observations(1))
    data = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "no zip":
            path.write_text("hello")
        case "empty":
            path.write_bytes(b"")
        case "other":
            np.savez(path, head=np.frombuffer(json.dumps({"format": "x"}).encode(), np.uint8))
        case "lying":
            with np.load(path) as arrays:
                np.savez(path, **{**arrays, "amax": arrays["amax"] * 100})

    with pytest.raises(CalibrationError, match=r"a\.npz: expected histograms \(edge\.hist/1\)"):
        read_observations(path)
