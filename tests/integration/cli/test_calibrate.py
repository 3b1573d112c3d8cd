"""`edge-deploy calibrate` as a user types it, on a tiny model and drawn images."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import cv2
import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, quantize_static

from edge.calibrate.findings import facts_of_model
from edge.calibrate.lint import lint_table
from edge.calibrate.table import read_table
from edge.engine.kind import load_kind, quick_kind, usable_kind
from edge.model.graph import load_graph
from edge.model.inspect import inspect_model
from edge.model.qdq import corrected_tensors, insert_qdq
from tests.support import command_line, models
from tests.support.clips import cmyk_jpeg, draw
from tests.support.few_layers import few_layers, write_labels
from tests.support.tables import minmax, pictures, quantized_model
from tests.support.wait import QuietWatch
from tests.unit.model.test_qdq_read import OnePicture

pytestmark = pytest.mark.slow_but(reason="commands on further models and options: the first row of each test is quick")

KEYS = [
    "table", "model", "model_sha256", "method", "images", "tensors", "evidence", "int8_mac_share", "float_layers",
    "errors", "unlabelled", "left_out", "notes", "seconds",
]  # fmt: skip


def by_digest(place):
    """The images as `calibrate` orders them: every second one, from the first, proves the ranges of the others."""
    return sorted((place / "images").iterdir(), key=lambda path: hashlib.sha256(path.read_bytes()).digest())


def command(*arguments, expected=0):
    return command_line.command("edge-deploy", *arguments, expected=expected)


def calibrate(place, *options, images="images", model="m.onnx", expected=0):
    given = () if images is None else ("--images", place / images)
    return command("calibrate", place / model, *given, *options, expected=expected)


def refused(place, *options, images="images", model="m.onnx", expected=2):
    """Calibrate, which has to be refused in one clear line with nothing written; return that line."""
    before = content_of(place)
    done = calibrate(place, *options, images=images, model=model, expected=expected)
    assert content_of(place) == before
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if ": about " not in line and not line.startswith("[ WARN:")]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("error: ")
    return told[0]


def usage_error(place, *options, images="images"):
    before = content_of(place)
    told = calibrate(place, *options, images=images, expected=2).stderr
    assert content_of(place) == before
    return told


def content_of(place):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(place.rglob("*"))}


@pytest.fixture(scope="module")
def proven(origin, tmp_path_factory):
    """A place with a table that `auto` made with labels, and what the command said."""
    place = tmp_path_factory.mktemp("proven") / "p"
    shutil.copytree(origin, place)
    done = calibrate(place, "--labels", place / "labels", "--max-drop", "100", "--json")
    return place, json.loads(done.stdout), done.stderr


def test_the_table_is_written_beside_the_model_and_is_without_fault(proven):
    place, shown, _ = proven
    spec = inspect_model(place / "m.onnx")
    table, facts = read_table(place / "m.calib.json"), facts_of_model(spec)

    findings = list(lint_table(table, facts))
    assert not [finding for finding in findings if finding.severity.value == "error"]
    assert set(table.tensors) == set(facts.activations)
    assert table.model.sha256 == spec.sha256
    assert table.preprocess_sha256 == spec.preprocess.sha256
    assert (table.method, table.dataset.images) == ("auto", 4)
    assert set(table.keep_float) == set(table.float_reasons) <= facts.node_names
    assert all(table.float_reasons.values())
    assert shown["table"] == str(place / "m.calib.json")
    command("table", "lint", place / "m.calib.json", "--model", place / "m.onnx")


@pytest.mark.slow(reason="searches a table")
@pytest.mark.parametrize(
    ("options", "is_centred"), [((), True), (("--symmetric",), False), (("--method", "mse"), False)]
)
def test_a_searched_table_has_centres_unless_asked_otherwise(place, options, is_centred):
    calibrate(place, *options)

    assert read_table(place / "m.calib.json").centred is is_centred


def test_the_table_has_the_means_by_which_biases_are_corrected(proven):
    place, _, _ = proven
    table, spec = read_table(place / "m.calib.json"), inspect_model(place / "m.onnx")
    graph = load_graph(place / "m.onnx")

    assert {name for name, tensor in table.tensors.items() if tensor.means} == set(corrected_tensors(graph))
    pixels = np.mean([cv2.imread(str(path)).mean() for path in by_digest(place)[1::2]]) / 255  # without the border
    assert 0.5 * pixels < np.mean(table.tensors["images"].means) < 1.5 * pixels
    ranges = {name: tensor.amax for name, tensor in table.tensors.items()}
    bare = insert_qdq(place / "m.onnx", spec, ranges=ranges, keep_float=table.keep_float)
    assert quantized_model(table, spec).model != bare.model


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--method", "mse"), "not proven"), (("--method", "mse", "--labels", "labels", "--max-drop", "100"), "proven")],
)
def test_the_last_line_says_what_is_proven(place, options, word):
    table = place / "my table.calib.json"
    shown = calibrate(
        place, *[place / option if option == "labels" else option for option in options], "-o", table
    ).stdout.splitlines()

    assert re.match(f"verdict +{word}: ", shown[-1])
    assert word == "proven" or shown[-1].endswith(f" --table '{table}'")


def test_evidence_and_json_have_the_stable_keys(proven):
    place, shown, _ = proven
    evidence = json.loads((place / "m.calib.json").read_text())["evidence"]

    assert list(shown) == KEYS
    assert set(evidence) == {"metric", "images", "float", "int8", "int8_mac_share", "uncertainty"}
    assert shown["evidence"] == evidence
    assert (evidence["metric"], evidence["images"]) == ("mAP50-95", 4)
    assert evidence["float"] > 0.3
    assert 0 < evidence["int8_mac_share"] <= 1
    assert 0 <= evidence["uncertainty"] < 1  # 0: INT8 finds what float finds, on each of the four
    assert list(shown["seconds"]) == ["observe", "means", "float", "search", "prove"]
    assert shown["left_out"] == []


def test_few_images_are_warned_of_and_labels_promise(proven):
    _, shown, told = proven

    assert "ranges come from 4 images only" in told
    assert shown["notes"] == re.findall("(?m)^warning: (.*)$", told)
    assert "nothing is promised" not in told


def test_other_commands_take_the_table(proven, tmp_path):
    place, shown, _ = proven
    model, table = place / "m.onnx", place / "m.calib.json"
    folders = ("--images", place / "images", "--labels", place / "labels")

    measured = json.loads(command("evaluate", model, *folders, "--table", table, "--json").stdout)
    compared = json.loads(command("compare", model, "--table", table, "--images", place / "images", "--json").stdout)
    exported = command("table", "export", table, "-o", tmp_path / "c.cache")
    lines = command("table", "show", table).stdout

    assert "warning: means: a cache does not correct biases" in exported.stderr
    assert "warning: centred: a cache has no centres" in exported.stderr
    assert "centred" in lines
    assert f"of {len(corrected_tensors(load_graph(model)))} tensors, to correct biases in a Q/DQ model" in lines
    assert ", difference +- 0." in lines
    assert measured["int8_mac_share"] == pytest.approx(shown["int8_mac_share"], abs=1e-4)
    kept = {layer["name"] for layer in compared["layers"] if layer["precision"] == "float"}
    assert kept >= set(shown["float_layers"])
    assert len((tmp_path / "c.cache").read_text().splitlines()) == 1 + shown["tensors"]


@pytest.mark.parametrize("method", ["mse", "auto"])
def test_names_order_and_batch_of_the_images_change_no_byte(place, method):
    other = place / "renamed"
    other.mkdir()
    for number, path in enumerate(sorted((place / "images").iterdir())):
        shutil.copy(path, other / f"{9 - number}-{path.name}")

    calibrate(place, "--method", method, "-o", place / "one.json")
    calibrate(place, "--method", method, "-o", place / "two.json", "--batch", 3, images="renamed")

    assert (place / "one.json").read_bytes() == (place / "two.json").read_bytes()


@pytest.mark.slow(reason="a whole search")
def test_auto_without_labels_says_that_nothing_is_promised(place):
    done = calibrate(place, "--json")
    shown = json.loads(done.stdout)

    assert "without --labels nothing is promised about mAP; measure it with edge-deploy evaluate --table" in done.stderr
    assert shown["evidence"]["metric"] == "mAP50-95 against float"
    assert shown["evidence"]["float"] == 1.0


def test_a_single_method_without_labels_has_no_evidence(place):
    shown = json.loads(calibrate(place, "--method", "minmax", "--json").stdout)

    assert (shown["evidence"], shown["images"], shown["method"], shown["errors"]) == (None, 8, "minmax", {})
    ranges = read_table(place / "m.calib.json").tensors
    assert not any(tensor.means for tensor in ranges.values())
    assert not read_table(place / "m.calib.json").centred
    assert ranges["images"].amax == pytest.approx(_largest_pixel(place) / 255)


def _largest_pixel(place):
    return max(int(cv2.imread(str(path)).max()) for path in (place / "images").iterdir())


@pytest.mark.parametrize(("method", "drop", "told_as"), [("mse", "0%", "0 % of float's,"), ("auto", "0", "0,")])
def test_a_promise_that_int8_cannot_keep_is_told_and_writes_nothing(place, method, drop, told_as):
    few_layers(place / "hard.onnx", widest=300.0)
    shutil.rmtree(place / "labels")
    write_labels(place / "labels", inspect_model(place / "hard.onnx"), sorted((place / "images").iterdir()))
    (place / "hard.calib.json").write_text("an old table")
    options = ("--method", method, "--labels", place / "labels", "--max-drop", drop)

    told = refused(place, *options, model="hard.onnx", expected=4)

    assert "so nothing was written" in told
    assert "run this model in fp16" in told
    assert ("leave out --method" in told) is (method == "mse")
    assert f"promised were at most {told_as}" in told
    assert (place / "hard.calib.json").read_text() == "an old table"


def test_layers_that_are_kept_in_float_are_in_the_table_with_their_reason(place):
    calibrate(place, "--method", "mse", "--keep-float", "Conv_0", "--keep-float", "Conv_0")
    table = read_table(place / "m.calib.json")

    assert table.keep_float == ("Conv_0",)
    assert dict(table.float_reasons) == {"Conv_0": "asked for"}


@pytest.mark.parametrize(
    ("options", "images", "problem"),
    [
        ((), None, "Missing option '--images'"),
        (("--max-drop", 1), "images", "--max-drop is a promise about mAP: add --labels"),
        (("--max-drop", -1, "--labels", "labels"), "images", "--max-drop"),
        (("--max-drop", "nan", "--labels", "labels"), "images", "expected mAP points from 0 to 100"),
        (("--max-drop", "3 points", "--labels", "labels"), "images", "or a percentage such as 3%"),
        (("--symmetric", "--method", "mse"), "images", "symmetric already"),
        (("--batch", 0), "images", "--batch"),
        (("--method", "kl"), "images", "--method"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(place, monkeypatch, options, images, problem):
    monkeypatch.chdir(place)

    assert problem in usage_error(place, *options, images=images)


def test_too_few_images_to_prove_with(place):
    draw(place / "few", 3)

    assert "few: 3 images, expected at least 4" in refused(place, images="few")


@pytest.mark.parametrize("method", ["mse", "auto"])
def test_images_that_cannot_be_decoded_are_counted_and_named(place, method):
    (place / "images" / "cut.png").write_bytes((place / "images" / "0.png").read_bytes()[:60])
    (place / "images" / "empty.jpg").write_bytes(b"")

    told = refused(place, "--method", method)

    assert "2 of 10 images cannot be decoded" in told
    assert "cut.png" in told
    assert "empty.jpg" in told
    assert "--skip-undecodable" in told


def test_images_that_cannot_be_decoded_are_left_out_when_asked_and_still_named(place):
    (place / "images" / "cut.png").write_bytes((place / "images" / "0.png").read_bytes()[:60])

    done = calibrate(place, "--method", "mse", "--skip-undecodable", "--json")

    shown = json.loads(done.stdout)
    assert "could not be decoded and were left out: cut.png" in done.stderr
    assert (shown["images"], shown["left_out"]) == (8, [str(place / "images" / "cut.png")])


def test_a_folder_of_nothing_that_can_be_decoded(place):
    (place / "bad").mkdir()
    (place / "bad" / "x.png").write_bytes(b"x")

    assert "none of the 1 images can be decoded" in refused(place, "--skip-undecodable", images="bad")


def test_copies_of_an_image_are_left_out_counted_and_named(place):
    before = calibrate(place, "--method", "mse", "--json")
    shutil.copy(place / "images" / "3.png", place / "images" / "zy.png")
    cv2.imwrite(str(place / "images" / "zz.bmp"), cv2.imread(str(place / "images" / "3.png")))

    done = calibrate(place, "--method", "mse", "--json")

    assert "2 of 10 images are copies of another one, and are left out: zy.png = 3.png, zz.bmp = 3.png" in done.stderr
    assert json.loads(done.stdout)["images"] == json.loads(before.stdout)["images"] == 8


def test_many_qualities_of_one_picture_are_no_many_images(place):
    shutil.rmtree(place / "images")
    (place / "images").mkdir()
    picture = cv2.resize(np.random.default_rng(3).integers(0, 255, (9, 12, 3), np.uint8), (400, 300))
    for quality in range(60, 92, 4):
        cv2.imwrite(str(place / "images" / f"{quality}.jpg"), picture, [cv2.IMWRITE_JPEG_QUALITY, quality])

    done = calibrate(place, "--method", "mse", "--json")

    assert "7 of 8 images look like another one" in done.stderr
    assert read_table(place / "m.calib.json").dataset.variety.alike == 7
    (found,) = json.loads(command("table", "lint", place / "m.calib.json", "--json").stdout)["findings"]
    assert found["code"] == "alike-images"


def test_objects_and_cameras_of_the_images_are_in_the_table(place):
    """Boxes are counted line by line in the label files, of all images, whichever of them are held out."""
    lines = [line for path in (place / "labels").glob("*.txt") for line in path.read_text().splitlines() if line]
    for path in [*(place / "images").iterdir(), *(place / "labels").iterdir()]:
        if path.stem.isdigit():
            path.rename(path.with_stem(f"lobby-{int(path.stem):06d}"))

    calibrate(place, "--method", "mse", "--labels", place / "labels", "--max-drop", "100", "-o", place / "t.json")

    variety = read_table(place / "t.json").dataset.variety
    assert (variety.images, variety.cameras) == (4, {"lobby": 4})
    assert (variety.objects.by, variety.objects.images) == ("labels", 8)
    assert sum(variety.objects.counts.values()) == len(lines)
    shown = command("table", "show", place / "t.json").stdout
    assert re.search("^cameras +lobby 4$", shown, re.MULTILINE)


def test_pictures_that_prove_and_look_like_one_that_ranges_come_from_are_named(place):
    for path in sorted((place / "images").iterdir()):
        large = cv2.resize(cv2.imread(str(path)), (800, 600), interpolation=cv2.INTER_NEAREST)
        cv2.imwrite(str(path), large)
        cv2.imwrite(str(place / "images" / f"again{path.stem}.jpg"), large)

    done = calibrate(place, "--method", "mse", "--labels", place / "labels", "--max-drop", "100", "--json")

    (note,) = json.loads(done.stdout)["evidence"]["notes"]
    assert re.fullmatch(r"\d of 8 images that prove the ranges look like one that these come from: .* = .*", note)
    assert f"warning: {note}" in done.stderr


def test_damage_inside_a_picture_is_refused_or_named_in_the_evidence(place):
    picture = cv2.resize(cv2.imread(str(place / "images" / "0.png")), (800, 600), interpolation=cv2.INTER_NEAREST)[::-1]
    content = cv2.imencode(".jpg", picture)[1].tobytes()
    (place / "images" / "torn.jpg").write_bytes(content[: len(content) // 2] + content[len(content) * 2 // 3 :])

    options = ("--method", "mse", "--labels", place / "labels", "--max-drop", "100")

    assert "torn.jpg: " in refused(place, *options)
    done = calibrate(place, *options, "--skip-undecodable", "--json")
    assert json.loads(done.stdout)["evidence"]["left_out"] == ["torn.jpg"]
    assert "left out: torn.jpg" in done.stderr
    assert "torn.jpg" in command("table", "show", place / "m.calib.json").stdout


def test_grey_sixteen_bit_and_cmyk_images_are_taken(place):
    random = np.random.default_rng(5)
    cv2.imwrite(str(place / "images" / "grey.png"), random.integers(0, 256, (40, 50), np.uint8))
    cv2.imwrite(str(place / "images" / "deep.png"), random.integers(0, 65536, (40, 50, 3), np.uint16))
    cmyk_jpeg(place / "images" / "print.jpg", (10, 200, 30, 40))

    assert json.loads(calibrate(place, "--method", "mse", "--json").stdout)["images"] == 11


def test_labels_of_other_images_are_refused(place):
    (place / "others").mkdir()
    (place / "others" / "elsewhere.txt").write_text("0 0.5 0.5 0.2 0.2\n")

    told = refused(place, "--method", "mse", "--labels", place / "others")

    assert "4 images have no labelled box" in told
    assert "check that labels and images have the same names" in told


def test_pictures_without_labels_are_counted_and_named(place):
    proving, observed, *_ = by_digest(place)
    for image in (proving, observed):
        (place / "labels" / f"{image.stem}.txt").unlink()

    done = calibrate(place, "--method", "mse", "--labels", place / "labels", "--max-drop", "100", "--json")

    shown = json.loads(done.stdout)
    assert (shown["unlabelled"], shown["evidence"]["unlabelled"]) == (1, [proving.stem])
    assert f"1 of 4 images have no labels, and were taken as empty: {proving.stem}" in done.stderr
    assert proving.stem in command("table", "show", place / "m.calib.json").stdout.partition("unlabelled")[2]


@pytest.mark.parametrize("method", ["mse", "auto"])
def test_nothing_is_promised_on_labels_that_the_float_model_does_not_find(place, method):
    for path in (place / "labels").iterdir():
        path.write_text("0 0.02 0.02 0.03 0.03\n1 0.97 0.97 0.05 0.05\n")

    told = refused(place, "--method", method, "--labels", place / "labels", "--max-drop", "100", expected=4)

    assert "the float model reaches mAP50-95 0.0" in told
    assert "nothing can be promised" in told


def test_nothing_is_promised_on_one_picture_with_labels(place):
    for path in (place / "labels").iterdir():
        if path.stem != by_digest(place)[0].stem:
            path.write_text("")

    told = refused(place, "--method", "mse", "--labels", place / "labels", expected=4)

    assert "tell too little" in told


def test_a_model_that_carries_pairs_already_is_refused(place):
    spec = inspect_model(place / "m.onnx")
    made = insert_qdq(place / "m.onnx", spec, ranges=minmax(place / "m.onnx", pictures()), keep_float=())
    (place / "q.onnx").write_bytes(made.model)

    assert "q.onnx: " in refused(place, model="q.onnx")


def test_a_model_of_integer_operators_is_refused_before_anything_is_looked_at(place):
    source, made = str(place / "m.onnx"), str(place / "i.onnx")
    quantize_static(source, made, OnePicture(pictures()), quant_format=QuantFormat.QOperator)

    done = command("calibrate", place / "i.onnx", "--images", place / "images", expected=2)

    assert done.stderr.startswith(f"error: {place / 'i.onnx'}: ")
    assert "observe" not in done.stderr


def test_a_layer_that_is_not_there_is_named(place):
    told = refused(place, "--method", "mse", "--keep-float", "Conv_0", "--keep-float", "Conv_O")

    assert '--keep-float names "Conv_O", which is no layer that could run in INT8 (nearest: Conv_' in told
    assert "roofline MODEL --machine NAME lists them" in told


@pytest.mark.parametrize("stage", ["observe", "search"])
def test_ctrl_c_leaves_nothing_behind(place, stage):
    models.yolov8(place / "slow.onnx", batch=1)
    draw(place / "images", 40, seed=9, prefix="more-")
    before = content_of(place)
    arguments = ("calibrate", "slow.onnx", "--images", "images")
    process = subprocess.Popen(
        [sys.executable, "-m", "edge.cli.edge_deploy", *arguments],
        cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        while stage not in (line := process.stderr.readline()):
            assert line
        watch = QuietWatch()
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    finally:
        process.kill()

    assert watch.seconds() < 15
    assert process.returncode == 130, told
    assert "interrupted" in told
    assert "Traceback" not in told
    assert content_of(place) == before


@pytest.mark.slow(reason="commands on further models and options")
def test_where_tensorrt_runs_a_search_builds_a_plan_for_the_proof_only(place, monkeypatch, fake_board):
    kind, built = load_kind("tensorrt"), []
    build = type(kind).build

    def counted(self, model, request, **more):
        built.append(request.precision.value)
        return build(self, model, request, **more)

    monkeypatch.setattr(type(kind), "build", counted)

    calibrate(place, "--labels", place / "labels", "--max-drop", "100")

    assert built == ["fp32", "int8"]
    table = read_table(place / "m.calib.json")
    assert (table.method, table.made_by.engine) == ("auto", "tensorrt 10.3.0")


@pytest.mark.slow(reason="commands on further models and options")
def test_where_tensorrt_runs_what_is_quick_is_taken_as_it_is(fake_board):
    assert usable_kind().name == "tensorrt"
    assert quick_kind(usable_kind()).name == "openvino"
    assert quick_kind(usable_kind("openvino")).name == "openvino"
