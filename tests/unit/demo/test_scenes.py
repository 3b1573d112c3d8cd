"""Scenes are repeatable, loop without a seam, and their boxes are exactly the pixels of the objects."""

import numpy as np
import pytest

from edge.types import ImageSize
from tools.street.paint import Canvas
from tools.street.scene import CLASSES, MIN_SIDE_SHARE, Scene

SIZE = ImageSize(width=640, height=360)
SMALL = ImageSize(width=320, height=180)
RED = (255.0, 0.0, 0.0)
SEEDS = (1, 3, 4, 10)  # along the road and across it, by day and by night


@pytest.fixture(scope="module")
def scenes():
    return {seed: Scene(seed, SIZE) for seed in SEEDS}


def _boxes_and_changes(scene, index):
    """Yield each object's box, where the picture differs without it, and where it is brighter with it."""
    image, truth = scene.frame(index)
    placed = scene._visible(index)[0]
    labelled = [each for each in placed if each.class_id is not None]
    for one, box in zip(labelled, truth.xyxy.astype(int), strict=True):
        other = scene._paint([each for each in placed if each is not one], index)
        difference = image.astype(int) - other.astype(int)
        yield box, (difference != 0).any(axis=2), (difference > 1).any(axis=2)


def test_a_frame_depends_on_seed_size_and_index_only():
    first, second = Scene(7, SMALL), Scene(7, SMALL)
    first.frame(90)
    first.frame(3)

    image, truth = first.frame(41)
    again, same_truth = second.frame(41)

    np.testing.assert_array_equal(image, again)
    np.testing.assert_array_equal(truth.xyxy, same_truth.xyxy)
    np.testing.assert_array_equal(truth.class_id, same_truth.class_id)


def test_the_caller_may_write_into_a_frame():
    scene = Scene(7, SMALL)
    image, _ = scene.frame(0)
    copy = image.copy()
    image[:] = 0
    np.testing.assert_array_equal(scene.frame(0)[0], copy)


def test_another_seed_shows_another_street():
    assert (Scene(1, SMALL).frame(0)[0] != Scene(2, SMALL).frame(0)[0]).mean() > 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clip_of_one_period_loops_without_a_seam(scenes, seed):
    scene = scenes[seed]
    image, truth = scene.frame(0)
    looped, looped_truth = scene.frame(scene.period_frames)
    np.testing.assert_array_equal(image, looped)
    np.testing.assert_array_equal(truth.xyxy, looped_truth.xyxy)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_step_over_the_seam_is_like_any_other(scenes, seed):
    scene = scenes[seed]
    steps = [
        np.abs(scene.frame(index + 1)[0].astype(int) - scene.frame(index)[0]).mean()
        for index in (scene.period_frames - 1, *range(20, 200, 20))
    ]
    assert 0 < steps[0] < 2 * max(steps[1:])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("index", [0, 133])
def test_truth_lies_inside_the_frame_and_is_not_tiny(scenes, seed, index):
    image, truth = scenes[seed].frame(index)
    assert image.shape == (360, 640, 3)
    assert (image.dtype, truth.xyxy.dtype, truth.class_id.dtype) == (np.uint8, np.float32, np.int32)
    assert truth.xyxy.shape == (len(truth.class_id), 4)
    assert (truth.xyxy >= 0).all()
    assert (truth.xyxy <= [640, 360, 640, 360]).all()
    assert (truth.xyxy[:, 2:] - truth.xyxy[:, :2] >= MIN_SIDE_SHARE * 360).all()
    assert set(truth.class_id) <= set(range(len(CLASSES)))


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_touch_their_object_on_all_four_sides(scenes, seed):
    for (x0, y0, x1, y1), changed, _ in _boxes_and_changes(scenes[seed], 60):
        inside = changed[y0:y1, x0:x1]
        assert inside[0].any()
        assert inside[-1].any()
        assert inside[:, 0].any()
        assert inside[:, -1].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_outside_its_box_an_object_only_casts_a_shadow(scenes, seed):
    for (x0, y0, x1, y1), changed, brighter in _boxes_and_changes(scenes[seed], 60):
        changed[y0:y1, x0:x1] = brighter[y0:y1, x0:x1] = False
        rows, columns = np.nonzero(changed)
        assert not brighter.any()
        assert not changed[:y0].any(), "nothing of an object lies above its box"
        assert len(columns) == 0 or (columns.min() >= x0 - 12 and columns.max() < x1 + 12 and rows.max() < y1 + 12)


def test_every_class_occurs_and_no_scene_is_empty():
    truths = [Scene(seed, SMALL).frame(100)[1] for seed in range(10)]
    assert all(len(truth.class_id) for truth in truths)
    assert set(np.concatenate([truth.class_id for truth in truths])) == {0, 1, 2, 3}


def test_things_beside_the_road_are_drawn_but_not_labelled():
    scene = Scene(10, SMALL)
    drawn = scene._placed(0)
    assert any(each.class_id is None for each in drawn)
    assert len(scene.frame(0)[1].class_id) <= sum(each.class_id is not None for each in drawn)


def test_an_object_that_is_hardly_in_the_picture_is_neither_drawn_nor_labelled():
    scene = Scene(3, SMALL)
    for index in range(0, scene.period_frames, 9):
        labelled, drawn = scene.frame(index)[1], scene._visible(index)[0]
        cut = [each for each in drawn if each.class_id is not None]
        assert len(cut) == len(labelled.class_id)
        for each in cut:
            in_frame = np.count_nonzero(each.sprite.body[each.part]) / np.count_nonzero(each.sprite.body)
            assert in_frame >= 0.3


@pytest.mark.parametrize("seed", [1, 3])
def test_a_larger_picture_shows_the_same_street(seed):
    _, small = Scene(seed, SMALL).frame(50)
    _, large = Scene(seed, SIZE).frame(50)
    large_xyxy = large.xyxy[large.class_id < 3] / 2
    for box in small.xyxy[small.class_id < 3]:
        assert np.abs(large_xyxy - box).max(axis=1).min() <= 2


@pytest.mark.parametrize(("width", "height"), [(480, 480), (1280, 720), (426, 240)])
def test_other_sizes_work(width, height):
    image, truth = Scene(4, ImageSize(width=width, height=height)).frame(10)
    assert image.shape == (height, width, 3)
    assert (truth.xyxy <= [width, height, width, height]).all()


def test_what_lies_outside_is_cut_off_and_a_veil_covers_by_its_share():
    canvas = Canvas(width=4, height=4)
    canvas.rect(-10, -10, -1, -1, RED)
    canvas.ellipse(20, 20, 3, 3, RED)
    canvas.polygon([(-5, -5), (50, -5), (50, 50), (-5, 50)], RED, opacity=0.5)
    assert canvas.alpha.min() == canvas.alpha.max() == 0.5


def test_shapes_cover_the_pixels_that_geometry_says():
    rect, square, triangle, ellipse = (Canvas(width=100, height=60) for _ in range(4))
    rect.rect(2, 1, 5, 4, RED)
    square.polygon([(2, 1), (5, 1), (5, 4), (2, 4)], RED)
    triangle.polygon([(0, 0), (100, 0), (0, 60)], RED)
    ellipse.ellipse(50, 30, 40, 20, RED)

    for one in (rect, square):
        assert (one.alpha.sum(), one.alpha[1:4, 2:5].sum()) == (9, 9)
    assert triangle.alpha.mean() == pytest.approx(0.5, abs=0.01)
    assert ellipse.alpha.sum() == pytest.approx(np.pi * 40 * 20, rel=0.01)
