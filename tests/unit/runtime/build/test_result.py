"""How a build ended is one type, and another process's word: what is not that is no result."""

import json

import pytest

from edge.runtime.build.request import MAX_RESULT_BYTES, BuildResult, decode_golden, decode_result
from edge.wire.peer import Problem
from edge.wire.release import Golden

ENGINE = BuildResult(
    release="0" * 12,
    id="ab",
    key="1" * 64,
    seconds=2.5,
    golden=Golden(expected=2, found=2, extra=0, score_error=0.1, images=1, per_class={"car": (2, 2, 0)}),
    engine="openvino int8",
    precision="int8",
    report={"route": "explicit", "fallback": {"ratio": 0.5}},
)
FAILURE = BuildResult(release="0" * 12, problem=Problem(code="build.oom", problem="no memory", evidence={"mib": 7}))


@pytest.mark.parametrize("result", [ENGINE, FAILURE], ids=["an engine", "a problem"])
def test_a_result_comes_back_as_it_went(result):
    assert decode_result(result.encode()) == result


def test_what_a_later_builder_says_besides_is_left_out():
    assert decode_result(json.dumps({**json.loads(ENGINE.encode()), "new": [1]}).encode()) == ENGINE


@pytest.mark.parametrize(
    "changes",
    [
        {"key": 7},
        {"key": None},
        {"problem": {"code": "build.failed", "problem": "but there is an engine"}},
        {"problem": {"code": "c" * 101, "problem": ""}, "key": None},
        {"problem": {"code": "build.failed", "problem": "p" * 16_001}, "key": None},
        {"problem": "failed", "key": None},
        {"seconds": -1.0},
        {"seconds": 1e10},
        {"seconds": "2"},
        {"golden": {"passed": True}},
        {"report": [1]},
        {"engine": "e" * 4097},
        {"release": 1},
        {"engine": "e" * MAX_RESULT_BYTES},
    ],
)
def test_what_no_builder_writes_is_no_result(changes):
    with pytest.raises(ValueError, match=r".+"):
        decode_result(json.dumps({**json.loads(ENGINE.encode()), **changes}).encode())


def test_what_could_move_a_terminal_is_gone_from_a_result():
    said = {"code": "build.failed", "problem": "\x1b[2Jgone", "evidence": {"a": "\x1b"}}
    problem = decode_result(json.dumps({"release": "0" * 12, "problem": said}).encode()).problem
    assert (problem.problem, problem.evidence) == ("?[2Jgone", {"a": "?"})


def test_golden_numbers_are_those_of_the_gate_without_the_proof_of_which_frames():
    told = {"passed": True, "expected": 2, "found": 1, "extra": 0, "score_error": 0.5, "proof": "ab"}
    assert decode_golden(json.dumps(told).encode()) == Golden(expected=2, found=1, extra=0, score_error=0.5)
    assert decode_golden(b'{"passed": null, "proof": ""}') is None
