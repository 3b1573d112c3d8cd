"""`prove` on this machine, the steps as processes and the file; and of a device, over a real sshd."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from edge.deploy.provision import provision as over_ssh
from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict, decode_proof, encode_proof
from edge.runtime.prove.run import STEPS, prove
from tests.support.command_line import command
from tests.support.manifests import ssh_key
from tests.support.rtsp import require_gstreamer
from tests.support.sshd import Sshd


def test_steps_of_their_own_processes_answer():
    found = prove(steps=STEPS[1:3])

    assert [step.name for step in found.steps if not step.as_service] == ["nodes", "cuda"]
    assert found.verdict is not Verdict.FAILS


@pytest.mark.slow(reason="more than a minute of measuring")
def test_all_that_this_machine_has_is_proven(tmp_path):
    require_gstreamer("parsebin", "avdec_h264", "avdec_h265")
    command = [sys.executable, "-m", "edge.cli.edge_runtime", "prove"]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=660)

    (path,) = tmp_path.iterdir()
    proof = decode_proof(path.read_bytes(), "file")
    assert done.returncode == proof.exit_code
    assert path.name == f"edge-proof-{proof.host}.json"
    steps = {step.name: step for step in proof.steps if not step.as_service}
    assert list(steps) == [step.name for step in STEPS]
    # Of a loaded machine, times may be worse; nothing breaks.
    assert {row.detail for step in proof.steps for row in step.rows if row.verdict is Verdict.FAILS} == set()
    proven = {row.name for row in proof.rows() if row.verdict is Verdict.PROVEN}
    assert {"software h264-709-limited", "software h265-601-full", "software jpeg-601-full"} <= proven
    assert {"reconnects", "build beside", "counts"} <= proven
    assert [line for line in done.stdout.splitlines() if line.startswith(f"written to {path.name}")]


ROW = Row(name="here", verdict=Verdict.PROVEN, detail="it is here")


def proof_of(*rows):
    step = Step(number=1, name="facts", seconds=1.0, rows=rows)
    return Proof(
        format=FORMAT, host="gate-01", software="0", made_at="2026-11-26T00:00:00Z", seconds=1.0, steps=(step,)
    )


@pytest.fixture
def device(tmp_path, monkeypatch):
    """An sshd for somebody who gets what they ask for; what `prove` starts there is a script of the test's."""
    program = tmp_path / "opt/edge runtime"
    program.parent.mkdir()
    monkeypatch.setattr(over_ssh, "REMOTE", (str(program), "prove", "--json"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")

    def install(proof, *, more=""):
        (tmp_path / "answer").write_bytes(proof if isinstance(proof, bytes) else encode_proof(proof))
        code = proof.exit_code if isinstance(proof, Proof) else 0
        program.write_text(f'#!/bin/sh\necho prove 1 facts >&2\n{more}\ncat "{tmp_path}/answer"\nexit {code}\n')
        program.chmod(0o755)

    with Sshd(tmp_path / "sshd", command=None) as sshd:
        install.config = sshd.address().config
        yield install


def typed(device, *more, expected=0):
    return command("edge-deploy", "prove", "device", "--ssh-config", device.config, *more, expected=expected)


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.PROVEN, 0), (Verdict.WORSE, 10), (Verdict.FAILS, 4)])
def test_the_proof_of_a_device_is_written_here_and_shown(device, tmp_path, verdict, code):
    proof = proof_of(ROW, Row(name="other", verdict=verdict, detail="of the device"))
    device(proof)

    done = typed(device, expected=code)

    assert "of the device" in done.stdout
    assert decode_proof((tmp_path / "home/edge-proof-device.json").read_bytes(), "file") == proof


def test_a_key_signs_the_file_and_a_changed_file_is_noticed(device, tmp_path):
    device(proof_of(ROW))
    typed(device, "--key", ssh_key(tmp_path))
    file, signature = (tmp_path / f"home/edge-proof-device.json{end}" for end in ("", ".sig"))

    def check(content):
        words = ["ssh-keygen", "-Y", "check-novalidate", "-n", "edge-proof", "-s", str(signature)]
        return subprocess.run(words, input=content, capture_output=True, check=False).returncode

    assert check(file.read_bytes()) == 0
    assert check(file.read_bytes().replace(b"proven", b"worse ")) != 0


def test_what_is_no_key_is_refused_before_the_device_is_asked(device, tmp_path):
    device(proof_of(ROW), more=f"touch {tmp_path}/asked")
    (tmp_path / "key").write_text("no key")

    done = typed(device, "--key", tmp_path / "key", expected=2)

    assert "is no SSH key" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_json_has_the_proof_by_its_target(device):
    device(proof_of(ROW))

    told = json.loads(typed(device, "--json").stdout)

    assert msgspec.convert(told["device"], Proof) == proof_of(ROW)


def test_a_device_without_edge_deploy_says_so(device, tmp_path):
    done = typed(device, expected=3)

    assert "transfer.ssh.command" in done.stderr or "not installed" in done.stderr
    assert not (tmp_path / "home/edge-proof-device.json").exists()


def test_an_older_edge_deploy_there_has_no_proof_to_give(device):
    device(b"", more="echo 'error: No such command prove' >&2; exit 2")

    done = typed(device, expected=3)

    assert "No such command" in done.stderr
    assert "provision" in done.stderr


@pytest.mark.parametrize("said", [b"Welcome to gate-01\n", b'{"format": "edge.proof/9"}', b"\x1b[31m" * 100])
def test_what_is_no_proof_is_not_written(device, tmp_path, said):
    device(said)

    done = typed(device, expected=3)

    assert "\x1b" not in done.stderr + done.stdout
    assert not list((tmp_path / "home").iterdir())


def test_a_device_that_is_not_reached_is_code_3(device):
    config = device.config
    config.write_text(config.read_text().replace("HostName 127.0.0.1", "HostName 127.0.0.1\n  Port 1"))

    typed(device, expected=3)
