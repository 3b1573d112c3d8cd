"""A proof as the machine that a plan is made for, and files that are none."""

import json

import msgspec
import pytest

from edge.capacity.platform import platform_of
from edge.errors import ConfigError
from edge.roofline.bound import bound_of_model
from edge.roofline.machines import find_machine
from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict, decode_proof, encode_proof, machine_named
from edge.types import Precision
from tests.support.command_line import command
from tests.support.demo_model import MODEL, TABLE

KEY = "orin-nano-8gb-super/25W"
PEAKS = {"int8 tensor cores": 21.0, "fp32 CUDA cores": 1.5, "memory copy": 81.25}


def proof_of(*, key=KEY, peaks=PEAKS, cores=6):
    machine = Row(
        name="machine",
        verdict=Verdict.TOLD,
        detail="",
        values={"key": key, "cores": cores, "memory_bytes": 8 * 10**9},
    )
    rows = [Row(name=name, verdict=Verdict.TOLD, detail="", values={"value": one}) for name, one in peaks.items()]
    steps = (
        Step(number=1, name="facts", seconds=1.0, rows=(machine, msgspec.structs.replace(machine, values={}))),
        Step(number=8, name="load", seconds=1.0, rows=tuple(rows)),
    )
    return Proof(format=FORMAT, host="gate-01", software="0", made_at="", seconds=2.0, steps=steps)


@pytest.fixture
def written(tmp_path):
    def write(**more):
        path = tmp_path / "edge-proof-gate-01.json"
        path.write_bytes(encode_proof(proof_of(**more)))
        return str(path)

    return write


def test_what_was_measured_stands_for_what_is_derived(written):
    known, found = find_machine(KEY), machine_named(written())

    assert found.peak(Precision.INT8) == pytest.approx(21e12)
    assert found.peak(Precision.FP32) == pytest.approx(1.5e12)
    assert found.bytes_per_s == pytest.approx(81.25e9)
    assert found.ridge(Precision.INT8) == pytest.approx(21e12 / 81.25e9)
    assert found.peak(Precision.FP16) == pytest.approx(known.peak(Precision.FP16))  # not measured
    assert found.facts.decoder == known.facts.decoder
    assert "gate-01" in found.called
    assert find_machine(KEY).peak(Precision.INT8) == known.peak(Precision.INT8)  # the table is as it was


def test_it_is_a_platform_with_what_the_table_has_of_it(written):
    platform = platform_of(machine_named(written()))

    assert platform.is_jetson
    assert platform.cores == 6
    assert platform.memory_bytes == 8e9
    assert platform.factors is not None  # evidence of Orin


def test_a_machine_that_no_table_knows_has_what_was_measured_alone(written):
    found = machine_named(written(key=None, peaks={"int8 convolution": 0.3, "memory copy": 10.0}, cores=2))

    assert found.peak(Precision.INT8) == pytest.approx(0.3e12)
    assert found.peak(Precision.FP16) is found.peak(Precision.FP32) is None
    assert platform_of(found).factors is None


CPU = {"int8 convolution": 0.3, "fp32 convolution": 0.1, "memory copy": 10.0}


def test_what_int8_leaves_in_float_a_cpu_computes_in_fp32(written, layer, model):
    account = model(layer("a", operations=300, moved=1), layer("b", operations=300, moved=1, precision=Precision.FP16))
    bound = bound_of_model(account, machine_named(written(key=None, peaks=CPU)))

    assert [one.compute_s for one in bound.layers] == pytest.approx([1e-9, 3e-9])
    assert [one.layer.precision for one in bound.layers] == [Precision.INT8, Precision.FP32]


@pytest.mark.parametrize(("lacking", "code", "kind"), [("fp32", 2, "fp32"), ("int8", 2, "int8"), (None, 0, "INT8")])
@pytest.mark.parametrize("command_of", ["roofline", "capacity"])
def test_a_cpu_is_planned_by_and_what_was_not_measured_is_named(written, tmp_path, command_of, lacking, code, kind):
    proof = written(key=None, peaks={name: value for name, value in CPU.items() if not name.startswith(str(lacking))})
    words = [MODEL, "--table", TABLE]
    if command_of == "capacity":
        words = [tmp_path / "gates.yaml", "--no-look"]
        text = f"version: 1\nmodel: {{onnx: {MODEL}, precision: int8, calibration: {TABLE}}}\npublish: {{jsonl: '-'}}\n"
        words[0].write_text(f"{text}streams: [{{id: a, uri: 'test://'}}]\n")
    elif lacking == "int8":
        code, kind = 0, "FP32"  # the model's bound in FP32 is told

    done = command("edge-deploy", command_of, *words, "--machine", proof, expected=code)

    assert (f"no peak for {kind}, which" if code else f" in {kind}") in done.stdout + done.stderr


def test_without_the_rate_of_the_memory_there_is_no_roof(written):
    with pytest.raises(ConfigError, match="rate of the memory"):
        machine_named(written(peaks={"int8 tensor cores": 21.0}))


def test_names_of_the_table_are_taken_as_before():
    assert machine_named(KEY) == find_machine(KEY)
    with pytest.raises(ConfigError, match="no-such"):
        machine_named("no-such")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({**msgspec.to_builtins(proof_of()), "more": 1}).encode(),
        json.dumps({**msgspec.to_builtins(proof_of()), "format": "edge.proof/2"}).encode(),
        json.dumps({**msgspec.to_builtins(proof_of()), "steps": [{"number": "one"}]}).encode(),
    ],
)
def test_what_is_no_proof_is_refused_by_its_name(content):
    with pytest.raises(ConfigError, match="somebody's file"):
        decode_proof(content, "somebody's file")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.json"):
        machine_named(str(tmp_path / "missing.json"))


def test_control_characters_of_a_proof_of_others_reach_no_terminal():
    evil = msgspec.structs.replace(proof_of(), host="gate\x1b[31m")

    assert "\x1b" not in decode_proof(encode_proof(evil), "it").host
