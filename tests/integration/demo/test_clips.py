"""The demo's files: the frames that the renderer paints, the truth about each, and stills for calibration."""

import hashlib
import resource
import zipfile
import zlib

import numpy as np
import pytest

from edge.config.schema import StreamConfig
from edge.demo.cameras import CLIPS, FPS, SIZE, lay_out_cameras, read_truths
from edge.media.images import read_image
from edge.media.select import make_source
from edge.types import Preprocess
from tests.support.wheels import whole_wheel
from tools.street.__main__ import SAMPLE_EVERY, SEEDS, write_truths
from tools.street.scene import Scene

MAX_WHEEL_BYTES = 15_000_000
CODING_ERROR = 6.0  # levels of 255, on average: of H.264 and JPEG, where a street has much texture


@pytest.fixture(scope="module")
def cameras(tmp_path_factory):
    return lay_out_cameras(6, tmp_path_factory.mktemp("cameras"))


def test_a_clip_that_cannot_be_written_whole_is_named_and_does_not_stay(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as error:
            lay_out_cameras(1, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert error.value.filename == str(tmp_path / "camera-1.mp4")
    assert list(tmp_path.iterdir()) == []


def decoded(path):
    """Return each frame of a clip, as the service gets it."""
    source = make_source(StreamConfig(id="a", uri=str(path)), preprocess=Preprocess(size=SIZE), base_dir=path.parent)
    source.open()
    frames = []
    try:
        while len(frames) < Scene.period_frames:
            frame = source.read(10.0)
            assert frame is not None
            frames.append(np.array(frame.image))
    finally:
        source.close()
    return frames


def error(one, other):
    return float(np.abs(one.astype(np.int16) - other).mean())


def test_nothing_stays_of_an_earlier_demo_with_more_cameras_but_what_others_put_there(tmp_path):
    lay_out_cameras(4, tmp_path)
    (tmp_path / "images" / "mine.jpg").touch()
    lay_out_cameras(1, tmp_path)

    assert {path.name[:8] for path in tmp_path.rglob("*") if path.is_file()} == {"camera-1", "mine.jpg"}


@pytest.mark.parametrize("number", range(4))
def test_a_clip_shows_the_frames_that_are_painted_and_the_truth_is_theirs(cameras, number):
    camera, scene = cameras[number], Scene(SEEDS[number], SIZE)

    assert len(camera.truths) == scene.period_frames == 24 * FPS
    for index, truth in enumerate(camera.truths):
        painted = scene.truth(index)
        for column in ("xyxy", "class_id", "object_id"):
            np.testing.assert_array_equal(getattr(truth, column), getattr(painted, column))
            assert getattr(truth, column).dtype == getattr(painted, column).dtype
    frames = decoded(camera.path)
    for index in (0, 100, 200, 359):
        near = {other: error(frames[other], scene.frame(index)[0]) for other in range(max(0, index - 2), index + 1)}
        assert near[index] < CODING_ERROR
        assert min(near, key=near.__getitem__) == index


@pytest.mark.parametrize("number", range(4))
def test_each_still_is_a_frame_with_its_labels(cameras, number):
    name, scene = f"camera-{number + 1}", Scene(SEEDS[number], SIZE)
    stills = sorted((CLIPS / "images").glob(f"{name}-*.jpg"))

    assert [path.stem for path in stills] == [f"{name}-{index:03d}" for index in range(0, 360, SAMPLE_EVERY)]
    for path in (stills[0], stills[16]):
        picture, truth = scene.frame(int(path.stem[-3:]))
        assert error(read_image(path), picture) < CODING_ERROR
        rows = np.loadtxt(CLIPS / "labels" / f"{path.stem}.txt", ndmin=2)
        centres, sides = rows[:, 1:3] * [640, 360], rows[:, 3:] * [640, 360]
        np.testing.assert_array_equal(rows[:, 0], truth.class_id)
        np.testing.assert_allclose(np.hstack([centres - sides / 2, centres + sides / 2]), truth.xyxy, atol=0.01)


def test_no_two_stills_are_equal():
    images = [path.read_bytes() for path in (CLIPS / "images").iterdir()]

    assert len({hashlib.sha256(image).digest() for image in images}) == len(images) == 132


def test_a_fifth_camera_shows_the_first_street_again(cameras):
    assert [camera.name for camera in cameras] == [f"camera-{number}" for number in range(1, 7)]
    assert cameras[4].path == cameras[0].path
    assert len(list((cameras[0].path.parent / "images").iterdir())) == 132


def test_truths_come_back_as_they_were_written(tmp_path):
    truths = read_truths(CLIPS / "camera-1.npz")[:5]

    write_truths(tmp_path / "again.npz", truths)

    for one, again in zip(truths, read_truths(tmp_path / "again.npz"), strict=True):
        np.testing.assert_array_equal(one.xyxy, again.xyxy)
        np.testing.assert_array_equal(one.object_id, again.object_id)


def test_the_wheel_stays_small(tmp_path):
    wheel = zipfile.ZipFile(whole_wheel(tmp_path))

    packed = sum(len(zlib.compress(wheel.read(name))) for name in wheel.namelist())

    assert any(name.endswith("clips/camera-4.mp4") for name in wheel.namelist())
    assert packed < MAX_WHEEL_BYTES
