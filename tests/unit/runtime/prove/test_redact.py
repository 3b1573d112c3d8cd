"""What is somebody's own does not leave the machine with a proof."""

import getpass
import json

import pytest

from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict, encode_proof
from edge.runtime.prove.run import redacted

OWN = {
    "proc/device-tree/serial-number": "1423921003456\0",
    "etc/machine-id": "0a1b2c3d4e5f60718293a4b5c6d7e8f9\n",
    "etc/hosts": "127.0.0.1 localhost\n192.168.1.9 nas.example nas\n127.0.1.1 gate-01.farm.example gate-01\n",
}
SECRETS = (
    "rtsp://admin:hunter2@10.0.0.7:554/stream1",
    "192.168.1.40",
    "192.168.1.40:8883",
    "fe80::1ff:fe23:4567:890a",
    "2001:db8::1",
    "48:b0:2d:11:22:33",
    "ana@example.org",
    "/home/ana/models",
    "1423921003456",
    "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
    "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
    "nas.example",
    "gate-01.farm.example",
    "password=hunter2",
)
TOLD = (
    "gate-01",
    "TensorRT 10.3.0 on Orin, compute capability 8.7",
    "kernel 5.15.148-tegra, Python 3.10.12",
    "std::bad_alloc at nvinfer1::ICudaEngine",
    "12:34:56 one frame",
    "/dev/nvgpu/igpu0/ctrl",
    "int8 qdq-weak: 3.49 ms",
)


def proof_of(*texts):
    row = Row(name="row", verdict=Verdict.TOLD, detail=" | ".join(texts), values={"report": {"texts": list(texts)}})
    step = Step(number=1, name="facts", seconds=1.0, rows=(row,))
    return Proof(format=FORMAT, host="gate-01", software="0", made_at="", seconds=1.0, steps=(step,))


@pytest.fixture
def root(tmp_path):
    for name, content in OWN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.parametrize("secret", SECRETS)
def test_what_is_somebody_s_own_is_taken_out_wherever_it_stands(root, secret):
    content = encode_proof(redacted(proof_of(f"the camera {secret} is away", secret), root)).decode()

    for part in ("hunter2", "ana", "1423921003456", "farm.example", "nas", "10.0.0.7", secret):
        assert part not in content


@pytest.mark.parametrize("text", TOLD)
def test_what_a_reader_needs_stays(root, text):
    (step,) = redacted(proof_of(text), root).steps

    assert step.rows[0].detail == text
    assert step.rows[0].values == {"report": {"texts": [text]}}


def test_who_asks_is_not_named(root, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "benjamin")
    content = json.dumps(encode_proof(redacted(proof_of("benjamin is not in the group video"), root)).decode())

    assert "benjamin" not in content
    assert "USER is not in the group video" in content
    assert getpass.getuser() == "root" or getpass.getuser() not in content


def test_control_characters_do_not_reach_a_terminal(root):
    (step,) = redacted(proof_of("a\x1b[31mb"), root).steps

    assert "\x1b" not in step.rows[0].detail
