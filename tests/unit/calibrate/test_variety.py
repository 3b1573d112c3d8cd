"""What images of a calibration do not show: counted from pictures in small, and told by lint."""

import math

import msgspec
import numpy as np
import pytest

from edge.calibrate.findings import Severity
from edge.calibrate.lint import lint_table
from edge.calibrate.observations import Scene, camera_of, scene_of, variety_of
from edge.calibrate.table import DatasetId, Objects, Variety
from tests.support.values import calibration_table


def look(level, *, seed=0, noise=0):
    """Return 768 mean colours around a level of grey, which differ by up to `noise` from those of seed 0."""
    shape = np.random.default_rng(1).integers(-60, 60, 768)
    other = np.random.default_rng(seed).integers(-noise, noise + 1, 768)
    return (np.clip(level + shape, noise, 255 - noise) + other).astype(np.int16)


def grey(level):
    return Scene(bytes([level]) * 768, "")


@pytest.mark.parametrize(
    ("stem", "camera"),
    [
        ("gate-east-000123", "gate-east"),  # edge-runtime run --frames
        ("cam-1-000123", "cam-1"),
        ("cam1_0001", "cam1"),
        ("yard_2024-05-01_12-30-00", "yard"),
        ("yard_20240501_123000", "yard"),
        ("front_door-1700000000.123456-abc123", "front_door"),  # Frigate
        ("gate-000123_jpg.rf.0a1b2c3d4e5f", "gate"),  # Roboflow
        ("gate 2 1717243200", "gate 2"),
        ("000000000009", ""),  # COCO
        ("1717243200", ""),
        ("a1b2c3", ""),
        ("2024-05-01_12-30-00", ""),
    ],
)
def test_the_camera_is_the_name_before_times_and_numbers(stem, camera):
    assert camera_of(stem) == camera


def test_dark_images_are_counted_by_their_mean_brightness():
    """Percentiles of 11 levels, 40 to 240 by 20, worked out by hand: positions 1, 5 and 9."""
    found = variety_of([grey(level) for level in range(40, 241, 20)])

    assert (found.images, found.dark, found.brightness) == (11, 3, (60, 140, 220))


def test_brightness_is_luma():
    """0.587 of pure green 200."""
    assert variety_of([Scene(bytes([0, 200, 0]) * 256, "")]).brightness == (117, 117, 117)


def test_the_same_picture_in_other_qualities_is_alike_and_others_are_not():
    same = [scene_of(look(120, seed=seed, noise=4), "") for seed in range(8)]
    others = [scene_of(np.random.default_rng(seed).integers(0, 256, 768).astype(np.int16), "") for seed in range(5)]

    assert variety_of([*same, *others]).alike == 7
    assert variety_of(others).alike == 0


def test_how_many_are_alike_does_not_depend_on_the_order():
    """A is like B and B like C, A is not like C."""
    chain = [grey(100), grey(107), grey(114)]

    assert {variety_of([chain[i] for i in order]).alike for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2))} == {2}


def test_images_are_counted_by_camera_only_where_all_names_tell_one():
    told = [Scene(grey(1).look, name) for name in ("lobby",) * 6 + ("gate",) * 2]

    assert variety_of(told).cameras == {"gate": 2, "lobby": 6}
    assert variety_of([*told, grey(1)]).cameras == {}
    assert variety_of([Scene(grey(1).look, f"name{number}") for number in range(8)]).cameras == {}


def complaints(**facts):
    usual = Variety(images=100, alike=0, dark=20, brightness=(70, 115, 150))
    variety = msgspec.structs.replace(usual, **facts)
    table = calibration_table({"t": math.pi}, dataset=DatasetId(images=100, sha256="0" * 64, variety=variety))
    found = {one.code: one for one in lint_table(table, None) if one.code != "unbound"}
    assert all(one.severity is Severity.WARNING for one in found.values())
    return found


def objects(images=100, **counts):
    return Objects(by="labels", images=images, counts=counts)


def coco(seen_classes):
    return Objects(by="labels", images=128, counts={f"c{number}": int(number < seen_classes) for number in range(80)})


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"alike": 10},
        {"cameras": {"gate": 50, "lobby": 30, "yard": 20}},
        {"cameras": {"gate": 100}},
        {"objects": objects(person=40, car=3)},
        {"objects": coco(71)},  # COCO's own 128: no class is missed that 128 photos could not be expected to have
        {"objects": coco(2)},  # a model of eighty classes at a gate
        {"dark": 1, "brightness": (95, 115, 150)},
    ],
)
def test_an_ordinary_good_set_has_no_complaint(facts):
    assert complaints(**facts) == {}


@pytest.mark.parametrize(
    ("facts", "code", "named"),
    [
        ({"alike": 63, "images": 64}, "alike-images", "63 of 64"),
        ({"dark": 0, "brightness": (137, 139, 145)}, "one-light", "images are dark"),
        ({"dark": 0, "brightness": (95, 115, 150)}, "one-light", "images are dark"),
        ({"dark": 100, "brightness": (20, 40, 70)}, "one-light", "images are bright"),
        ({"dark": 60, "brightness": (80, 88, 95)}, "one-light", "images are bright"),
        ({"dark": 3, "brightness": (120, 130, 140)}, "one-light", "images are dark"),
        ({"cameras": {"gate": 90, "lobby": 10}}, "few-of-a-camera", '10 are of "lobby"'),
        ({"objects": objects(person=40, forklift=0)}, "missing-classes", '"forklift"'),
        ({"objects": objects(person=0)}, "missing-classes", '"person"'),
        ({"objects": coco(0)}, "missing-classes", "76 more"),
    ],
)
def test_what_images_do_not_show_is_named(facts, code, named):
    found = complaints(**facts)

    assert list(found) == [code]
    assert named in found[code].problem
    assert found[code].fix


def test_few_images_are_only_told_that_they_are_alike():
    facts = {"images": 31, "alike": 30, "dark": 0, "brightness": (140, 140, 140), "cameras": {"a": 30, "b": 1}}

    assert list(complaints(**facts)) == ["alike-images"]
