"""Shapes cover the pixels that geometry says; resampling keeps the mean."""

import numpy as np
import pytest

from tools.street.paint import Canvas, resample_area, running_sums

RED = (255.0, 0.0, 0.0)


def test_a_rectangle_covers_its_pixels():
    canvas = Canvas(width=8, height=6)
    canvas.rect(2, 1, 5, 4, RED)
    assert canvas.alpha.sum() == 9
    assert canvas.alpha[1:4, 2:5].all()


def test_metres_grow_upwards_when_asked():
    canvas = Canvas(width=10, height=10, scale=2, origin=(0, 10), up=True)
    canvas.rect(0, 0, 5, 1, RED)
    assert canvas.alpha[8:].all()
    assert not canvas.alpha[:8].any()


def test_a_triangle_covers_half_of_its_rectangle():
    canvas = Canvas(width=100, height=100)
    canvas.polygon([(0, 0), (100, 0), (0, 100)], RED)
    assert canvas.alpha.mean() == pytest.approx(0.5, abs=0.01)


def test_an_ellipse_has_the_area_of_an_ellipse():
    canvas = Canvas(width=100, height=60)
    canvas.ellipse(50, 30, 40, 20, RED)
    assert canvas.alpha.sum() == pytest.approx(np.pi * 40 * 20, rel=0.01)


def test_what_lies_outside_is_cut_off():
    canvas = Canvas(width=4, height=4)
    canvas.rect(-10, -10, -1, -1, RED)
    canvas.ellipse(20, 20, 3, 3, RED)
    canvas.polygon([(-5, -5), (50, -5), (50, 50), (-5, 50)], RED, opacity=0.5)
    assert canvas.alpha.min() == canvas.alpha.max() == 0.5


def test_halving_averages_four_pixels():
    plane = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    np.testing.assert_allclose(resample_area(running_sums(plane), width=2, height=2)[0], [[2.5, 4.5], [10.5, 12.5]])


@pytest.mark.parametrize(("width", "height"), [(3, 5), (7, 2), (40, 31)])
def test_resampling_keeps_the_mean(width, height):
    plane = np.random.default_rng(0).uniform(0, 1, (2, 13, 17)).astype(np.float32)
    resized = resample_area(running_sums(plane), width=width, height=height)
    assert resized.shape == (2, height, width)
    np.testing.assert_allclose(resized.mean(axis=(1, 2)), plane.mean(axis=(1, 2)), rtol=1e-5)
