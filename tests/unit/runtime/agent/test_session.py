"""What one connection holds: the push lock while it lasts, a release on offer, and its lines in the audit logs."""

import pytest

from edge.device.device import Kind
from edge.device.facts import this_moment
from edge.device.lock import PushLock
from edge.device.switch import arm
from edge.runtime.agent.session import lock
from edge.wire.release import LockRequest
from edge.wire.verbs import STAGE
from tests.support.audit import audit_lines
from tests.support.device_releases import attach_engine, stage
from tests.support.raised import code_of, error_of

REQUEST = LockRequest(who="mina", why="a test")


def holder(session):
    return PushLock(session.device.layout).holder()


def told(session):
    return [
        (line["who"], line["what"], line["result"], line.get("times")) for line in audit_lines(session.device.layout)
    ]


def test_while_a_release_is_on_trial_a_push_is_told_so_and_leaves_the_lock_to_others(session):
    release = stage(session.device)
    attach_engine(session.device, release)
    arm(session.device, release, moment=this_moment())

    error = error_of(lock, session, REQUEST)
    assert (error.code, "push --lock-wait" in error.hint) == ("lock.trial", True)  # the one command that has it
    assert holder(session) is None
    lock(session, LockRequest(who="mina", why="back", in_trial=True))
    assert holder(session)["why"] == "back"


def test_a_release_that_was_offered_counts_only_with_the_lock(root, session):
    release = session.put(root.bundle())

    assert code_of(session.offered, STAGE, release) == "request.order"
    assert code_of(session.hold().offered, STAGE, release) == "request.order", "it was looked at before"
    session.put(root.bundle())
    assert session.hold().offered(STAGE, release).manifest.release == release


@pytest.mark.parametrize("is_offered", [False, True])
def test_a_release_that_was_not_offered_is_refused(root, session, is_offered):
    session.hold()
    if is_offered:
        session.put(root.bundle())

    assert code_of(session.offered, STAGE, "0" * 12) == "request.order"


def test_what_is_done_is_written_down_at_once_and_each_time_with_who_and_from_where(root, session):
    release = session.hold().put(root.bundle())

    for _ in range(2):
        session.audit("stage", "ok", kind=Kind.CHANGE)

    line, again = audit_lines(session.device.layout)
    assert (line["who"], line["from"], line["what"]) == ("mina (signed by ops)", "test", "stage")
    assert (line["release"], line["result"]) == (release, "ok")
    assert again == {**line, "at": again["at"]}


def test_what_was_only_counted_is_written_once_at_the_end_of_the_connection(session):
    session.hold()
    for what in ("lock", "gc", "lock", "lock", "lock"):
        session.audit(what, "ok", kind=Kind.REQUEST)
    at_once = [("mina", "lock", "ok", None), ("mina", "gc", "ok", None)]
    assert told(session) == at_once

    session.close()
    session.close()
    assert told(session) == [*at_once, ("mina", "lock", "ok", 3)]


def test_what_comes_after_sixty_four_different_lines_is_one_count(session):
    for number in range(100):
        session.audit(f"verb-{number}", "ok", kind=Kind.REQUEST)
    assert len(told(session)) == 64

    session.close()
    ((_, what, _, times),) = told(session)[64:]
    assert (what, times) == ("others", 36)


def test_a_disk_that_takes_no_line_is_asked_once_for_each_and_not_in_a_loop(session):
    (session.device.layout.var / Kind.REQUEST.value).mkdir()

    assert code_of(session.audit, "lock", "ok", kind=Kind.REQUEST).startswith("device.disk.")
    session.audit("lock", "ok", kind=Kind.REQUEST)
