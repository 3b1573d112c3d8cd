"""One question to many targets: real agents, one that is silent, one that is not there; and `targets --check`."""

import getpass
import json
import sys
import threading
import time
from dataclasses import replace

import pytest

from edge.delivery.link import Interrupted
from edge.deploy.fleet.ask import Asked, AskedStatus
from edge.device.health import decode_health, encode_health
from edge.transport.channel import ChildChannel
from edge.wire.peer import Nothing
from edge.wire.verbs import STATUS, Verb
from tests.support.fleet import Running, targets
from tests.support.ports import free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow(reason="further pushes over real agents")

SILENT = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]


def outcome_of(asked):
    (target,) = targets(1)
    return asked(target, lambda _: None, threading.Event())


def test_the_answer_is_the_evidence(device):
    asked = Asked(STATUS, Nothing(), connect=lambda _: device.connect())
    outcome = outcome_of(asked)

    assert outcome.is_done
    assert asked.answers["d-00"].state.phase == "idle"
    assert outcome.evidence["state"]["phase"] == "idle"
    assert "id" not in outcome.evidence


def test_a_status_that_is_interrupted_before_its_look_is_no_answer(device, monkeypatch):
    def interrupted(link):
        raise Interrupted

    _pushed(device)
    monkeypatch.setattr("edge.deploy.fleet.ask._look", interrupted)
    asked = AskedStatus(connect=lambda _: device.connect())
    outcome = outcome_of(asked)

    assert (outcome.result, asked.answers) == ("interrupted", {})


def test_what_the_device_refuses_is_told_as_it_says_it(device):
    outcome = outcome_of(Asked(Verb("no-such", Nothing, Nothing), Nothing(), connect=lambda _: device.connect()))

    assert (outcome.result, outcome.code, outcome.exit_code) == ("refused", "request.verb", 2)


def test_a_silent_target_holds_nobody_up(device, monkeypatch):
    monkeypatch.setattr("edge.deploy.fleet.ask._ASK_S", 2.0)
    channels = {"d-00": device.connect, "d-01": lambda: ChildChannel(SILENT)}
    one = Asked(STATUS, Nothing(), connect=lambda target: channels[target.name]())

    result = Running(targets(2), one, order=None).join()

    assert [outcome.result for outcome in result.outcomes] == ["unchanged", "unreachable"]
    assert result.outcomes[1].code == "transfer.timeout"
    assert result.exit_code == 11


def test_an_interrupt_closes_the_connection():
    opened = []

    def connect(_):
        opened.append(ChildChannel(SILENT))
        return opened[0]

    running = Running(targets(1), Asked(STATUS, Nothing(), connect=connect), order=None)
    wait_until(lambda: opened, what="a connection")
    running.interrupt()
    running.interrupt()

    assert running.join(timeout_s=60).exit_code == 130


def test_targets_with_check_asks_each(device, sshd, tmp_path, capfd):
    from edge.cli.edge_deploy import edge_deploy

    path, address = tmp_path / "targets.toml", sshd.address()
    path.write_text(
        f'[defaults]\nuser = "{getpass.getuser()}"\nssh_config = "{address.config}"\n'
        f'[[target]]\nname = "gate-01"\nhost = "{address.host}"\n'
        f'[[target]]\nname = "gate-02"\nhost = "{address.host}"\nport = {free_port()}\n'
    )
    release = _pushed(device)
    command = ["targets", "--check", "--targets", str(path)]
    code = edge_deploy.main(command, standalone_mode=False)
    lines = capfd.readouterr().out.splitlines()
    json_code = edge_deploy.main([*command, "--json", "gate-01"], standalone_mode=False)
    document = json.loads(capfd.readouterr().out)

    assert code == 11
    assert lines[0].startswith("gate-01")
    assert lines[0].split()[-3:] == [release, "idle,", "serving"]
    assert "unreachable" in lines[1]
    assert "Connection refused" in lines[1]
    assert json_code == 0
    assert document["targets"][0]["status"]["current"] == release


def _pushed(device):
    outcome = device.push(device.bundle())
    assert outcome.result == "committed", f"{outcome.code}: {outcome.problem}"
    health = decode_health(device.layout.health.read_bytes())
    just_now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    device.layout.health.write_bytes(encode_health(replace(health, at_boottime_ns=just_now)))
    return outcome.release
