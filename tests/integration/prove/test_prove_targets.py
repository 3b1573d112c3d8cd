"""`edge-deploy prove` over a real sshd: what runs there answers, is not there, or answers something else."""

import json
import subprocess

import msgspec
import pytest

from edge.deploy.provision import provision as over_ssh
from edge.roofline.proof import FORMAT, Proof, Row, Step, Verdict, decode_proof, encode_proof
from tests.support.command_line import command
from tests.support.manifests import ssh_key
from tests.support.sshd import Sshd

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
