"""Orders, log and state of the overload ladder, on made-up accounts of a run, second by second."""

from edge.media.rate import Caps
from edge.runtime.pipeline.shares import Terms
from edge.runtime.serve.overload import Relief
from tests.support.logged import logged
from tests.support.service_parts import FIRST, SECOND, Run


class Capped(Run):
    def __init__(self, terms=None):
        super().__init__()
        self.orders, self.builds, self.terms = Caps(), False, terms or {}
        self.watched_by(Relief(self.orders, self, tell=self.told.append, build_runs=lambda: self.builds))


def caps(run):
    return {stream: round(max_fps, 2) for stream, max_fps in run.orders.in_force().items()}


def test_ten_seconds_of_lost_frames_cap_the_rates_and_say_so(caplog):
    run = Capped()
    run.seconds(9, inferred=(20, 20), lost=(10, 5))
    assert run.told == []
    assert not run.orders.in_force()

    run.seconds(1, inferred=(20, 20), lost=(10, 5))

    assert caps(run) == {FIRST: 19.4, SECOND: 19.4}  # 0.97 of what was inferred, in equal shares
    assert run.told == ["frame rates are capped: s0:19.4,s1:19.4"]
    assert "overload-capped wanted_fps=55.0 caps=s0:19.4,s1:19.4 reason=overload" in logged(caplog)


def test_priorities_count():
    run = Capped({FIRST: Terms(priority=3)})

    run.seconds(10, inferred=(20, 20), lost=(20, 20))

    assert caps(run) == {FIRST: 29.1, SECOND: 9.7}


def test_when_there_is_time_to_spare_all_frames_are_taken_again(caplog):
    caplog.set_level("INFO")
    run = Capped()
    run.seconds(10, inferred=(20, 20), lost=(10, 10))
    run.seconds(60, inferred=(19, 19), capped=(11, 11), busy=0.95)
    assert len(run.told) == 1  # 60 fps are wanted, and 40 would fit

    run.seconds(14, inferred=(19, 19), capped=(11, 11), busy=0.3)
    assert len(run.told) == 1
    run.seconds(1, inferred=(19, 19), capped=(11, 11), busy=0.3)

    assert run.told[1:] == [None]
    assert not run.orders.in_force()
    assert "overload-over wanted_fps=60.0" in logged(caplog)


def test_while_a_build_runs_the_engine_is_left_half_of_its_time(caplog):
    caplog.set_level("INFO")
    run = Capped()
    run.seconds(5, inferred=(30, 10), busy=0.8)  # 50 fps could be inferred
    run.builds = True
    run.seconds(5, inferred=(30, 10), busy=0.8)
    assert caps(run) == {FIRST: 15}  # of 25 in all; the other's 10 are less than half of them

    run.seconds(60, inferred=(15, 10), capped=(15, 0), busy=0.6)
    assert len(run.told) == 1  # it goes on, though nothing is lost
    run.builds = False
    run.seconds(15, inferred=(15, 10), capped=(15, 0), busy=0.5)

    assert run.told == ["a build runs; frame rates are capped: s0:15.0", None]
    assert "overload-capped wanted_fps=40.0 caps=s0:15.0 reason=build" in logged(caplog)
    assert not run.orders.in_force()


def test_a_build_that_begins_while_the_engine_stands_still_caps_once_there_is_a_rate():
    run = Capped()
    run.seconds(5, inferred=(30, 10), busy=0.8)
    run.builds = True
    run.seconds(5, inferred=(0, 0), lost=(30, 10), busy=0.8)
    assert not run.orders.in_force()

    run.seconds(5, inferred=(30, 10), busy=0.8)
    assert caps(run) == {FIRST: 15}


def test_a_build_beside_an_engine_that_has_time_to_spare_caps_nothing():
    run = Capped()
    run.builds = True

    run.seconds(20, inferred=(20, 20), busy=0.4)

    assert run.told == []
    assert not run.orders.in_force()


def test_caps_of_an_overload_are_not_raised_by_a_build():
    """The engine could do more than it gets: decoding is what takes the time."""
    run = Capped()
    run.seconds(10, inferred=(10, 10), lost=(10, 10), busy=0.2)
    run.builds = True
    run.seconds(5, inferred=(9, 9), capped=(11, 11), busy=0.3)  # half of the engine would be 15 for each

    assert caps(run) == {FIRST: 9.7, SECOND: 9.7}


def test_files_that_wait_are_let_be():
    run = Capped()
    run.live = frozenset((FIRST,))

    run.seconds(10, inferred=(20, 100), lost=(20, 0))

    assert caps(run) == {FIRST: 19.4}


def test_a_camera_that_went_meanwhile_is_free_when_it_is_over():
    run = Capped()
    run.seconds(10, inferred=(20, 20), lost=(10, 10))
    run.live = frozenset((FIRST,))
    run.seconds(15, inferred=(19, 0), capped=(11, 0), busy=0.3)

    assert run.orders.of(SECOND).max_fps is None


def test_caps_go_when_what_the_streams_own_limits_want_would_fit(caplog):
    """Each sends 25 fps and wants 12; 13 that a cap lets go, and 4 skipped pictures, are none that anyone wants."""
    caplog.set_level("INFO")
    run = Capped({FIRST: Terms(max_fps=12), SECOND: Terms(max_fps=12)})
    run.seconds(10, inferred=(8, 8), lost=(4, 4))
    assert caps(run) == {FIRST: 7.76, SECOND: 7.76}

    run.seconds(15, inferred=(8, 8), capped=(13, 13), skipped=(4, 4), busy=0.5)  # 32 fps would be inferred

    assert not run.orders.in_force()
    assert run.told[-1] is None
    assert "overload-over wanted_fps=24.0" in logged(caplog)


def test_where_no_cap_would_leave_anything_out_none_is_told_of():
    """What was wanted fell meanwhile: of 16 fps in the end, 18 were served on the average."""
    run = Capped()
    run.seconds(5, inferred=(12, 12), lost=(12, 12))
    run.seconds(5, inferred=(6, 7), lost=(1, 1))

    assert run.told == []
    assert not run.orders.in_force()
