"""The overload ladder around the real batcher, on made-up traces and a virtual clock (tests/support/simulation.py)."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edge.runtime.pipeline.shares import FrameCounts, Ladder, Terms, fair_caps
from edge.types import DropReason, StreamId
from tests.support.simulation import NS, Camera, Simulation
from tests.unit.runtime.pipeline.test_batcher_traces import fair_shares

WINDOW_S = 1.0  # a fifth of the service's, with cameras that are that much faster than most
END_S = 24.0
LOST = (DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED)
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


class Climb:
    """A simulation whose ladder is asked after each window, as the service does."""

    def __init__(self, streams, *, ladder=True, end_s=END_S, **options):
        self.caps = []  # after each window
        self.window_counts = []
        self.sim = Simulation(streams, end_s=end_s, **options)
        self._ladder = Ladder()
        self._terms = options.get("terms", {})
        self._before = self._counts()
        if ladder:
            self.sim.after(WINDOW_S, self._judge)
        self.sim.run()
        self.told = self.sim.told

    def _counts(self):
        told = self.sim.told.items()
        counts = {name: (one.decoded, len(one.inferred), sum(one.dropped[why] for why in LOST)) for name, one in told}
        return counts, self.sim.busy_ns

    def _judge(self):
        now, before = self._counts(), self._before
        self._before = now
        loads = {
            StreamId(name): load_of(decoded, inferred=inferred, lost=lost)
            for name, one in now[0].items()
            for decoded, inferred, lost in (np.subtract(one, before[0][name]),)
        }
        inferred, busy_s = sum(load.inferred for load in loads.values()), (now[1] - before[1]) / NS
        self._ladder.judge(loads, self._terms, window_s=WINDOW_S, capacity_fps=inferred / max(busy_s, 0.01))
        for name, order in self.sim.orders.items():
            order.max_fps = self._ladder.caps.get(StreamId(name))
        self.caps.append(dict(self._ladder.caps))
        self.window_counts.append(loads)
        self.sim.after(WINDOW_S, self._judge)

    @property
    def capped(self):
        return [bool(caps) for caps in self.caps]

    @property
    def changes(self):
        return sum(one != other for one, other in itertools.pairwise(self.capped))

    def inferred_from(self, since_s):
        return {name: sum(at_ns >= since_s * NS for at_ns in one.closed_at_ns) for name, one in self.told.items()}


def cameras(count, *, fps=30.0, **options):
    return {f"s{i}": Camera(fps=fps, start_s=0.011 * i, seed=i, **options) for i in range(count)}


def mixed_of(rates):
    return {f"s{i}": Camera(fps=fps, start_s=0.007 * i, seed=i, jitter=0.2) for i, fps in enumerate(rates)}


mixed = st.lists(st.sampled_from([25, 30, 50, 60, 75]), min_size=2, max_size=5).map(mixed_of)


def wanted(streams):
    return {name: camera.fps for name, camera in streams.items()}


@settings(max_examples=25, **SLOW)
@given(streams=mixed, factor=st.floats(1.4, 6))
def test_under_a_constant_overload_it_steps_down_once_and_stays(streams, factor):
    climb = Climb(streams, rows=len(streams), fixed_s=0, per_row_s=factor / sum(wanted(streams).values()))

    assert climb.capped[-1]
    assert climb.capped == sorted(climb.capped)
    lost = sum(load.lost for window in climb.window_counts[-10:] for load in window.values())
    inferred = sum(load.inferred for window in climb.window_counts[-10:] for load in window.values())
    assert lost <= 0.1 * (lost + inferred)


@pytest.mark.slow(reason="simulates minutes of load")
@settings(max_examples=25, **SLOW)
@given(streams=mixed, factor=st.floats(0.7, 1.4), fixed_share=st.floats(0, 0.5))
def test_at_the_edge_it_does_not_swing(streams, factor, fixed_share):
    per_frame_s = factor / sum(wanted(streams).values())
    climb = Climb(
        streams,
        rows=len(streams),
        fixed_s=per_frame_s * fixed_share * len(streams),
        per_row_s=per_frame_s * (1 - fixed_share),
        end_s=3 * END_S,
    )

    # 72 windows: down, and up again after at least 3, 6, 12 and 24 of them.
    assert climb.changes <= 9


@pytest.mark.slow(reason="simulates minutes of load")
@settings(max_examples=20, **SLOW)
@given(streams=mixed, factor=st.floats(0.05, 0.5))
def test_a_machine_that_keeps_up_leaves_nothing_out(streams, factor):
    climb = Climb(streams, rows=len(streams), fixed_s=0, per_row_s=factor / sum(wanted(streams).values()))

    assert not any(climb.capped)


@settings(max_examples=20, **SLOW)
@given(
    streams=mixed, factor=st.floats(1.4, 5), priorities=st.lists(st.sampled_from([1, 1, 2, 4]), min_size=5, max_size=5)
)
def test_rates_are_fair_by_priority_also_where_all_fit_in_a_batch(streams, factor, priorities):
    of = dict(zip(streams, priorities, strict=False))
    terms = {StreamId(name): Terms(priority=priority) for name, priority in of.items()}
    climb = Climb(streams, rows=len(streams), fixed_s=0, per_row_s=factor / sum(wanted(streams).values()), terms=terms)

    since_s = END_S / 2
    found = {name: count / (END_S - since_s) for name, count in climb.inferred_from(since_s).items()}
    shares = fair_shares(wanted(streams), of, total=sum(found.values()), most=1000)
    for name, share in shares.items():
        assert found[name] >= 0.8 * share - 0.3


@pytest.mark.slow(reason="simulates minutes of load")
@settings(max_examples=20, **SLOW)
@given(streams=mixed, factor=st.floats(1.2, 6))
@example(streams=mixed_of([25, 25]), factor=5.25)  # windows of eight and of ten frames in turn
@example(streams=mixed_of([25, 30]), factor=5.8)
def test_frames_are_no_older_and_hardly_fewer_than_without_it(streams, factor):
    per_row_s = factor / sum(wanted(streams).values())
    options = {"rows": len(streams), "fixed_s": 0, "per_row_s": per_row_s}
    climb, plain = Climb(streams, **options), Climb(streams, ladder=False, **options)

    def ages_ms(run):
        return [age_ns / 1e6 for one in run.told.values() for age_ns in one.ages_ns]

    # What is capped has no newer frame to take its place: it may wait for one batch, and no longer.
    one_batch_ms = 1e3 * len(streams) * per_row_s
    for percent in (50, 95):
        assert np.percentile(ages_ms(climb), percent) <= max(np.percentile(ages_ms(plain), percent), one_batch_ms) + 5
    assert len(ages_ms(climb)) >= 0.85 * len(ages_ms(plain))


@pytest.mark.slow(reason="simulates minutes of load")
@settings(max_examples=20, **SLOW)
@given(streams=mixed, factor=st.floats(1.5, 6), after=st.floats(0.05, 0.5))
def test_when_the_load_is_gone_all_frames_are_taken_again(streams, factor, after):
    per_row_s = 1 / sum(wanted(streams).values())
    climb = Climb(
        streams,
        rows=len(streams),
        fixed_s=0,
        per_row_s=per_row_s,
        slowness=lambda sim: factor if sim.now_ns < 8 * NS else after,
    )

    assert climb.capped[int(8 / WINDOW_S) - 1]
    assert not climb.capped[-1]
    capped = sum(told.dropped[DropReason.CAPPED] for told in climb.told.values())
    assert capped
    whole = climb.window_counts[-1]
    assert sum(load.inferred for load in whole.values()) >= 0.9 * sum(load.wanted for load in whole.values())


def test_streams_that_go_leave_their_share_to_the_others():
    streams = {**cameras(2), **{f"gone{i}": Camera(fps=30, pauses=((8.0, END_S),)) for i in range(4)}}
    climb = Climb(streams, rows=6, fixed_s=0, per_row_s=1 / 50)

    before, after = (
        climb.window_counts[int(at_s / WINDOW_S) - 1][StreamId("s0")].inferred for at_s in (7.0, END_S - 1)
    )
    assert before / WINDOW_S == pytest.approx(50 / 6, abs=3)
    assert after / WINDOW_S >= 18


@pytest.mark.parametrize("after", [0.6, 0.8])
def test_a_stream_that_gave_few_frames_when_caps_were_set_leaves_the_others_their_share_after_the_load(after):
    """What the engine could do is measured too low while its batches are small: that must not starve anyone."""
    rates, starved = (6, 6, 12, 18, 15), (3, 4)
    streams = {
        f"s{i}": Camera(fps=fps, start_s=0.007 * i, jitter=0.2, seed=i, pauses=((1.0, 8.0),) if i in starved else ())
        for i, fps in enumerate(rates)
    }
    climb = Climb(
        streams,
        rows=len(rates),
        fixed_s=0.5 * len(rates) / sum(rates),
        per_row_s=0.5 / sum(rates),
        slowness=lambda sim: 12 if sim.now_ns < 8 * NS else after,
    )

    caught, after_it = climb.caps[int(8 / WINDOW_S)], climb.window_counts[-1]
    assert sorted(caught) == ["s0", "s1", "s2"]
    assert max(caught.values()) < 1.5
    assert [after_it[StreamId(name)].inferred >= 5 for name in streams] == [True] * 5


def load_of(fps, *, inferred, lost=0):
    return FrameCounts(inferred=inferred, lost=lost, shed=max(0, fps - inferred - lost))


def test_a_slower_engine_gets_lower_caps():
    ladder, stream = Ladder(), StreamId("a")
    for inferred in (20, 20, 10, 10):
        loads = {stream: load_of(30, inferred=inferred, lost=5)}
        ladder.judge(loads, {}, window_s=1.0, capacity_fps=inferred * 1.02)

    assert ladder.caps == {stream: pytest.approx(9.7)}


def test_an_engine_that_needs_longer_than_some_windows_is_waited_for_and_capped_by_all_of_them():
    ladder, stream = Ladder(), StreamId("a")
    changed = [
        ladder.judge({stream: load_of(30, inferred=inferred, lost=30)}, {}, window_s=5.0, capacity_fps=inferred / 5)
        for inferred in (0, 0, 0, 0, 2)
    ]

    assert changed == [False, False, False, False, True]
    assert ladder.caps == {stream: pytest.approx(0.97 * 2 / 25)}


def test_an_engine_that_answers_nothing_has_no_rate_that_cameras_could_be_held_to():
    ladder, stream = Ladder(), StreamId("a")
    for inferred in (20, 20, *[0] * 9):
        ladder.judge({stream: load_of(30, inferred=inferred, lost=10)}, {}, window_s=1.0, capacity_fps=inferred)

    assert ladder.caps[stream] == pytest.approx(0.97 * 20)


def test_a_step_up_that_fails_is_tried_again_after_twice_as_long():
    ladder, stream = Ladder(), StreamId("a")

    waits = []
    for _ in range(7):
        for _ in range(2):
            ladder.judge({stream: load_of(30, inferred=20, lost=10)}, {}, window_s=1.0, capacity_fps=1000.0)
        waits.append(0)
        while ladder.caps:
            ladder.judge({stream: load_of(30, inferred=20)}, {}, window_s=1.0, capacity_fps=1000.0)
            waits[-1] += 1

    assert waits == [3, 6, 12, 24, 48, 64, 64]


@pytest.mark.parametrize(
    ("wanted_fps", "priorities", "total", "caps"),
    [
        ({"a": 30, "b": 30}, {}, 20, {"a": 10, "b": 10}),
        ({"a": 30, "b": 5}, {}, 20, {"a": 15}),
        ({"a": 30, "b": 30}, {"a": 3}, 40, {"a": 30, "b": 10}),
        ({"a": 30, "b": 30, "c": 30}, {"a": 2}, 40, {"a": 20, "b": 10, "c": 10}),
        ({"a": 30}, {}, 30, {}),
        ({}, {}, 10, {}),
    ],
)
def test_what_there_is_goes_to_all_by_priority_and_what_one_does_not_want_to_the_others(
    wanted_fps, priorities, total, caps
):
    terms = {name: Terms(priority=priority) for name, priority in priorities.items()}

    found = fair_caps(wanted_fps, terms, total_fps=total)

    full = {name: found.get(name, fps) for name, fps in wanted_fps.items()}
    assert full == pytest.approx({**wanted_fps, **caps})
