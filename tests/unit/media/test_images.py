import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

from edge.errors import DatasetError
from edge.media.images import colour_of, draw_boxes, ink_on, list_images, passed_over, read_image, resize, write_image
from edge.types import ImageSize
from tests.support.clips import cmyk_jpeg

RED = np.zeros((4, 6, 3), np.uint8)
RED[..., 0] = 255


def exif_jpeg(path: Path, rgb: np.ndarray, orientation: int) -> None:
    """A JPEG with an APP1 segment that holds nothing but the orientation."""
    data = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    tiff = b"MM\x00*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    body = b"Exif\x00\x00" + tiff
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:])


def test_png_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "ü bild #1.png"
    write_image(path, RED)

    assert np.array_equal(read_image(path), RED)


def test_grey_becomes_three_equal_channels(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.full((4, 6), 77, np.uint8))

    assert np.array_equal(read_image(tmp_path / "a.png"), np.full((4, 6, 3), 77, np.uint8))


def test_sixteen_bits_become_eight(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.full((4, 6), 0x80FF, np.uint16))

    assert np.array_equal(read_image(tmp_path / "a.png"), np.full((4, 6, 3), 0x80, np.uint8))


def test_alpha_is_dropped_without_blending(tmp_path):
    bgra = np.zeros((4, 6, 4), np.uint8)
    bgra[..., 2] = 200
    cv2.imwrite(str(tmp_path / "a.png"), bgra)

    assert np.array_equal(read_image(tmp_path / "a.png")[0, 0], [200, 0, 0])


@pytest.mark.parametrize(
    ("cmyk", "rgb"), [((0, 0, 0, 0), 255), ((0, 128, 0, 0), (255, 127, 255)), ((0, 0, 0, 255), 0), ((0, 0, 0, 55), 200)]
)
def test_cmyk_becomes_rgb(tmp_path, cmyk, rgb):
    found = read_image(cmyk_jpeg(tmp_path / "a.jpg", cmyk)).astype(int)

    assert found.shape == (48, 48, 3)
    assert np.abs(found - rgb).max() <= 1


def test_exif_orientation_is_applied(tmp_path):
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, :16] = 255  # left half white
    exif_jpeg(tmp_path / "a.jpg", wide, orientation=6)  # turn clockwise by a quarter to see it upright
    upright = read_image(tmp_path / "a.jpg")

    assert upright.shape == (32, 16, 3)
    assert upright[:14].min() > 230
    assert upright[18:].max() < 25


@pytest.mark.parametrize("content", [b"", b"not an image", b"\xff\xd8\xff\xe0 cut off"])
def test_damaged_image_is_named(tmp_path, content):
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"bad\.jpg: expected an image"):
        read_image(path)


@pytest.mark.parametrize(
    ("name", "why"), [("gone.jpg", "No such file"), ("a.jpg", "it is a link to nas/a.jpg, which is")]
)
def test_missing_image_is_named(tmp_path, name, why):
    (tmp_path / "a.jpg").symlink_to("nas/a.jpg")
    with pytest.raises(DatasetError, match=rf"{name}: cannot be read: {why}"):
        read_image(tmp_path / name)


def test_a_folder_is_no_image_whatever_its_name(tmp_path):
    write_image(tmp_path / "a.jpg", RED)
    (tmp_path / "b.jpg").mkdir()

    assert (list_images(tmp_path), passed_over(tmp_path)) == ([tmp_path / "a.jpg"], [tmp_path / "b.jpg"])


def test_write_to_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="expected a suffix"):
        write_image(tmp_path / "a.xyz", RED)


def test_resize_to_the_same_size_is_free():
    assert resize(RED, ImageSize(width=6, height=4)) is RED
    assert resize(RED, ImageSize(width=3, height=9)).shape == (9, 3, 3)


def test_boxes_are_drawn_where_they_are():
    image = np.zeros((100, 100, 3), np.uint8)
    draw_boxes(image, np.array([[20, 30, 80, 90]], np.float32), ["person 0.9"], [0])

    assert tuple(image[60, 20]) == colour_of(0)
    assert image[60, 50].max() == 0
    assert image[95:].max() == 0


def test_the_text_of_a_box_at_the_right_edge_is_whole():
    def painted(left):
        image = np.zeros((100, 300, 3), np.uint8)
        draw_boxes(image, np.float32([[left, 40, left + 20, 90]]), ["person 0.90"], [0])
        return int((image[:40].max(axis=2) > 0).sum())

    assert painted(275) == painted(100) > 0


def test_neighbouring_classes_get_different_colours():
    assert len({colour_of(i) for i in range(80)}) == 80


def test_text_stands_out_from_the_colour_of_each_class():
    def luminance(rgb):
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for class_id in range(1000):
        dark, bright = sorted([luminance(colour_of(class_id)), luminance(ink_on(colour_of(class_id)))])
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, class_id


def test_text_is_as_large_as_the_picture_asks_for():
    heights = []
    for side_px in (360, 2160):
        image = np.zeros((side_px, side_px * 2, 3), np.uint8)
        draw_boxes(image, np.float32([[50, side_px / 2, 1000, side_px - 4]]), ["car 0.90"], [0])
        rows = np.flatnonzero((image[: side_px // 2 - 4, 52] == colour_of(0)).all(axis=1))
        heights.append(len(rows))
    assert heights[1] >= 3 * heights[0]


def test_images_are_listed_by_name_without_hidden_files_and_others(tmp_path):
    for name in ("b.png", "a.PNG", "notes.txt", "._a.png", ".b.jpg"):
        (tmp_path / name).write_bytes(b"\0\5\26\7")

    assert list_images(tmp_path) == [tmp_path / "a.PNG", tmp_path / "b.png"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["images/a.png", "labels/a.txt"], r"none; name the folder of the images: \S*/images$"),
        (["train/images/a.JPG", "valid/images/a.png"], r"none; name the folder of .*/train/images, \S*/valid/images$"),
        (["a.jfif", "b.gif", ".c.txt"], r"none; it has \.gif, \.jfif: "),
        (["labels/a.txt"], "none$"),
        ([], "none$"),
    ],
)
def test_folder_without_images_says_where_images_are(tmp_path, files, told):
    for path in (tmp_path / name for name in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    with pytest.raises(DatasetError, match=told):
        list_images(tmp_path)


@pytest.mark.parametrize(
    ("name", "found", "hint"),
    [
        ("gone", "there is no such folder", None),
        ("notes.txt", "found a file", None),
        ("data.yaml", "found a file", "a data.yaml is for --labels; name the folder of the images"),
    ],
)
def test_what_stands_instead_of_a_folder_of_images_is_told(tmp_path, name, found, hint):
    if name != "gone":
        (tmp_path / name).touch()
    with pytest.raises(DatasetError) as told:
        list_images(tmp_path / name)
    assert (told.value.problem, told.value.hint) == (f"{tmp_path / name}: expected a folder of images, {found}", hint)
