"""When a broker counts as returned, on a clock of the test."""

import socket

import pytest

from edge.publish.mqtt.endpoint import Endpoint
from edge.publish.mqtt.probe import Listening, Return
from tests.support.ports import free_port
from tests.support.wait import wait_until

BROKER = Endpoint(host="broker.example", port=1883, client_id="edge-gate-01")


class World:
    """A clock, and who listens when: what `answers` says from its second on."""

    def __init__(self, answers):
        self.now_s = 0.0
        self.looks = []
        self._answers = answers

    def now(self):
        return self.now_s

    def look(self, endpoint):
        assert endpoint is BROKER
        self.looks.append(self.now_s)
        return self._answers[max(at for at in self._answers if at <= self.now_s)]

    def first_return(self, *, is_away, until_s=60.0, uniform=lambda low, high: high):
        back = Return(BROKER, is_away=is_away, look=self.look, uniform=uniform, now_s=lambda: self.now_s)
        while self.now_s < until_s:
            if back.has_come():
                return self.now_s
            self.now_s += 0.25
        return None


@pytest.mark.parametrize("uniform", [lambda low, high: low, lambda low, high: high], ids=["least", "most"])
def test_who_was_away_and_listens_again_has_come_within_five_seconds(uniform):
    for back_at_s in (0.25, 3.0, 7.5, 20.25):
        came_s = World({0: False, back_at_s: True}).first_return(is_away=True, uniform=uniform)
        assert came_s is not None
        assert back_at_s <= came_s <= back_at_s + 4


def test_one_that_listens_all_the_time_tells_nothing():
    assert World({0: True}).first_return(is_away=False) is None


def test_one_that_goes_and_comes_while_it_is_waited_for():
    assert World({0: True, 4: False, 9: True}).first_return(is_away=False) == pytest.approx(11, abs=2)


def test_a_restart_is_seen_by_the_look_at_the_moment_of_the_loss():
    assert World({0: False, 0.25: True}).first_return(is_away=False) <= 4


class Line:
    """A connection that breaks at a time."""

    def __init__(self, world, ends_at_s):
        self.is_closed = False
        self._world, self._ends_at_s = world, ends_at_s

    def has_ended(self):
        return self._world.now_s >= self._ends_at_s

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize("ends_at_s", [0.0, 0.25, 5.0])
def test_one_that_has_served_and_is_back_before_it_is_asked_again_is_told_by_the_line_that_broke(ends_at_s):
    world = World({0: True})
    line = Line(world, ends_at_s)
    back = Return(BROKER, is_away=False, has_served=True, listening=lambda _: line, look=world.look, now_s=world.now)
    while not back.has_come() and world.now_s < 60:
        world.now_s += 0.25

    assert ends_at_s < world.now_s <= ends_at_s + 4
    assert line.is_closed


def test_one_that_has_served_and_whose_line_holds_tells_nothing():
    world = World({0: True})
    line = Line(world, 1e9)
    back = Return(BROKER, is_away=False, has_served=True, listening=lambda _: line, look=world.look, now_s=world.now)
    while world.now_s < 60:
        assert not back.has_come()
        world.now_s += 0.25
    back.close()
    assert line.is_closed


def test_one_that_has_served_and_takes_no_line_is_away():
    world = World({0: True})
    back = Return(BROKER, is_away=False, has_served=True, listening=lambda _: None, look=world.look, now_s=world.now)
    while not back.has_come() and world.now_s < 60:
        world.now_s += 0.25
    assert world.now_s <= 4


def test_a_line_breaks_with_whoever_listened_and_not_before():
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = Listening.of(Endpoint(host="127.0.0.1", port=server.getsockname()[1], client_id="x"))
        assert line is not None
        taken, _ = server.accept()
        assert not line.has_ended()
        taken.close()
        wait_until(line.has_ended, what="the end")
        line.close()
    gone = Endpoint(host="127.0.0.1", port=free_port(), client_id="x")
    assert Listening.of(gone) is None


def test_who_is_known_to_be_away_is_not_asked_at_once_and_then_every_other_second():
    world = World({0: False})
    world.first_return(is_away=True, until_s=20.0)
    assert world.looks == [2.0 * n for n in range(1, 10)]
