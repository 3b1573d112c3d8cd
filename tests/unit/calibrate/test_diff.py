import math

import msgspec

from edge.calibrate.diff import TableDiff, diff_tables
from edge.calibrate.table import DatasetId, Evidence, Imported, MadeBy, ModelId, TensorRange
from tests.support.values import calibration_table


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
