"""When a broker counts as returned, on a clock of the test."""

import pytest

from edge.publish.mqtt.endpoint import Endpoint
from edge.publish.mqtt.probe import Return

BROKER = Endpoint(host="broker.example", port=1883, client_id="edge-gate-01")


class World:
    """A clock, and who listens when: what `answers` says from its second on."""

    def __init__(self, answers):
        self.now_s = 0.0
        self.looks = []
        self._answers = answers

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


def test_who_is_known_to_be_away_is_not_asked_at_once_and_then_every_other_second():
    world = World({0: False})
    world.first_return(is_away=True, until_s=20.0)
    assert world.looks == [2.0 * n for n in range(1, 10)]
