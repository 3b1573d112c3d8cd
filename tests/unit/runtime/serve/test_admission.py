"""Whether an engine can serve what streams ask for: figures worked out by hand, and a clock of its own."""

import numpy as np
import pytest

from edge.errors import ConfigError
from edge.runtime.serve.overload import Admission, EngineSpeed, judge_admission, measure_engine
from edge.types import StreamId
from tests.support.logged import logged
from tests.support.service_parts import DOWN, UP, Run
from tests.support.service_parts import FIRST as A
from tests.support.service_parts import SECOND as B

C = StreamId("s2")
FORTY = EngineSpeed(rows=4, batch_s=0.1)  # 40 frames per second


class Engine:
    """Takes the times that it is given, in turn."""

    max_batch = 4

    def __init__(self, *times_s):
        self.times_s, self.now_s, self.batches = list(times_s), 0.0, 0

    def start(self, index, count):
        assert count == self.max_batch

    def wait(self, index):
        self.now_s += self.times_s[min(self.batches, len(self.times_s) - 1)]
        self.batches += 1
        return np.zeros(0)


def test_what_is_measured_is_the_median_of_full_batches():
    engine = Engine(0.5, 0.1, 0.1)

    assert measure_engine(engine, clock_s=lambda: engine.now_s) == EngineSpeed(rows=4, batch_s=0.3)
    assert engine.batches == 2
    engine = Engine(0.1, 0.3, 0.1, 0.1, 0.1)
    assert measure_engine(engine, clock_s=lambda: engine.now_s).fps == pytest.approx(20)


def test_a_quick_engine_is_not_measured_for_ever():
    engine = Engine(0.001)

    measure_engine(engine, clock_s=lambda: engine.now_s)

    assert engine.batches == 20


def test_what_fits_is_said_with_its_figures():
    verdict = judge_admission(FORTY, {A: 15.0, B: 15.0})

    assert verdict.is_served
    assert verdict.text == (
        "30.0 fps are wanted, 40.0 are served (100.0 ms for a batch of 4, measured); decoding is not included"
    )


def test_what_does_not_fit_is_said_with_what_would():
    verdict = judge_admission(FORTY, {A: 30.0, B: 30.0, C: 5.0})

    assert not verdict.is_served
    assert "65.0 fps" in verdict.text
    assert "max_fps 17.5 for each would fit, or 1 of 3 streams as they are" in verdict.text


@pytest.mark.parametrize("stated", [{A: None, B: None}, {}], ids=["cameras", "files"])
def test_where_no_rate_is_stated_only_what_is_served_is_said(stated):
    verdict = judge_admission(FORTY, stated)

    assert verdict.is_served
    assert verdict.text == (
        "no stream states its rate; 40.0 fps are served (100.0 ms for a batch of 4, measured); decoding is not included"
    )


def test_a_rate_that_nobody_states_is_not_guessed():
    verdict = judge_admission(FORTY, {A: None, B: 30.0})

    assert verdict.is_served
    assert verdict.text.endswith("decoding is not included, nor are streams whose rate is not stated: s0")


@pytest.fixture
def run():
    run = Run()
    run.admission = Admission(FORTY, run, tell=run.told.append)
    run.watched_by(run.admission)
    return run


def test_rates_that_come_are_judged_once_after_ten_seconds(run, caplog):
    run.seconds(9, inferred=(30, 30))
    assert run.told == []

    run.seconds(1, inferred=(30, 30))
    run.seconds(30, inferred=(30, 30))

    assert len(run.told) == 1
    assert "60.0 fps" in run.told[0]
    assert "max_fps 20.0" in run.told[0]
    assert logged(caplog).count("engine-too-slow") == 1


def test_cameras_that_are_away_are_waited_for(run):
    run.state = DOWN
    run.seconds(40, inferred=(30, 0))
    assert run.told == []

    run.state = UP
    run.seconds(10, inferred=(10, 10))

    assert run.told == [None]


def test_streams_of_a_reload_are_judged_as_well(run):
    run.live = frozenset((A,))
    run.seconds(10, inferred=(30, 30))
    run.live = frozenset((A, B))
    run.seconds(10, inferred=(30, 30))

    assert run.told[0] is None
    assert "60.0 fps" in run.told[1]


def test_a_stream_that_a_reload_begins_anew_is_waited_for(run):
    run.seconds(10, inferred=(30, 30))
    run.away = frozenset((B,))
    run.seconds(10, inferred=(60, 0))
    run.away = frozenset()
    run.seconds(15, inferred=(30, 30))

    assert len(run.told) == 1, "of both, and no verdict on one alone"


def test_a_stream_that_reloads_take_out_and_bring_back_wants_what_it_sends_now(run):
    run.seconds(600, inferred=(10, 10))
    run.away, run.live = frozenset((B,)), frozenset((A,))
    run.seconds(15, inferred=(10, 0))
    run.away, run.live = frozenset(), frozenset((A, B))
    run.seconds(30, inferred=(10, 10))

    assert run.told == [None] * 3  # both, one, both


def test_a_verdict_goes_when_half_a_minute_says_otherwise(run):
    run.seconds(10, inferred=(30, 30))
    run.seconds(20, inferred=(15, 15))
    run.seconds(10, inferred=(30, 30))
    run.seconds(20, inferred=(15, 15))
    assert len(run.told) == 1

    run.seconds(10, inferred=(15, 15))
    run.seconds(30, inferred=(30, 30))

    assert run.told[1] is None
    assert "60.0 fps" in run.told[2]


def test_stated_rates_are_judged_at_once_and_refused_where_that_is_asked_for(run, caplog):
    run.admission.at_start({A: 30.0, B: 30.0}, refuses=False)

    assert "60.0 fps" in run.told[0]
    with pytest.raises(ConfigError, match=r"60\.0 fps") as raised:
        run.admission.at_start({A: 30.0, B: 30.0}, refuses=True)
    assert "at_start: warn" in raised.value.hint
    run.admission.at_start({A: 10.0, B: None}, refuses=True)
    assert run.told[-1] is None
