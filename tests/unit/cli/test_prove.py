"""`edge-runtime prove` as it is typed, and a proof where a machine is named."""

import json

import msgspec
import pytest

from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict, decode_proof, encode_proof
from edge.runtime.prove import run
from edge.runtime.prove.kit import MODEL
from tests.support.command_line import command


def proof_of(verdict=Verdict.PROVEN):
    key = {"key": "orin-nano-8gb-super", "cores": 6, "memory_bytes": 8 * 10**9}
    peaks = {"int8 tensor cores": 21.0, "fp16 tensor cores": 10.0, "fp32 CUDA cores": 1.5, "memory copy": 80.0}
    rows = [Row(name="machine", verdict=Verdict.TOLD, detail="a board", values=key)]
    rows += [Row(name=name, verdict=Verdict.TOLD, detail="", values={"value": one}) for name, one in peaks.items()]
    rows.append(Row(name="the last row", verdict=verdict, detail="of the step"))
    step = Step(number=1, name="facts", seconds=1.0, rows=tuple(rows))
    return Proof(format=FORMAT, host="gate-01", software="0", made_at="", seconds=1.0, steps=(step,))


@pytest.fixture
def prove(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def with_verdict(verdict, *words, expected):
        monkeypatch.setattr(run, "prove", lambda **more: proof_of(verdict))
        return command("edge-runtime", "prove", *words, expected=expected)

    return with_verdict


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.PROVEN, 0), (Verdict.WORSE, 10), (Verdict.FAILS, 4)])
def test_the_file_lies_here_and_the_text_says_the_same(prove, tmp_path, verdict, code):
    done = prove(verdict, expected=code)

    assert decode_proof((tmp_path / "edge-proof-gate-01.json").read_bytes(), "file") == proof_of(verdict)
    (line,) = [line for line in done.stdout.splitlines() if "the last row" in line]
    assert line.split()[0] == verdict.value


def test_json_is_the_proof_and_no_file_is_written(prove, tmp_path):
    done = prove(Verdict.PROVEN, "--json", expected=0)

    assert msgspec.convert(json.loads(done.stdout), Proof) == proof_of()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_file_is_said(prove, tmp_path):
    (tmp_path / "edge-proof-gate-01.json").mkdir()

    assert "edge-proof-gate-01.json" in prove(Verdict.PROVEN, expected=2).stderr


def test_a_folder_that_takes_no_file_is_said_before_anything_is_proven(monkeypatch):
    monkeypatch.chdir("/proc")
    monkeypatch.setattr(run, "prove", lambda **_: pytest.fail("ten minutes are spent"))

    assert "edge-proof-HOST.json" in command("edge-runtime", "prove", expected=2).stderr


def test_roofline_and_capacity_take_a_proof_as_the_machine(tmp_path):
    path = tmp_path / "edge-proof-gate-01.json"
    path.write_bytes(encode_proof(proof_of()))
    pipeline = tmp_path / "gates.yaml"
    content = {
        "version": 1,
        "model": {"onnx": str(MODEL)},
        "streams": [{"id": "a", "uri": "rtsp://camera/a"}],
        "publish": {"jsonl": "x"},
    }
    pipeline.write_text(json.dumps(content))

    said = json.loads(command("edge-deploy", "roofline", MODEL, "--machine", path, "--json").stdout)
    (machine,) = said["machines"]
    assert machine["bytes_per_s"] == pytest.approx(80e9)
    assert machine["peaks_per_s"]["int8"] == pytest.approx(21e12)

    said = json.loads(command("edge-deploy", "capacity", pipeline, "--machine", path, "--no-look", "--json").stdout)
    assert said["machines"][0]["machine"] == "edge-proof-gate-01"
    assert said["machines"][0]["resources"]
