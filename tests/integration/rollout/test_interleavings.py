"""Two who work on one rollout: whatever one does comes between any two questions that the other asks the registry."""

from __future__ import annotations

import functools
import itertools
import threading
from contextlib import ExitStack, closing

import pytest

from edge.errors import DeployError
from edge.rollout.rules import Rules
from tests.support.rolling import RollingClock, RollingDesk, devices, published

pytestmark = pytest.mark.integration

RINGS = ("canary", "all")


class Meeting:
    """Two desks: before the first one's question number `at` to the registry the second does `what`, up to its pause.

    It stays there until the first one pauses, too, or ends: pauses end in the order in which they begin, which is
    what a state that is kept by waiting rests on.
    """

    def __init__(self, first, second, at, what):
        self.asked, self._at, self._first = 0, at, first
        self._arrived, self._goes_on = threading.Event(), threading.Event()
        self._other = threading.Thread(target=self._act, args=(what,))
        first.client._ask, first.writer._asked = self._counted(first.client._ask), self._counted(first.writer._asked)
        first.kept._pause, second.kept._pause = (lambda seconds: self._end()), (lambda seconds: self._wait())

    def take_place(self, step):
        as_said(step)
        self._end()

    def _counted(self, real):
        def call(*arguments, **options):
            self.asked += 1
            if self.asked == self._at:
                self._other.start()
                assert self._arrived.wait(30)
            return real(*arguments, **options)

        return call

    def _act(self, what):
        try:
            as_said(what)
        finally:
            self._arrived.set()

    def _wait(self):
        self._arrived.set()
        assert self._goes_on.wait(30)

    def _end(self):
        self._goes_on.set()
        if self._other.ident is not None:
            self._other.join()


@pytest.fixture
def clock():
    return RollingClock()


@pytest.fixture
def make_desk(registry, clock):
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(RollingDesk(registry, clock, **options)))


def fleet(release=None):
    return [*devices("canary", 2, release=release), *devices("all", 3, release=release)]


def as_said(step):
    try:
        step()
    except DeployError as error:
        if error.code != "lock.rings":
            raise


STEPS = {
    "waits": lambda desk, look: desk.rollout.go_on(look),
    "advances": lambda desk, look: desk.rollout.advance(look.state, "by hand"),
    "stops": lambda desk, look: desk.rollout.stop(look.state, "by hand"),
}


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(STEPS, 2), ("advances", "advances")])
def test_whatever_comes_between_the_tags_end_as_the_state_says(registry, root, make_desk, first, second):
    desk = make_desk()
    old = published(registry, desk, root.bundle("old"), *RINGS)
    new = published(registry, desk, root.bundle("new", sequence=2))
    at, asked = 0, 1
    while at < asked:
        at += 1
        desk.rollout.start(new, RINGS, Rules(hold_s=600), fleet())
        look = desk.rollout.look(fleet())
        one, other = make_desk(who="one"), make_desk(who="other")
        meeting = Meeting(one, other, at, functools.partial(STEPS[second], other, look))
        meeting.take_place(functools.partial(STEPS[first], one, look))
        asked = meeting.asked

        state = desk.rollout.kept_state()
        has_all = state.phase == "running" and state.current.name == "all"
        canary = new.digest if state.phase == "running" else old.digest
        assert desk.digests(*RINGS) == [canary, new.digest if has_all else old.digest], (at, state)
        assert sum(step.what.startswith("all has it") for step in state.steps) <= 1
        if "stops" in (first, second) and "waits" in (first, second):
            assert state.phase == "stopped"
        if state.phase == "running":
            desk.rollout.stop(state, "for the next round")
    assert at > 3


def test_a_look_that_is_older_than_a_stop_gives_nobody_the_stopped_release(registry, root, make_desk):
    desk, late = make_desk(), make_desk(who="late@desk")
    old = published(registry, desk, root.bundle("old"), *RINGS)
    new = published(registry, desk, root.bundle("new", sequence=2))
    desk.rollout.start(new, RINGS, Rules(hold_s=600), fleet())
    look = late.rollout.look(fleet())
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")
    given, give = [], late.tags.give
    late.tags.give = lambda channel, ring, digest: (given.append(digest), give(channel, ring, digest))

    state = late.rollout.go_on(look)

    assert (state.phase, given) == ("stopped", [])
    assert desk.digests(*RINGS) == [old.digest] * 2
