"""What is written of an engine, and what becomes of one that is missing, damaged or of another system."""

import hashlib
import json

import pytest

from edge.device.engines import BUILD, PLAN, read_plan, read_record
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over
from tests.support.raised import error_of
from tests.support.scenarios import BARE
from tests.support.values import engine_inputs, engine_record

VERSIONS = {"engine": "1.2", "cpu": "of one"}
INPUTS = engine_inputs(kind="one", max_batch=4, input_size=(640, 480), versions=VERSIONS)
RECORD = engine_record(
    INPUTS,
    plan_sha256=hashlib.sha256(b"plan").hexdigest(),
    plan_bytes=4,
    precision="fp16",
    report={"route": "pairs", "fallback": {"reason": "not faster"}, "why": "it is asked for"},
)


@pytest.fixture
def engines():
    return device_over(CutFiles(BARE)).engines


WRITTEN = RECORD.encode()


def take(engines, *, record=WRITTEN, plan=b"plan", key=INPUTS.key):
    engines.take(key, {BUILD: record, PLAN: plan}, replaces=True)


def changed(**values):
    return json.dumps({**json.loads(RECORD.encode()), **values}).encode()


def test_a_record_is_read_as_it_was_written(engines):
    take(engines)
    assert read_record(engines, INPUTS.key) == RECORD
    assert read_plan(engines, INPUTS.key, versions_of={"one": VERSIONS}.__getitem__) == (RECORD, b"plan")
    assert RECORD.line == "one fp16 instead of int8, pairs: not faster; it is asked for"


def test_an_engine_that_is_not_here_is_said_to_be_missing(engines):
    error = error_of(read_record, engines, INPUTS.key)
    assert error.code == "device.engine.missing"
    assert "push the release again" in error.hint


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", changed(format="edge.engine/99"), changed(inputs={}), changed(plan_bytes="four")],
)
def test_a_record_that_cannot_be_read_is_damage(engines, content):
    take(engines, record=content)
    error = error_of(read_record, engines, INPUTS.key)
    assert error.code == "device.engine.damaged"
    assert BUILD in error.problem


def test_a_record_of_another_format_is_told_by_both(engines):
    take(engines, record=changed(format="edge.engine/99"))
    assert "'edge.engine/99', expected 'edge." in error_of(read_record, engines, INPUTS.key).problem


def test_a_record_of_another_engine_is_damage(engines):
    take(engines, key="f" * 64)
    error = error_of(read_record, engines, "f" * 64)
    assert error.code == "device.engine.damaged"
    assert f"describes engine {INPUTS.key[:12]}" in error.problem


def test_an_engine_of_another_system_is_named_as_such_by_what_differs(engines):
    take(engines)
    error = error_of(read_plan, engines, INPUTS.key, versions_of=lambda _: {**VERSIONS, "engine": "1.3"})
    assert error.code == "device.engine.changed"
    assert "engine 1.2 is now 1.3" in error.problem


@pytest.mark.parametrize("plan", [b"", b"pla", b"plan and more", b"PLAN"])
def test_a_plan_that_is_not_what_was_built_is_damage(engines, plan):
    take(engines, plan=plan)
    error = error_of(read_plan, engines, INPUTS.key, versions_of=lambda _: VERSIONS)
    assert error.code == "device.engine.damaged"
    assert PLAN in error.problem


def test_a_plan_that_is_gone_is_damage(engines):
    engines.take(INPUTS.key, {BUILD: RECORD.encode()}, replaces=True)
    error = error_of(read_plan, engines, INPUTS.key, versions_of=lambda _: VERSIONS)
    assert error.code == "device.engine.damaged"
