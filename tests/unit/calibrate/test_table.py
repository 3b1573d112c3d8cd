"""Tables on disk and what differs between two; files that belong together: all of them are new, or none is."""

import contextlib
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.calibrate.diff import TableDiff, diff_tables
from edge.calibrate.files import write_all, write_bytes
from edge.calibrate.table import (
    DatasetId,
    Evidence,
    Imported,
    MadeBy,
    ModelId,
    Objects,
    TensorRange,
    Variety,
    read_table,
    table_text,
    write_table,
)
from edge.errors import CalibrationError
from edge.types import ImageSize, Preprocess
from tests.support.values import calibration_table

PREPROCESS = Preprocess(size=ImageSize(width=64, height=32), mean=(0.1, 0.2, 0.3))


def full_table(**changes):
    table = calibration_table(
        preprocess=PREPROCESS,
        model=ModelId(name="m", sha256="ab" * 32),
        dataset=DatasetId(images=128, sha256="cd" * 32),
        method="auto",
        made_by=MadeBy(edge="0.1.0", engine="openvino 2026.4"),
        tensors={"images": TensorRange(amax=1.0, method="minmax"), "/a: b [é]": TensorRange(amax=2.5, method="mse")},
        keep_float=("/z", "/dfl/Conv"),
        evidence=Evidence(metric="mAP50-95", images=64, float_=0.335, int8=0.333, int8_mac_share=0.97),
    )
    return msgspec.structs.replace(table, **changes)


EXPECTED = """{{"format": "edge.calib/1",
 "model": {{"name": "m", "sha256": "{}"}},
 "preprocess": {},
 "preprocess_sha256": "{}",
 "dataset": {{"images": 128, "sha256": "{}"}},
 "method": "auto",
 "made_by": {{"edge": "0.1.0", "engine": "openvino 2026.4"}},
 "tensors": {{
  "/a: b [é]": {{"amax": 2.5, "method": "mse"}},
  "images": {{"amax": 1.0, "method": "minmax"}}
 }},
 "keep_float": [
  "/dfl/Conv",
  "/z"
 ],
 "evidence": {{"metric": "mAP50-95", "images": 64, "float": 0.335, "int8": 0.333, "int8_mac_share": 0.97}}}}
""".format("ab" * 32, json.dumps(PREPROCESS.as_json()), PREPROCESS.sha256, "cd" * 32)


def test_the_file_is_as_the_format_says(tmp_path):
    write_table(tmp_path / "t", full_table())

    assert (tmp_path / "t").read_text(encoding="utf-8") == EXPECTED


def test_reading_gives_what_was_written_and_writing_the_same_bytes(tmp_path):
    write_table(tmp_path / "t", full_table(imported=Imported(tensorrt="8.6.1", calibrator="MinMaxCalibration")))
    first = (tmp_path / "t").read_bytes()
    table = read_table(tmp_path / "t")
    write_table(tmp_path / "t", table)

    assert (tmp_path / "t").read_bytes() == first
    assert table.evidence == full_table().evidence
    assert table.imported.calibrator == "MinMaxCalibration"


def test_means_centres_and_uncertainty_are_written_where_there_are_some_and_read_again(tmp_path):
    tensors = {"images": TensorRange(amax=1.0, method="mse", means=(0.25, -1.5, 0.0))}
    evidence = msgspec.structs.replace(full_table().evidence, uncertainty=0.0055)
    table = full_table(tensors=tensors, evidence=evidence, centred=True, padded=True)
    write_table(tmp_path / "t", table)

    written = (tmp_path / "t").read_text(encoding="utf-8")
    assert '"centred": true,\n "padded": true,\n' in written
    assert '  "images": {"amax": 1.0, "method": "mse", "means": [0.25, -1.5, 0.0]}\n' in written
    assert '"int8_mac_share": 0.97, "uncertainty": 0.0055}}' in written
    read = read_table(tmp_path / "t")
    assert (read.tensors, read.evidence, read.centred, read.padded) == (tensors, evidence, True, True)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False), min_size=0, max_size=6
    )
)
def test_any_names_and_ranges_survive(tmp_path_factory, ranges):
    path = tmp_path_factory.mktemp("t") / "t"
    table = full_table(tensors={name: TensorRange(amax=amax, method="x") for name, amax in ranges.items()})
    write_table(path, table)

    assert read_table(path).tensors == table.tensors
    assert json.loads(path.read_text(encoding="utf-8"))["tensors"].keys() == ranges.keys()


@pytest.mark.parametrize(("literal", "kind"), [('"nan"', math.isnan), ("NaN", math.isnan), ('"-inf"', math.isinf)])
def test_ranges_that_are_no_numbers_are_read_so_that_lint_sees_them(tmp_path, literal, kind):
    (tmp_path / "t").write_text(EXPECTED.replace("2.5", literal), encoding="utf-8")
    tensor = read_table(tmp_path / "t").tensors["/a: b [é]"]

    assert kind(tensor.amax)
    assert not tensor.is_usable


BAD = [
    # A later word on how levels lie: refused, and not misread.
    ('"method": "auto",', '"method": "auto",\n "later": true,', r"t:7: later: unknown key; remove it"),
    ('"amax": 2.5', '"amax": "2.5"', r't:9: tensors\[/a: b \[é\]\]\.amax: got "2\.5", expected float'),
    ('"amax": 2.5', '"amax": true', r"t:9: .*amax: got true, expected float"),
    ('"amax": 2.5, ', "", r"t:9: tensors\[/a: b \[é\]\]: 'amax' "),
    ('"amax": 1.0', '"amaks": 1.0, "amax": 1', r"t:10: tensors\.images\.amaks: unknown key; remove it"),
    ('"amax": 1.0', '"amax": 1.0, "amax": 2.0', r"t:10: tensors\.images\.amax: given twice, first in line 10"),
    (
        '"images": 128',
        '"images": 1' + "0" * 5000,
        r"t: expected a calibration table .*, a whole number has 5001 digits",
    ),
    ('"int8": 0.333', '"int8": 1e999', r"t:\d+: evidence\.int8: expected a number that a double holds"),
    ('"int8": 0.333', '"int8": NaN', r"t:\d+: evidence\.int8: expected a number that a double holds"),
    ('  "images": {', '  "/a: b [é]": {', r"t:10: tensors\[/a: b \[é\]\]: given twice, first in line 9"),
    ('"amax": 1.0', '"amax": 1.0, "scale_hex": "3c01"', r"t:10: tensors\.images\.scale_hex: got '3c01', expected 8"),
    ('{"amax": 1.0, "method": "minmax"}', "7", r"t:10: tensors\.images: expected an object, got 7"),
    ("edge.calib/1", "edge.calib/2", r"t:1: format: expected 'edge\.calib/1', got 'edge\.calib/2'"),
    ('"format": "edge.calib/1",\n', "", r"t:1: expected 'edge\.calib/1', got None"),
    (' "method": "auto",\n', "", r"t:1: 'method' "),
    ('"method": "auto"', '"methods": "auto"', r"t:6: methods: |t:1: 'method' "),
    ('"images": 128', '"images": 12.5', r"t:5: dataset\.images: got 12\.5, expected int"),
    ('  "/z"', "  3", r"t:14: keep_float\[1\]: got 3, expected str"),
    ('"mean": [0.1', '"mean": [0.9', r"t:4: preprocess_sha256: got '.*', but preprocess has .*; one was edited"),
    ('"amax": 1.0', '"amax": 1.0.0', r"t:10: expected a calibration table \(edge\.calib/1\), this is no JSON"),
    ("[é]", "\\ud800", r"t: expected a calibration table .*half a character"),
    (EXPECTED, "", r"t:1: expected a calibration table .* this is no JSON"),
    (EXPECTED, "[1, 2]", r"t:1: expected an object, got \[1, 2\]"),
    (EXPECTED, "[" * 100_000, r"t: expected a calibration table .* nested too deep"),
    (EXPECTED, '{"format": "edge.calib/1"}', r"t:1: 'tensors' "),
]


@pytest.mark.parametrize(("before", "after", "message"), BAD)
def test_a_wrong_file_is_refused_with_line_and_key(tmp_path, before, after, message):
    assert before in EXPECTED
    (tmp_path / "t").write_text(EXPECTED.replace(before, after), encoding="utf-8")
    with pytest.raises(CalibrationError, match=message):
        read_table(tmp_path / "t")


@given(st.data())
def test_a_file_cut_or_changed_anywhere_is_read_or_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("t") / "t"
    raw = bytearray(EXPECTED.encode())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(raw)
    with contextlib.suppress(CalibrationError):
        table_text(read_table(path))


def test_keys_in_another_order_and_layout_are_read_alike(tmp_path):
    content = json.loads(EXPECTED)
    (tmp_path / "t").write_text(json.dumps(dict(reversed(content.items())), indent=4))

    assert table_text(read_table(tmp_path / "t")) == EXPECTED


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CalibrationError, match="absent: cannot be read: No such file"):
        read_table(tmp_path / "absent")


def test_writing_replaces_whole_files_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "t"
    write_bytes(path, b"old")
    monkeypatch.setattr("os.fsync", _disk_is_full)
    with pytest.raises(CalibrationError, match="t: cannot be written: No space left on device; make room"):
        write_bytes(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def _disk_is_full(number):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("target", ["absent/t", "."])
def test_a_place_that_cannot_be_written_is_named(tmp_path, target):
    with pytest.raises(CalibrationError, match="cannot be written"):
        write_bytes(tmp_path / target, b"new")

    assert list(tmp_path.iterdir()) == []


def table(**ranges):
    return calibration_table(ranges)


def test_equal_tables_do_not_differ():
    found = diff_tables(table(a=1.0, b=2.0), table(b=2.0, a=1.0 + 1e-12))  # one float32 scale

    assert found == TableDiff(facts=(), only_first=(), only_second=(), changed=(), equal=2)


def test_ranges_names_and_facts_that_differ():
    second = msgspec.structs.replace(table(a=1.0, b=3.0, c=0.5, e=1.0), method="auto", keep_float=("/n",))
    found = diff_tables(table(a=1.0, b=2.0, c=8.0, d=1.0), second)

    assert (found.only_first, found.only_second, found.equal) == (("d",), ("e",), 1)
    assert [(c.name, c.ratio) for c in found.changed] == [("c", 0.0625), ("b", 1.5)]
    assert found.facts == (("method", "mse", "auto"), ("keep_float", "none", "/n"))


def test_each_fact_that_differs_has_its_name():
    other = msgspec.structs.replace(
        table(),
        model=ModelId(name="m", sha256="1"),
        preprocess={"scale": 1.0},
        preprocess_sha256="told by the preprocess",
        dataset=DatasetId(images=3, sha256="2"),
        method="auto",
        made_by=MadeBy(engine="f"),
        centred=True,
        padded=True,
        keep_float=("/n",),
        float_reasons={"/n": "told by keep_float"},
        evidence=Evidence(metric="mAP50-95", images=3, float_=0.5, int8=0.5, int8_mac_share=1.0),
        imported=Imported(tensorrt="10.3.0", calibrator="EntropyCalibration2"),
    )

    told = [name for name, _, _ in diff_tables(table(), other).facts]

    assert " ".join(told) == "model preprocess dataset method made_by centred padded keep_float evidence imported"


def test_facts_are_told_in_words():
    objects = Objects(by="labels", images=6, counts={"car": 3, "bus": 0})
    variety = Variety(images=6, alike=2, dark=0, brightness=(90, 100, 110), objects=objects)
    other = msgspec.structs.replace(
        table(),
        centred=True,
        dataset=DatasetId(images=6, sha256="2", variety=variety),
        evidence=Evidence(metric="mAP50-95", images=3, float_=0.5, int8=0.25, int8_mac_share=1.0),
    )

    told = {name: second for name, _, second in diff_tables(table(), other).facts}

    assert told["centred"] == "yes"
    assert told["dataset"] == (
        "images 6, sha256 2, variety (images 6, alike 2, dark 0, brightness (90, 100, 110), cameras none, "
        "objects (by labels, images 6, counts (car 3, bus 0)))"
    )
    assert "uncertainty unknown, unlabelled none" in told["evidence"]


def test_means_that_differ_are_a_fact():
    def with_means(*means):
        tensors = {
            name: TensorRange(amax=1.0, method="mse", means=values) for name, values in zip("ab", means, strict=True)
        }
        return msgspec.structs.replace(table(), tensors=tensors)

    one, other = with_means((1.0, 2.0), (3.0,)), with_means((1.0, 2.5), (3.0,))

    assert diff_tables(one, one).facts == ()
    assert diff_tables(one, other).facts == (
        ("means", "2 tensors, 1 of them not the same", "2 tensors, 1 of them not the same"),
    )
    assert diff_tables(one, table(a=1.0, b=1.0)).facts == (
        ("means", "2 tensors, 2 of them not the same", "0 tensors, 0 of them not the same"),
    )


def test_what_is_not_finite_has_no_ratio_and_comes_first():
    found = diff_tables(table(a=1.0, z=0.0), table(a=2.0, z=math.inf))

    assert [c["name"] for c in found.as_json()["changed"]] == ["z", "a"]
    assert found.as_json()["changed"][0] == {"name": "z", "first": 0.0, "second": None, "ratio": None}


@pytest.mark.parametrize(("name", "why"), [("folder", "Is a directory"), ("absent/b", "No such file or directory")])
def test_one_that_cannot_be_written_leaves_all_as_they_were(tmp_path, name, why):
    (tmp_path / "old").write_bytes(b"before")
    (tmp_path / "folder").mkdir()

    with pytest.raises(CalibrationError, match=f"{name}: cannot be written: {why}"):
        write_all({tmp_path / "old": b"after", tmp_path / name: b"after"})

    assert (tmp_path / "old").read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]


class OtherTuple(tuple):
    """As Python 3.10 makes an empty one of a generator: equal to the default, and not the same object."""


def test_what_is_empty_is_left_out_whichever_empty_tuple_it_is():
    tensor = TensorRange(amax=1.0, method="mse", means=OtherTuple())
    evidence = Evidence(
        metric="mAP50-95",
        images=4,
        float_=0.5,
        int8=0.5,
        int8_mac_share=1.0,
        unlabelled=OtherTuple(),
        notes=OtherTuple(),
    )

    assert msgspec.to_builtins(tensor) == {"amax": 1.0, "method": "mse"}
    assert set(msgspec.to_builtins(evidence)) == {"metric", "images", "float", "int8", "int8_mac_share"}
