"""What one connection may write to the audit logs: each thing once, and how often it came again."""

import pytest

from edge.device.device import Kind
from edge.runtime.agent.session import Tally, Told


@pytest.fixture
def written():
    return []


@pytest.fixture
def tally(written):
    return Tally(lambda told, times: written.append((told.what, times)))


def tell(tally, what, kind=Kind.REQUEST):
    tally.tell(Told(who="mina", what=what, release=None, result="ok", kind=kind))


def test_a_change_is_written_each_time(tally, written):
    tell(tally, "switch", Kind.CHANGE)
    tell(tally, "switch", Kind.CHANGE)
    assert written == [("switch", 1), ("switch", 1)]


def test_of_anything_else_the_first_is_written_at_once_and_the_rest_is_counted_for_the_end(tally, written):
    for what in ("lock", "gc", "lock", "lock"):
        tell(tally, what)
    assert written == [("lock", 1), ("gc", 1)]

    tally.close()
    assert written[2:] == [("lock", 2)]


def test_what_comes_after_sixty_four_different_lines_is_one_count(tally, written):
    for number in range(100):
        tell(tally, f"verb-{number}")
    assert len(written) == 64

    tally.close()
    assert written[64:] == [("others", 36)]


def test_what_was_counted_is_written_once_however_often_the_connection_is_closed(tally, written):
    tell(tally, "lock")
    tell(tally, "lock")
    tally.close()
    tally.close()
    assert written == [("lock", 1), ("lock", 1)]


def test_a_disk_that_takes_no_line_is_asked_once_for_each_and_not_in_a_loop():
    tried = []

    def refuse(told, times):
        tried.append(told.what)
        raise OSError

    tally = Tally(refuse)
    with pytest.raises(OSError):  # noqa: PT011 - the one above
        tell(tally, "lock")
    tell(tally, "lock")
    assert tried == ["lock"]
