"""Whether messages leave more slowly than they come, on a clock of the test."""

import pytest

from edge.publish.mqtt.window import Lag, Window


class World:
    """An outbox of which so many messages are late as are counted, and a clock."""

    def __init__(self):
        self.now_s, self.late, self.has_replay = 100.0, 0, False
        self.lag = Lag(self, now_s=lambda: self.now_s)

    def reasons(self, seconds, *, late_until_s):
        """Let messages become late for so long, look four times a second, and return what was said."""
        began_s, said = self.now_s, []
        while self.now_s < began_s + seconds:
            self.now_s += 0.25
            self.has_replay = self.now_s - began_s <= late_until_s
            self.late += self.has_replay
            if self.lag.look(Window()):
                said.append(self.lag.reason)
        return said


@pytest.mark.parametrize("late_until_s", [0.25, 0.5, 2.0, 4.75])
def test_what_a_restart_of_the_broker_made_late_is_no_lag(late_until_s):
    assert World().reasons(30, late_until_s=late_until_s) == []


def test_messages_that_become_late_for_long_are_a_lag_until_none_is_late():
    first, last = World().reasons(30, late_until_s=12)

    assert "cannot keep up" in first
    assert last is None
