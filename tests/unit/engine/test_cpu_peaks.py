"""Peaks of the CPU, and the command that shows them."""

import json

import pytest
from click.testing import CliRunner

from edge.cli.runtime_commands import edge_runtime
from edge.engine.openvino import profile
from edge.engine.openvino.binding import why_int8_in_float
from edge.roofline.proof import PEAKS


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(profile, "_LEAST_S", 0.0)
    monkeypatch.setattr(profile, "_COPY_BYTES", 4 << 20)


def run(*words):
    return CliRunner().invoke(edge_runtime, ["bench", *words])


def test_peaks_as_json_hold_each_with_its_unit():
    found = {one["name"]: one for one in json.loads(run("--peaks", "--engine", "openvino", "--json").stdout)["peaks"]}

    assert found["memory copy"]["value"] > 0
    units = {name: one["unit"] for name, one in found.items()}
    assert units == {"int8 convolution": "TOPS", "fp32 convolution": "TOPS", "memory copy": "GB/s"}
    assert found["fp32 convolution"]["value"] > 0
    assert set(units) <= set(PEAKS)  # a proof is read by these names
    assert (found["int8 convolution"]["value"] is None) == (why_int8_in_float() is not None)


def test_int8_that_this_cpu_does_not_have_is_told_instead_of_measured(monkeypatch):
    monkeypatch.setattr(profile, "why_int8_in_float", lambda: "no INT8 here")

    lines = run("--peaks").stdout.splitlines()

    assert lines[0].split(maxsplit=2)[2] == "- (not measured: no INT8 here)"


def test_a_kind_that_does_not_run_here_says_why():
    done = run("--peaks", "--engine", "tensorrt")

    assert done.exit_code != 0
    assert "GPU" in str(done.exception)


@pytest.mark.parametrize("words", [[], ["--peaks", "--pipeline", "x.yaml"]])
def test_either_a_pipeline_or_peaks(words):
    done = run(*words)

    assert done.exit_code == 2
    assert "give PIPELINE or --peaks" in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pipeline", "x.yaml", "--engine", "openvino"], "a pipeline file names its own"),
        (["--peaks", "--engine", "openvina"], "auto, tensorrt, openvino"),
    ],
)
def test_an_engine_that_would_be_ignored_or_that_there_is_not_is_refused(words, told):
    done = run(*words)

    assert done.exit_code == 2
    assert told in done.output.replace("\n", " ")
