"""Orders, log and state of the overload ladder, on made-up accounts of a run, second by second."""

import dataclasses

from edge.media.shedding import EVERYTHING, Orders
from edge.runtime.pipeline.shares import Terms
from edge.runtime.serve.overload import Relief
from edge.types import DropReason, StreamId
from tests.unit.runtime.serve.test_watchdog import UP, account

A, B = StreamId("s0"), StreamId("s1")


class Run:
    """Two streams, whose frames per second are given; the engine is at work for a share of the time."""

    def __init__(self, terms=None):
        self.orders, self.told, self.live = Orders(), [], frozenset((A, B))
        self.relief = Relief(self.orders, live=lambda: self.live, terms=lambda: terms or {}, tell=self.told.append)
        self.second, self.busy_s = 0, 0.0
        self.inferred, self.lost, self.capped, self.skipped = ([0, 0] for _ in range(4))
        self._tick()

    def seconds(self, count, *, inferred, lost=(0, 0), capped=(0, 0), skipped=(0, 0), busy=1.0):
        for _ in range(count):
            self.second += 1
            self.busy_s += busy
            for total, more in (
                (self.inferred, inferred),
                (self.lost, lost),
                (self.capped, capped),
                (self.skipped, skipped),
            ):
                total[:] = [one + other for one, other in zip(total, more, strict=True)]
            self._tick()

    def _tick(self):
        report = account(turns=1, batches=1, streams=[(UP, 0, good, 0) for good in self.inferred])
        streams = tuple(
            dataclasses.replace(
                one,
                decoded=self.inferred[i] + self.lost[i] + self.capped[i],
                dropped={DropReason.SUPERSEDED: self.lost[i], DropReason.CAPPED: self.capped[i]},
                skipped=self.skipped[i],
            )
            for i, one in enumerate(report.streams)
        )
        times = dataclasses.replace(report.times, elapsed_s=float(self.second))
        self.relief.tick(dataclasses.replace(report, streams=streams, times=times, engine_busy_s=self.busy_s))


def caps(run):
    return {stream: round(order.max_fps, 2) for stream, order in run.orders.in_force().items()}


def test_ten_seconds_of_lost_frames_cap_the_rates_and_say_so(caplog):
    run = Run()
    run.seconds(9, inferred=(20, 20), lost=(10, 5))
    assert run.told == []
    assert not run.orders.in_force()

    run.seconds(1, inferred=(20, 20), lost=(10, 5))

    assert caps(run) == {A: 19.4, B: 19.4}  # 0.97 of what was inferred, in equal shares
    assert run.told == ["frame rates are capped: s0:19.4,s1:19.4"]
    assert "frame rates are capped wanted_fps=55.0 caps=s0:19.4,s1:19.4" in caplog.text


def test_priorities_count():
    run = Run({A: Terms(priority=3)})

    run.seconds(10, inferred=(20, 20), lost=(20, 20))

    assert caps(run) == {A: 29.1, B: 9.7}


def test_when_there_is_time_to_spare_all_frames_are_taken_again(caplog):
    caplog.set_level("INFO")
    run = Run()
    run.seconds(10, inferred=(20, 20), lost=(10, 10))
    run.seconds(60, inferred=(19, 19), capped=(11, 11), busy=0.95)
    assert len(run.told) == 1  # 60 fps are wanted, and 40 would fit

    run.seconds(14, inferred=(19, 19), capped=(11, 11), busy=0.3)
    assert len(run.told) == 1
    run.seconds(1, inferred=(19, 19), capped=(11, 11), busy=0.3)

    assert run.told[1:] == [None]
    assert not run.orders.in_force()
    assert "all frames are taken again wanted_fps=60.0" in caplog.text


def test_where_caps_do_not_help_and_the_engine_has_time_pictures_are_not_decoded(caplog):
    caplog.set_level("INFO")
    run = Run()
    for inferred in (10, 9, 8):
        run.seconds(10, inferred=(inferred, inferred), lost=(20, 5), busy=0.3)

    assert {stream: order.skips for stream, order in run.orders.in_force().items()} == {A: True, B: False}
    assert run.told[-1].endswith("; pictures that no other refers to are not decoded")
    assert "pictures that no other refers to are not decoded wanted_fps=" in caplog.text

    run.seconds(15, inferred=(7, 7), skipped=(20, 0), busy=0.3)

    assert not any(order.skips for order in run.orders.in_force().values())
    assert "all pictures are decoded again" in caplog.text


def test_files_that_wait_are_let_be():
    run = Run()
    run.live = frozenset((A,))

    run.seconds(10, inferred=(20, 100), lost=(20, 0))

    assert caps(run) == {A: 19.4}


def test_a_camera_that_went_meanwhile_is_free_when_it_is_over():
    run = Run()
    run.seconds(10, inferred=(20, 20), lost=(10, 10))
    run.live = frozenset((A,))
    run.seconds(15, inferred=(19, 0), capped=(11, 0), busy=0.3)

    assert run.orders.of(B).now == EVERYTHING
