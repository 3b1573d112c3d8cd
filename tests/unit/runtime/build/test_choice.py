"""Which precision a device gets: the gate and a race decide, and the report says why."""

import dataclasses
import re

import numpy as np
import pytest

from edge.engine.kind import Plan
from edge.errors import DeployError, EngineError, ModelError, OutOfMemoryError
from edge.evaluate.golden import GoldenScore
from edge.runtime.build.choice import Candidate, choose_precision, race
from edge.types import Precision
from tests.support.raised import error_of
from tests.support.values import engine_inputs, engine_record

INT8, FP16, FP32 = Precision.INT8, Precision.FP16, Precision.FP32
LABELS = ("person",)
WORK = np.random.default_rng(0).random((64, 64))


@dataclasses.dataclass
class Working:
    """An engine that multiplies matrices: `rounds` of them, so that one is slower than another by what it does."""

    rounds: int
    max_batch: int = 2
    batches: int = 0

    def __post_init__(self):
        self.canvases = tuple(np.zeros((self.max_batch, 8, 8, 3), np.uint8) for _ in range(2))

    def start(self, index, count):
        assert (index, count) == (0, self.max_batch)

    def wait(self, index):
        self.batches += 1
        values = WORK
        for _ in range(self.rounds):
            values = np.tanh(values @ WORK)
        return values


FAST, SLOW = 2, 60


def score(*failures):
    return GoldenScore(
        images=4, expected=10, found=10 - len(failures), extra=0, mean_iou=0.9, score_error=0.01, failures=failures
    )


class Maker:
    """Builds what it was told of each precision, and remembers what it was asked for."""

    def __init__(self, **known):
        self.known, self.asked = known, []

    def __call__(self, precision):
        self.asked.append(precision)
        known = self.known[precision.value]
        if isinstance(known, Exception):
            raise known
        rounds, golden = known
        plan = Plan(data=precision.value.encode(), report={"route": "of a test"})
        return Candidate(precision=precision, plan=plan, engine=Working(rounds), score=golden)


def choose(make, fallback=FP16, asked=INT8):
    return choose_precision(asked, fallback, make, gate=None, labels=LABELS)


def test_without_a_fallback_nothing_else_is_built():
    make = Maker(int8=(SLOW, score()))

    made = choose(make, fallback=None)

    assert (made.precision, make.asked, made.plan.report) == (INT8, [INT8], {"route": "of a test"})


def test_a_faster_rival_that_passes_takes_the_place_of_int8_although_no_fallback_is_named():
    make = Maker(int8=(SLOW, score()), fp16=(FAST, score()))

    made = choose_precision(INT8, None, make, gate=None, labels=LABELS, rival=FP16)

    assert (made.precision, made.plan.report["fallback"]["taken"]) == (FP16, "fp16")


@pytest.mark.parametrize("rival", [(SLOW, score()), (FAST, score("9 of 10")), EngineError("no FP16 here")])
def test_int8_stays_where_its_rival_is_slower_or_misses_objects_or_is_not_built(rival):
    make = Maker(int8=(FAST if rival == (SLOW, score()) else SLOW, score()), fp16=rival, fp32=EngineError("nor FP32"))

    assert choose_precision(INT8, None, make, gate=None, labels=LABELS, rival=FP16).precision is INT8


@pytest.mark.parametrize("int8", [(FAST, score("9 of 10")), EngineError("no implementation")])
def test_a_rival_never_stands_in_for_int8_that_fails(int8):
    make = Maker(int8=int8, fp16=(FAST, score()))

    with pytest.raises((DeployError, EngineError)):
        choose_precision(INT8, None, make, gate=None, labels=LABELS, rival=FP16)
    assert make.asked == [INT8]


def test_without_a_fallback_what_fails_the_gate_is_refused_with_its_numbers():
    with pytest.raises(DeployError, match=r"int8 .*: 9 of 10") as caught:
        choose(Maker(int8=(FAST, score("9 of 10"))), fallback=None)

    assert caught.value.code == "smoke.accuracy"
    assert caught.value.evidence["found"] == 9


def test_int8_that_passes_and_is_faster_stays_with_the_times_of_both():
    made = choose(Maker(int8=(FAST, score()), fp16=(SLOW, score())))

    assert made.precision is INT8
    told = made.plan.report["fallback"]
    assert (told["asked"], told["other"], told["taken"]) == ("int8", "fp16", None)
    assert told["int8_ms"] < told["fp16_ms"]
    assert told["ratio"] < 1
    assert "reason" not in told


def test_int8_that_fails_the_gate_gives_way_and_says_so():
    make = Maker(int8=(FAST, score("9 of 10 were found again")), fp16=(SLOW, score()))

    made = choose(make)

    assert (made.precision, made.plan.data) == (FP16, b"fp16")
    told = made.plan.report["fallback"]
    assert told["taken"] == "fp16"
    assert told["reason"].startswith("int8 ")
    assert told["reason"].endswith(": 9 of 10 were found again")
    assert told["golden"]["found"] == 9


def test_the_account_of_raced_int8_forms_stays_where_another_precision_is_taken():
    make, forms = Maker(int8=(SLOW, score()), fp16=(FAST, score())), {"taken": "as proven", "rows": []}

    def raced(precision):
        made = make(precision)
        more = {"int8_forms": forms} if precision is INT8 else {}
        return dataclasses.replace(made, plan=dataclasses.replace(made.plan, report={**made.plan.report, **more}))

    made = choose(raced)

    assert made.precision is FP16
    assert made.plan.report["int8_forms"] == forms


def test_where_neither_passes_the_numbers_of_both_are_told_and_no_fallback_is_advised():
    error = error_of(choose, Maker(int8=(FAST, score("int8 misses")), fp16=(FAST, score("fp16 misses"))))

    assert error.code == "smoke.accuracy"
    assert re.search(r"fp16 engine .*: fp16 misses; .*int8: int8 misses", error.problem)
    assert "edge-runtime doctor" in error.hint


def line_of(made):
    inputs = engine_inputs(calibration_sha256="1" * 64, max_batch=2, fallback="fp16")
    line = engine_record(inputs, precision=made.precision.value, report=made.plan.report).line
    return re.sub(r"[0-9.]+ ms", "N ms", line)


ABSENT = EngineError("precision fp16: this CPU computes FP32, INT8")
WORDS = {
    "int8 passes and is faster": (
        {"int8": (FAST, score()), "fp16": (SLOW, score())},
        "tensorrt int8, of a test",
    ),
    "int8 fails its gate": (
        {"int8": (FAST, score("9 of 10")), "fp16": (SLOW, score())},
        "tensorrt fp16 instead of int8, of a test: int8 ... : 9 of 10",
    ),
    "int8 is slower": (
        {"int8": (SLOW, score()), "fp16": (FAST, score())},
        "tensorrt fp16 instead of int8, of a test: int8 ... N ms ... fp16 N ms",
    ),
    "int8 is slower, but fp16 fails its gate": (
        {"int8": (SLOW, score()), "fp16": (FAST, score("too much"))},
        "tensorrt int8, of a test: int8 ... N ms ... fp16 N ms, ... fp16 ... : too much",
    ),
    "int8 fails, and there is no fp16": (
        {"int8": (FAST, score("9 of 10")), "fp16": ABSENT, "fp32": (SLOW, score())},
        "tensorrt fp32 instead of int8, of a test: int8 ... : 9 of 10; not here: "
        "precision fp16: this CPU computes FP32, INT8",
    ),
    "int8 passes, and there is nothing else": (
        {"int8": (FAST, score()), "fp16": ABSENT, "fp32": EngineError("no memory")},
        "tensorrt int8, of a test: no fallback to hold int8 against; not here: precision fp16: this CPU computes FP32, "
        "INT8; no memory",
    ),
}


@pytest.mark.parametrize(("known", "told"), WORDS.values(), ids=WORDS)
def test_what_a_person_is_told_of_the_choice(known, told):
    made = choose(Maker(**known))

    assert re.fullmatch(".*".join(map(re.escape, told.split(" ... "))), line_of(made))
    assert made.plan.report["fallback"]["taken"] == (made.precision.value if "instead" in told else None)


BEYOND = ModelError("m: weights of Conv_3 are beyond float16")


@pytest.mark.parametrize("absent", [ABSENT, BEYOND])
def test_a_precision_that_the_machine_or_the_model_lacks_is_passed_over(absent):
    make = Maker(int8=(FAST, score("misses")), fp16=absent, fp32=(SLOW, score()))

    made = choose(make)

    assert make.asked == [INT8, FP16, FP32]
    assert made.precision is FP32
    assert made.plan.report["fallback"]["absent"] == absent.problem


def test_without_any_other_precision_int8_that_fails_is_refused():
    with pytest.raises(DeployError, match=r"misses; nothing to fall back to: precision fp16: this CPU .*; no memory"):
        choose(Maker(int8=(SLOW, score("misses")), fp16=ABSENT, fp32=EngineError("no memory")))


NO_INT8 = EngineError("m: Could not find any implementation for node Conv_3")


def test_int8_that_cannot_be_built_gives_way_and_says_so():
    made = choose(make := Maker(int8=NO_INT8, fp16=(FAST, score())))

    told = made.plan.report["fallback"]
    assert (make.asked, made.precision) == ([INT8, FP16], FP16)
    assert told == {
        "asked": "int8",
        "other": "fp16",
        "taken": "fp16",
        "reason": "int8 cannot be built here: m: Could not find any implementation for node Conv_3",
    }
    assert line_of(made) == f"tensorrt fp16 instead of int8, of a test: {told['reason']}"


def test_int8_that_cannot_be_built_gives_way_to_the_first_that_can():
    made = choose(Maker(int8=NO_INT8, fp16=ABSENT, fp32=(SLOW, score())))

    assert made.precision is FP32
    assert made.plan.report["fallback"]["absent"] == ABSENT.problem


@pytest.mark.parametrize(
    ("known", "kind", "told"),
    [
        ({"int8": NO_INT8, "fp16": (FAST, score("misses"))}, DeployError, "misses; int8 cannot be built here"),
        ({"int8": NO_INT8, "fp16": ABSENT, "fp32": ABSENT}, EngineError, "Conv_3; nothing to fall back to: precision"),
        ({"int8": OutOfMemoryError("no memory"), "fp16": (FAST, score())}, OutOfMemoryError, "no memory"),
    ],
)
def test_int8_that_cannot_be_built_is_refused_where_nothing_else_would_be_better(known, kind, told):
    with pytest.raises(kind, match=told):
        choose(Maker(**known))


def test_a_race_is_run_in_turn_on_full_batches_of_the_golden_frames():
    one, two = Working(FAST), Working(FAST)
    canvases = [np.full((8, 8, 3), level, np.uint8) for level in (1, 2, 3)]

    timed = race(one, two, canvases)

    assert one.batches == two.batches == timed.pairs + 1
    assert [canvas.max() for canvas in one.canvases[0]] == [1, 2]
    assert 0.2 < timed.ratio < 5
