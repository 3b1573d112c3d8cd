"""What a person reads of a plan and of the gate."""

import pytest

from edge.bundle.manifest import Role
from edge.delivery.deliverable import golden_words, plan_words, silent_words
from edge.wire.release import Golden, PlanAnswer, PlannedEngine
from tests.support.answers import health, status
from tests.support.manifests import bundled, manifest

ONNX, PIPELINE = bundled("model.onnx", Role.MODEL, b"m" * 90), bundled("pipeline.yaml", Role.PIPELINE, b"p" * 10)
RELEASE = manifest(files=(ONNX, PIPELINE))
BUILD = PlannedEngine(key=None, build=True, why="there is none", last_build_s=61.4)


def plan(**changes):
    values = {
        "release": RELEASE.release,
        "current": "aaaaaaaaaaaa",
        "phase": "idle",
        "last": None,
        "is_unchanged": False,
        "missing": {PIPELINE.sha256: 10},
        "bytes": 10,
        "engine": BUILD,
        "refusals": (),
    }
    return PlanAnswer(**{**values, **changes})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            plan(),
            "aaaaaaaaaaaa serves; 1 of 2 files to send, 10 of 100 bytes; "
            "the engine will be built, because there is none; the last one took 61 s",
        ),
        (
            plan(current=None, missing={}, bytes=0, engine=PlannedEngine(key="b" * 64, build=False)),
            "nothing serves; 0 of 2 files to send, 0 of 100 bytes; engine bbbbbbbbbbbb is there",
        ),
        (
            plan(engine=PlannedEngine(key=None, build=True)),  # an agent of an earlier version
            "aaaaaaaaaaaa serves; 1 of 2 files to send, 10 of 100 bytes; the engine will be built",
        ),
        (plan(is_unchanged=True), "aaaaaaaaaaaa serves, which is this release"),
    ],
)
def test_a_plan_says_from_what_to_what_and_what_it_costs(answer, words):
    assert plan_words(answer, RELEASE) == words


def test_the_gate_says_what_was_found_of_what():
    golden = Golden(found=50, expected=51, extra=2, score_error=0.01234)

    assert golden_words("c" * 64, golden) == (
        "engine cccccccccccc finds 50 of 51 sure detections of the float model, 2 others, scores differ by 0.012"
    )


def test_who_pushes_hears_of_each_stream_that_gives_no_frames():
    told = health(east=("up", 9), gate=("down", 9), lobby=("connecting", 0), clip=("ended", 9))

    said = silent_words(status(health=told))

    assert [words.split(";")[0] for words in said] == [
        "stream gate gives no frames (down)",
        "stream lobby gives no frames (connecting)",
    ]


@pytest.mark.parametrize("told", [None, health()])
def test_a_device_that_says_nothing_of_its_streams_leaves_nothing_to_tell(told):
    assert silent_words(status(health=told)) == []
