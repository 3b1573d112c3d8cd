"""The runner of a proof: steps that die, hang or fall silent are rows, and the next one is begun."""

import dataclasses
import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from edge.roofline.proof import FORMAT, Verdict, decode_proof, encode_proof
from edge.runtime.prove.child import STEP_OF
from edge.runtime.prove.run import STEPS, examine_as_service, prove, unit_properties

ROOT = Path(__file__).parents[4]
ROW = '{"name": "before", "verdict": "proven", "detail": "was seen"}'
SOUND = f"print('{ROW}')"
NONE = Path("/nonexistent/edge-runtime.service")


def scripted(**scripts):
    """Steps as Python lines by their names; the others are sound."""
    return lambda name, folder, as_service: [sys.executable, "-c", scripts.get(name, SOUND)]


def quick(seconds=20.0):
    return [dataclasses.replace(step, timeout_s=seconds) for step in STEPS]


def with_a_neighbour(name, seconds=20.0):
    """The step, and another one behind it."""
    one = next(step for step in STEPS if step.name == name)
    other = next(step for step in STEPS if step.name != name)
    return [dataclasses.replace(one, timeout_s=seconds), dataclasses.replace(other, timeout_s=20.0)]


def rows_of(proof, name):
    (step,) = [step for step in proof.steps if step.name == name and not step.as_service]
    return {row.name: row for row in step.rows}


def test_every_step_that_is_planned_can_be_done_and_the_plan_takes_ten_minutes_at_most():
    assert [step.name for step in STEPS] == list(STEP_OF)
    assert [step.number for step in STEPS] == list(range(1, 10))


@pytest.mark.parametrize("name", [step.name for step in STEPS])
def test_a_step_that_dies_is_a_row_and_the_others_are_done(name):
    died = (
        f"print('{ROW}', flush=True); import os, sys; "
        "print('the last words', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    )

    proof = prove(steps=with_a_neighbour(name), command=scripted(**{name: died}), unit=NONE)

    rows = rows_of(proof, name)
    assert rows["before"].verdict is Verdict.PROVEN
    assert rows[name].verdict is Verdict.FAILS
    assert "SIGSEGV" in rows[name].detail
    assert "the last words" in rows[name].detail
    assert proof.steps[1].verdict is Verdict.PROVEN
    assert proof.exit_code == 4


@pytest.mark.parametrize("name", [step.name for step in STEPS])
@pytest.mark.slow_but(reason="a second for each further step")
def test_a_step_that_hangs_is_ended_with_what_it_has_started(name, tmp_path):
    child = tmp_path / "child"
    hung = (
        f"print('{ROW}', flush=True); import pathlib, subprocess, time; "
        f"pathlib.Path({str(child)!r}).write_text(str(subprocess.Popen(['sleep', '1000']).pid)); time.sleep(1000)"
    )
    steps = with_a_neighbour(name, seconds=1.0)

    proof = prove(steps=steps, command=scripted(**{name: hung}), unit=NONE)

    rows = rows_of(proof, name)
    assert rows["before"].verdict is Verdict.PROVEN
    assert rows[name].verdict is Verdict.FAILS
    assert "has not ended within 1 s" in rows[name].detail
    assert not is_running(int(child.read_text()))
    assert proof.steps[1].verdict is Verdict.PROVEN


def is_running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_step_that_says_nothing_fails_and_one_that_says_something_else_too():
    proof = prove(steps=quick(), command=scripted(facts="", nodes="print('no row')"), unit=NONE)

    assert rows_of(proof, "facts")["facts"].verdict is Verdict.FAILS
    assert rows_of(proof, "nodes")["output"].verdict is Verdict.FAILS


def test_a_step_that_cannot_be_started_is_a_row():
    proof = prove(steps=quick()[:1], command=lambda *_: ["/nonexistent/python"], unit=NONE)

    assert "ended with code 127" in rows_of(proof, "facts")["facts"].detail


def test_what_is_not_begun_in_the_time_of_all_is_told():
    proof = prove(steps=quick(), command=scripted(), most_s=0.0, unit=NONE)

    assert {row.verdict for step in proof.steps if step.number for row in step.rows} == {Verdict.WORSE}
    assert proof.exit_code == 10


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(["told", "not here"], 0), (["proven", "told"], 0), (["worse", "proven"], 10), (["worse", "fails"], 4)],
)
def test_the_exit_code_is_that_of_the_worst_row(verdicts, code):
    lines = ";".join(f"print('{json.dumps({'name': one, 'verdict': one, 'detail': ''})}')" for one in verdicts)

    proof = prove(steps=quick()[:1], command=scripted(facts=lines), unit=NONE)

    assert proof.exit_code == code


def test_the_file_is_read_back_as_it_was_written():
    proof = prove(steps=quick(), command=scripted(), unit=NONE)

    content = encode_proof(proof)
    assert decode_proof(content, "here") == proof
    plain = json.loads(content)
    assert plain["format"] == FORMAT == "edge.proof/1"
    assert plain["steps"][0] == {
        "number": 1,
        "name": "facts",
        "seconds": plain["steps"][0]["seconds"],
        "rows": [{**json.loads(ROW), "values": {}}],
        "as_service": False,
    }


@pytest.fixture
def service(tmp_path, monkeypatch):
    """An installed unit, and a systemd-run that runs the command and keeps what it was asked."""
    unit = tmp_path / "edge-runtime.service"
    unit.write_bytes((ROOT / "systemd/edge-runtime.service").read_bytes())
    tool = tmp_path / "bin/systemd-run"
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/asked\n'
        'while [ "$1" != -- ]; do shift; done\nshift\nAS_SERVICE=1 exec "$@"\n'
    )
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("edge.runtime.prove.run.why_no_sandbox", lambda unit: None)
    monkeypatch.setattr("edge.runtime.prove.run.run_as_root", lambda: ())
    return unit


NODE = (
    "import json, os; verdict = 'worse' if os.environ.get('AS_SERVICE') else 'proven'; "
    "print(json.dumps({'name': '/dev/nvmap', 'verdict': verdict, 'detail': 'x'}))"
)


def test_what_works_in_a_shell_and_not_as_the_service_fails(service):
    proof = prove(steps=quick(), command=scripted(nodes=NODE), unit=service)

    again = {step.name: step for step in proof.steps if step.as_service}
    assert set(again) == {step.name for step in STEPS if step.is_twice}
    (row,) = [row for row in again["nodes"].rows if row.name == "/dev/nvmap"]
    assert row.verdict is Verdict.FAILS
    assert again["facts"].verdict is Verdict.PROVEN  # there is no difference
    assert rows_of(proof, "nodes")["/dev/nvmap"].verdict is Verdict.PROVEN
    assert proof.exit_code == 4


def test_a_step_that_dies_as_the_service_alone_names_what_was_not_reached(service):
    died = f"import os; os.environ.get('AS_SERVICE') and os.kill(os.getpid(), {signal.SIGKILL}); {SOUND}"

    proof = prove(steps=quick(), command=scripted(cuda=died), unit=service)

    (again,) = [step for step in proof.steps if step.as_service and step.name == "cuda"]
    assert {row.name: row.verdict for row in again.rows if row.verdict is Verdict.FAILS} == {
        "cuda": Verdict.FAILS,
        "not reached": Verdict.FAILS,
    }


def test_doctor_names_what_the_service_may_not(service):
    found = examine_as_service(command=scripted(nodes=NODE), unit=service)
    assert not found.is_there
    assert "/dev/nvmap" in found.detail

    assert examine_as_service(command=scripted(), unit=service).is_there
    assert examine_as_service(unit=NONE) is None


def test_the_sandbox_is_that_of_the_unit_and_of_what_lies_beside_it(service, tmp_path):
    drop_in = service.with_name("edge-runtime.service.d") / "30-csi.conf"
    drop_in.parent.mkdir()
    drop_in.write_bytes((ROOT / "systemd/csi.conf").read_bytes())
    prove(steps=quick()[:1], command=scripted(), unit=service)

    asked = (tmp_path / "asked").read_text().splitlines()
    properties = [asked[index + 1] for index, word in enumerate(asked) if word == "-p"]
    assert {"User=edge-runtime", "DevicePolicy=closed", "PrivateTmp=yes", "NoNewPrivileges=yes"} <= set(properties)
    assert "DeviceAllow=/dev/nvmap rw" in properties
    assert properties.index("PrivateTmp=yes") < properties.index("PrivateTmp=no")  # the drop-in has the last word
    # What would take folders from the service that runs, or make of the probe a service, stays out.
    assert not [one for one in properties if one.startswith(("RuntimeDirectory", "StateDirectory", "Exec", "Type="))]
    assert unit_properties(service) == [one for one in properties if not one.startswith("RuntimeMaxSec")]
