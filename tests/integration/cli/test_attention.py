"""Detectors with attention, open in their sizes: every range is that of the same weights fixed at one image."""

import json

import cv2
import numpy as np
import pytest

from edge.calibrate.findings import facts_of_model
from edge.calibrate.table import read_table
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import quantizable_tensors
from tests.support.command_line import command
from tests.support.few_layers import ATTENTION_SIZE, KINDS, attention
from tests.support.onnxruntime_engine import OnnxRuntimeActivations, OnnxRuntimeEngine

IMAGES = 4
METHODS = ["minmax", "percentile", "mse", "entropy"]
WITHIN = 1e-6


@pytest.fixture(scope="module", params=KINDS)
def place(request, tmp_path_factory):
    """The same weights for any batch and for one image, and pictures."""
    folder = tmp_path_factory.mktemp(request.param)
    attention(folder / "open.onnx", request.param)
    attention(folder / "fixed.onnx", request.param, batch=1)
    random = np.random.default_rng(0)
    pixels = np.stack(
        [
            cv2.resize(random.integers(0, 256, (8, 8, 3), np.uint8), (ATTENTION_SIZE, ATTENTION_SIZE))
            for _ in range(IMAGES)
        ]
    )
    (folder / "images").mkdir()
    for number, picture in enumerate(pixels):
        cv2.imwrite(str(folder / "images" / f"{number}.png"), picture[..., ::-1])
    np.save(folder / "pixels.npy", pixels)
    return folder


def edge(*arguments):
    return command("edge-deploy", *arguments)


def calibrated(place, name, method):
    out = place / f"{name}-{method}.json"
    edge("calibrate", place / f"{name}.onnx", "--images", place / "images", "--method", method, "-o", out)
    return read_table(out)


def run(engine, pixels):
    engine.canvases[0][: len(pixels)] = pixels
    engine.start(0, len(pixels))
    return engine.wait(0)


def ranges(place, name, table):
    """Amax of each tensor in the order of the graph; nodes have other names where there are Shapes between them."""
    names = [one for one in facts_of_model(inspect_model(place / f"{name}.onnx")).activations if one in table.tensors]
    assert len(names) == len(table.tensors)
    return [table.tensors[one].amax for one in names]


def assert_equal_ranges(place, method):
    found, expected = (ranges(place, name, calibrated(place, name, method)) for name in ("open", "fixed"))

    assert len(found) > 40
    np.testing.assert_allclose(found, expected, rtol=WITHIN)


@pytest.mark.parametrize("method", METHODS)
def test_ranges_are_those_of_the_same_file_fixed_at_one_image(place, method):
    assert_equal_ranges(place, method)


@pytest.mark.slow(reason="a search tries some hundred models")
@pytest.mark.parametrize("place", ["area"], indirect=True)
def test_a_search_ends_with_the_ranges_of_the_same_file_fixed_at_one_image(place):
    assert_equal_ranges(place, "auto")


def test_the_largest_values_are_those_of_onnx_runtime(place):
    table, spec = calibrated(place, "open", "minmax"), inspect_model(place / "open.onnx")
    names = quantizable_tensors(load_graph(spec.path))

    truth = run(OnnxRuntimeActivations(spec, names, max_batch=IMAGES), np.load(place / "pixels.npy"))

    for name in names:
        np.testing.assert_allclose(table.tensors[name].amax, np.abs(truth[name]).max(), rtol=1e-4, err_msg=name)


def label(place, model):
    """Write what a model finds best in ONNX Runtime as the labels."""
    (place / "labels").mkdir(exist_ok=True)
    found = run(OnnxRuntimeEngine(inspect_model(model), max_batch=IMAGES), np.load(place / "pixels.npy"))
    for number, rows in enumerate(found):
        (place / "labels" / f"{number}.txt").write_text("".join(lines(rows)))


def lines(rows):
    if rows.shape[1] == 6:
        corners, scores, kinds = rows[:, :4], rows[:, 4], rows[:, 5]
    else:
        centres, sizes, kinds, scores = rows[:2].T, rows[2:4].T, rows[4:].argmax(axis=0), rows[4:].max(axis=0)
        corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)
    corners = np.clip(corners / ATTENTION_SIZE, 0, 1)
    for row in np.argsort(-scores)[:20]:
        (left, top, right, bottom), kind = corners[row], int(kinds[row])
        if right - left > 0.05 and bottom - top > 0.05:
            yield f"{kind} {(left + right) / 2} {(top + bottom) / 2} {right - left} {bottom - top}\n"


@pytest.mark.slow(reason="every layer is timed, and four models are compiled")
def test_layers_are_compared_and_int8_finds_what_onnx_runtime_finds_with_the_file(place):
    calibrated(place, "open", "mse")
    table, model = place / "open-mse.json", place / "open.onnx"

    compared = json.loads(edge("compare", model, "--table", table, "--images", place / "images", "--json").stdout)
    edge("table", "qdq", table, "--model", model, "-o", place / "int8.onnx")
    label(place, place / "int8.onnx")
    folders = ("--images", place / "images", "--labels", place / "labels")
    by_table = json.loads(edge("evaluate", model, *folders, "--table", table, "--json").stdout)
    as_it_is = json.loads(edge("evaluate", place / "int8.onnx", *folders, "--precision", "int8", "--json").stdout)

    products = [layer for layer in compared["layers"] if layer["op_type"] == "MatMul"]
    assert len(products) == (4 if "area" in place.name else 2)
    assert all(layer["sqnr_db"] > 10 for layer in products)
    assert by_table["map50_95"] == as_it_is["map50_95"]
    assert by_table["map50_95"] > 0.5
