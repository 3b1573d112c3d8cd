"""A device whose kind of engine has several forms of INT8 builds them all in one worker, and one the next time."""

import json

import pytest

from edge.bundle.manifest import GoldenLimits
from edge.runtime.build.engine import build_for_release
from tests.support.deployable import deployable
from tests.support.serving import builder

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="a worker that builds twice")]

WORKER = """
import dataclasses, sys
import msgspec
from edge.engine.kind import Int8Form, load_kind
from edge.engine.openvino import binding
from edge.runtime.build import worker

binding._capabilities = lambda: ["FP32", "INT8"]  # some CPUs have FP16

class Racing:
    def __init__(self, kind):
        self._kind = kind

    def __getattr__(self, name):
        return getattr(self._kind, name)

    def int8_forms(self, model, request):
        single = msgspec.structs.replace(request.options, threads=1)
        return (
            Int8Form(name="as proven", request=request),
            Int8Form(name="on one thread", request=dataclasses.replace(request, options=single)),
        )

worker.load_kind = lambda name: Racing(load_kind(name))
sys.exit(worker.main(sys.argv[1]))
"""


def test_forms_of_int8_race_in_the_builder_and_the_account_is_kept(device, tmp_path):
    release = deployable(
        device, tmp_path / "source", precision="int8", golden=GoldenLimits(min_recall=0.5, max_score_error=0.5)
    )

    built = build_for_release(builder(device, WORKER), release)

    report = json.loads((device.layout.engine(built.key) / "build.json").read_text())["report"]
    rows = {row["form"]: row for row in report["int8_forms"]["rows"]}
    assert set(rows) == {"as proven", "on one thread"}
    assert rows["on one thread"]["ms"] > 0
    assert report["int8_forms"]["taken"] in rows
    assert report["fallback"]["asked"] == "int8"
    assert "fp16" in report["fallback"]["absent"]
    assert built.golden.passed
