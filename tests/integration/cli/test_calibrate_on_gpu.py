"""`calibrate` where TensorRT runs, whose builds take minutes: looked at and proven by it, searched by what is quick."""

import pytest

from edge.calibrate.table import read_table
from edge.engine.kind import load_kind, quick_kind, usable_kind
from tests.integration.cli.test_calibrate import calibrate

pytestmark = [pytest.mark.usefixtures("fake_board"), pytest.mark.slow(reason="commands on further models and options")]


def test_a_search_builds_a_plan_for_the_proof_only(place, monkeypatch):
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


def test_what_is_quick_is_taken_as_it_is():
    assert usable_kind().name == "tensorrt"
    assert quick_kind(usable_kind()).name == "openvino"
    assert quick_kind(usable_kind("openvino")).name == "openvino"
