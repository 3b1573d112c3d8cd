"""What people are told of a disk in trouble: at once, in one wording, and over only when it has worked for a while."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from edge.publish.outbox.bounds import DiskTrouble

CALM_S = 10.0


class Watched:
    """A trouble on a clock of its own, and all that was told with its time."""

    def __init__(self, tmp_path):
        self.now_s = 0.0
        self.trouble = DiskTrouble(tmp_path / "spool.db", now_s=lambda: self.now_s)
        self.told = []

    def at(self, now_s, *said):
        """Let it be `now_s`, and hear what is said, if anything."""
        self.now_s = now_s
        for one in said:
            self.trouble.say(one)
        self.trouble.look()
        if not self.told or self.told[-1][1] != self.trouble.told:
            self.told.append((now_s, self.trouble.told))


def test_it_is_told_at_once_with_what_it_means_and_over_when_it_has_been_calm(tmp_path, caplog):
    caplog.set_level("INFO")
    seen = Watched(tmp_path)
    seen.at(1.0, "disk is full")
    assert seen.trouble.alarm == "messages are in memory only, which a power cut takes: disk is full"
    seen.at(6.0, "disk is full")
    seen.at(11.0, None)
    seen.at(15.9)
    seen.at(16.0)

    assert seen.told == [(1.0, "disk is full"), (16.0, None)]
    assert seen.trouble.alarm is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_file_that_was_set_aside_is_told_for_a_minute_beside_what_else_is_wrong(tmp_path):
    seen = Watched(tmp_path)
    seen.at(5.0)
    seen.trouble.was_damaged()
    damaged = "the file of messages was damaged and is set aside: what is missing is declared"
    assert seen.trouble.alarm == damaged
    seen.at(6.0, "disk is full")
    assert seen.trouble.alarm.endswith(f": disk is full; {damaged}")
    assert seen.trouble.told == "disk is full", "metrics do not take a damaged file for a disk that takes nothing"
    seen.at(64.9)
    assert damaged in seen.trouble.alarm
    seen.at(65.0)
    assert damaged not in seen.trouble.alarm


@given(st.lists(st.tuples(st.floats(0.01, 30.0), st.sampled_from([None, "full", "stalled"])), max_size=60))
def test_whatever_a_disk_does_it_is_told_no_more_often_than_each_while(tmp_path_factory, steps):
    seen = Watched(tmp_path_factory.getbasetemp())
    now_s, wrong_s = 0.0, -math.inf
    for step_s, said in steps:
        now_s += step_s
        wrong_s = wrong_s if said is None else now_s
        seen.at(now_s, said)
        assert (seen.trouble.told is None) == (now_s - wrong_s >= CALM_S), "told at once, and until it has been calm"
    for (before_s, before), (after_s, _) in itertools.pairwise(seen.told):
        assert before is None or after_s - before_s >= CALM_S, "in one wording for a while"
