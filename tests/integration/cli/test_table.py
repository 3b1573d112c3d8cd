"""`edge-deploy table` as a user types it."""

import json
import struct

import pytest

from edge.model.inspect import inspect_model
from tests.support import models
from tests.support.command_line import command
from tests.support.tables import minmax, pictures

SAMPLES = {
    "old": "TRT-7103-EntropyCalibration2\n000_net: 3c010a14\n(Unnamed Layer* 76) [PluginV2IOExt]_output_0: 3efa468d\n",
    "eight": "TRT-8401-EntropyCalibration2\ninput: 3d5b6231\na/b_1/depthwise__6:0: 3d5b6231\nConv__54:0: 3cf5d113\n",
    "ten": "TRT-100300-MinMaxCalibration\nimages: 3c010204\n/model.0/conv/Conv_output: 3eff0ee5\nx: y (1): 30810204\n",
    "broken": "TRT-8601-EntropyCalibration2\nimages: 00000000\nb: 7f800000\nc: ffc00001\nd: bc010204\ne: 00000001\n",
}


def table(*arguments, expected=0):
    return command("edge-deploy", "table", *arguments, expected=expected)


def imported(tmp_path, text, *options, has_errors=False):
    (tmp_path / "c.cache").write_text(text)
    is_bad = has_errors or text == SAMPLES["broken"]
    table("import", tmp_path / "c.cache", "-o", tmp_path / "t.calib.json", *options, expected=4 if is_bad else 0)
    return tmp_path / "t.calib.json"


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_a_cache_survives_import_and_export(tmp_path, text):
    path = imported(tmp_path, text)
    table("export", path, "-o", tmp_path / "again.cache", expected=4 if text == SAMPLES["broken"] else 0)

    header, *lines = (tmp_path / "again.cache").read_text().splitlines()
    assert header == text.splitlines()[0]
    assert sorted(lines) == sorted(text.splitlines()[1:])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["again.cache", "c.cache", "t.calib.json"]


def test_export_writes_the_header_that_is_asked_for(tmp_path):
    path = imported(tmp_path, SAMPLES["old"])
    options = ("--tensorrt", "10.16.2", "--calibrator", "MinMaxCalibration", "--json")
    shown = json.loads(table("export", path, "-o", tmp_path / "x", *options).stdout)

    assert (tmp_path / "x").read_text().startswith("TRT-101602-MinMaxCalibration\n")
    assert shown == {
        "cache": str(tmp_path / "x"),
        "tensorrt": "10.16.2",
        "calibrator": "MinMaxCalibration",
        "tensors": 2,
    }


def test_a_table_that_was_not_imported_is_exported_for_jetpack_6(tmp_path):
    path = imported(tmp_path, SAMPLES["old"])
    content = json.loads(path.read_text())
    del content["imported"]
    path.write_text(json.dumps({**content, "keep_float": ["/n"]}))
    told = table("export", path, "-o", tmp_path / "x").stderr

    assert (tmp_path / "x").read_text().startswith("TRT-100300-EntropyCalibration2\n")
    assert "a cache cannot say that 1 nodes are to stay in float" in told


def test_ranges_are_exported_for_who_sets_them_tensor_by_tensor(tmp_path):
    path = imported(tmp_path, SAMPLES["ten"])
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "keep_float": ["/n"]}))
    options = ("-o", tmp_path / "r.json", "--format", "ranges")
    shown = json.loads(table("export", path, *options, "--json").stdout)
    written = json.loads((tmp_path / "r.json").read_text())

    assert shown == {"ranges": str(tmp_path / "r.json"), "tensors": 3, "keep_float": 1}
    assert written["format"] == "edge.ranges/1"
    assert written["keep_float"] == ["/n"]
    assert written["ranges"].keys() == {"images", "/model.0/conv/Conv_output", "x: y (1)"}
    for name, digits in (line.rsplit(": ", 1) for line in SAMPLES["ten"].splitlines()[1:]):
        largest = 127 * struct.unpack(">f", bytes.fromhex(digits))[0]
        assert written["ranges"][name] == [-largest, largest]
    assert "ranges of 3 tensors, 1 nodes kept in float" in table("export", path, *options).stdout


ENDLESS = 'error: {}: tensor "b": expected a finite range above 0, got scale inf; '
LATE = "error: TensorRT 11.0.0 reads no calibration cache: from 11 on it has no calibrators; "
BELONG = "--tensorrt and --calibrator belong to a cache: leave them out with --format ranges"


@pytest.mark.parametrize(
    ("sample", "options", "told"),
    [
        (
            "broken",
            ("--format", "ranges"),
            ENDLESS,
        ),
        ("ten", ("--format", "ranges", "--tensorrt", "10.3.0"), BELONG),
        ("ten", ("--format", "ranges", "--calibrator", "MinMaxCalibration"), BELONG),
        (
            "ten",
            ("--tensorrt", "11.0.0"),
            LATE,
        ),
    ],
)
def test_what_cannot_be_exported_leaves_what_was_there(tmp_path, sample, options, told):
    path = imported(tmp_path, SAMPLES[sample])
    (tmp_path / "x").write_text("old")
    said = table("export", path, "-o", tmp_path / "x", *options, expected=2).stderr

    assert told.format(path) in said
    assert ("edge-deploy table qdq" in said) is ("11.0.0" in options)
    assert (tmp_path / "x").read_text() == "old"


@pytest.mark.parametrize(
    "text", ["", "hello\n", "TRT-8601-EntropyCalibration2\n", SAMPLES["ten"][:-3] + "zz\n", SAMPLES["ten"][:-5]]
)
def test_a_bad_cache_leaves_the_old_table_as_it_was(tmp_path, text):
    path = imported(tmp_path, SAMPLES["ten"])
    before = path.read_bytes()
    (tmp_path / "bad.cache").write_text(text)
    told = table("import", tmp_path / "bad.cache", "-o", path, expected=2).stderr

    assert told.startswith(f"error: {tmp_path}/bad.cache:")
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bad.cache", "c.cache", "t.calib.json"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_errors_of_a_table_and_exit_code_0_do_not_go_together(tmp_path, options):
    (tmp_path / "c.cache").write_text(SAMPLES["broken"])
    path = tmp_path / "t.calib.json"

    read = table("import", tmp_path / "c.cache", "-o", path, *options, expected=4)
    written = table("export", path, "-o", tmp_path / "again.cache", *options, expected=4)

    assert f"{path}: written as it came, with errors: 4" in read.stderr
    assert f"{tmp_path}/again.cache: written as it came, with errors: 4" in written.stderr
    assert read.stderr.count("error: ") == written.stderr.count("error: ") == 4


def test_lint_exits_with_4_where_there_is_an_error(tmp_path):
    path = imported(tmp_path, SAMPLES["broken"])
    shown = json.loads(table("lint", path, "--json", expected=4).stdout)

    codes = {finding["code"] for finding in shown["findings"] if finding["severity"] == "error"}
    assert codes == {"infinite-scale", "nan-scale", "negative-scale", "tiny-scale"}
    assert shown["errors"] == 4
    told = table("lint", path, "--model", models.yolov8(tmp_path / "m.onnx"), expected=4).stdout
    assert 'error: zero-scale: "images": the scale is 0' in told


def test_a_table_is_bound_to_its_model_and_to_no_other(tmp_path):
    model, other = models.yolov8(tmp_path / "m.onnx"), models.yolov8(tmp_path / "other.onnx", seed=1)
    text = "TRT-8601-EntropyCalibration2\nimages: 3c010204\nMul_2: 3efa468d\n"
    path = imported(tmp_path, text, "--model", model, has_errors=True)  # two tensors of many
    content = json.loads(table("show", path, "--json").stdout)

    assert content["model"] == {"name": "m", "sha256": inspect_model(model).sha256}
    assert content["preprocess"]["size"] == [96, 96]
    assert "other-model" in table("lint", path, "--model", other, expected=4).stdout
    assert "other-model" not in table("lint", path, "--model", model, expected=4).stdout


def test_show_and_diff_for_people(tmp_path):
    path = imported(tmp_path, SAMPLES["ten"])
    shown = table("show", path).stdout
    (tmp_path / "b").mkdir()
    other = imported(tmp_path / "b", SAMPLES["ten"].replace("3c010204", "3c810204"))

    assert "TensorRT 10.3.0, MinMaxCalibration" in shown
    assert "           1    0.00787402  imported    images" in shown
    assert "1 -> 2            x 2           images" in table("diff", path, other).stdout
    assert json.loads(table("diff", path, path, "--json").stdout)["equal"] == 3


def cache_of(model):
    """A calibration cache of every tensor's own largest value, as TensorRT's MinMax calibrator would write it."""
    lines = [
        f"{name}: {struct.pack('>f', amax / 127).hex()}\n"
        for name, amax in minmax(model, pictures()).items()
        if amax > 0
    ]
    return "TRT-100300-MinMaxCalibration\n" + "".join(lines)


def test_a_table_turns_a_float_model_into_one_that_runs_in_int8(tmp_path):
    model = models.yolov8(tmp_path / "m.onnx")
    path = imported(tmp_path, cache_of(model), "--model", model)

    shown = json.loads(table("qdq", path, "--model", model, "-o", tmp_path / "q.onnx", "--json").stdout)

    assert shown["int8_mac_share"] > 0.9
    spec = inspect_model(tmp_path / "q.onnx")
    assert spec.is_quantized
    assert spec.family == inspect_model(model).family
    assert "layers in INT8" in table("qdq", path, "--model", model, "-o", tmp_path / "q.onnx").stdout


def test_a_table_of_another_model_makes_nothing(tmp_path):
    model, other = models.yolov8(tmp_path / "m.onnx"), models.yolov8(tmp_path / "other.onnx", seed=1)
    path = imported(tmp_path, cache_of(model), "--model", model)

    told = table("qdq", path, "--model", other, "-o", tmp_path / "q.onnx", expected=2).stderr

    assert f"{path}: " in told
    assert not (tmp_path / "q.onnx").exists()
