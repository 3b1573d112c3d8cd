"""When a broker counts as returned, on a clock of the test."""

import socket

import pytest

from edge.publish.mqtt.endpoint import Endpoint, line_to, waits_for_return
from tests.support.ports import free_port
from tests.support.wait import wait_until

BROKER = Endpoint(host="broker.example", port=1883, client_id="edge-gate-01")


class Line:
    """A connection that breaks at a time."""

    def __init__(self, world, ends_at_s):
        self.is_closed = False
        self._world, self._ends_at_s = world, ends_at_s

    def recv(self, count, flags):
        if self._world.now_s < self._ends_at_s:
            raise BlockingIOError
        return b""

    def close(self):
        self.is_closed = True


class World:
    """A clock, and who listens when: what `answers` says from its second on. Connections break at `ends_at_s`."""

    def __init__(self, answers, *, ends_at_s=1e9):
        self.now_s = 0.0
        self.looks, self.lines = [], []
        self._answers, self._ends_at_s = answers, ends_at_s

    def line_to(self, endpoint):
        assert endpoint is BROKER
        self.looks.append(self.now_s)
        if not self._answers[max(at for at in self._answers if at <= self.now_s)]:
            return None
        self.lines.append(Line(self, self._ends_at_s))
        return self.lines[-1]

    def first_return(self, *, is_away=False, has_served=False, until_s=60.0, uniform=lambda low, high: high):
        options = {"line_to": self.line_to, "uniform": uniform, "now_s": lambda: self.now_s}
        for wait_s in waits_for_return(BROKER, until_s, is_away=is_away, has_served=has_served, **options):
            assert 0 < wait_s <= 0.25
            self.now_s += 0.25
        return self.now_s if self.now_s < until_s else None


@pytest.mark.parametrize("uniform", [lambda low, high: low, lambda low, high: high], ids=["least", "most"])
def test_who_was_away_and_listens_again_has_come_within_five_seconds(uniform):
    for back_at_s in (0.25, 3.0, 7.5, 20.25):
        came_s = World({0: False, back_at_s: True}).first_return(is_away=True, uniform=uniform)
        assert came_s is not None
        assert back_at_s <= came_s <= back_at_s + 4


def test_one_that_listens_all_the_time_tells_nothing():
    world = World({0: True})
    assert world.first_return() is None
    assert all(line.is_closed for line in world.lines)


def test_one_that_goes_and_comes_while_it_is_waited_for():
    assert World({0: True, 4: False, 9: True}).first_return() == pytest.approx(11, abs=2)


@pytest.mark.parametrize("has_served", [False, True])
def test_a_restart_is_seen_by_the_look_at_the_moment_of_the_loss(has_served):
    assert World({0: False, 0.25: True}).first_return(has_served=has_served) <= 4


@pytest.mark.parametrize("ends_at_s", [0.0, 0.25, 5.0])
def test_one_that_has_served_and_is_back_before_it_is_asked_again_is_told_by_the_line_that_broke(ends_at_s):
    world = World({0: True}, ends_at_s=ends_at_s)

    assert ends_at_s < world.first_return(has_served=True) <= ends_at_s + 4
    assert all(line.is_closed for line in world.lines)


def test_one_that_has_served_and_whose_line_holds_tells_nothing():
    world = World({0: True})

    assert world.first_return(has_served=True) is None
    assert all(line.is_closed for line in world.lines)


def test_a_line_breaks_with_whoever_listened_and_not_before():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        here = Endpoint(host="127.0.0.1", port=server.getsockname()[1], client_id="x")
        waits = waits_for_return(here, 60.0, is_away=False, has_served=True)
        assert next(waits)
        taken, _ = server.accept()
        assert next(waits)
        taken.close()
        wait_until(lambda: next(waits, None) is None, what="the end, and that it listens again")
    gone = Endpoint(host="127.0.0.1", port=free_port(), client_id="x")
    assert line_to(gone) is None


def test_who_is_known_to_be_away_is_not_asked_at_once_and_then_every_other_second():
    world = World({0: False})
    world.first_return(is_away=True, until_s=20.0)
    assert world.looks == [2.0 * n for n in range(1, 10)]
