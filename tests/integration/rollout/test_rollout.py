"""A rollout over the rings of a real registry."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing

import pytest

from edge.deploy.publish.publish import publish
from edge.errors import DeployError
from edge.rollout.rules import Rules
from tests.support.pulling import PullingDevice
from tests.support.registry import LOGIN
from tests.support.rolling import RollingClock, RollingDesk, devices, published

pytestmark = pytest.mark.integration

RINGS = ("canary", "early", "all")
RULES = Rules(hold_s=600)


@pytest.fixture
def clock():
    return RollingClock()


@pytest.fixture
def make_desk(registry, clock):
    """Makes workstations, which are closed in the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(RollingDesk(registry, clock, **options)))


@pytest.fixture
def desk(make_desk):
    return make_desk()


@pytest.fixture
def old(registry, desk, root):
    return published(registry, desk, root.bundle("old"), *RINGS)


@pytest.fixture
def new(registry, desk, root, old):
    return published(registry, desk, root.bundle("new", sequence=2))


def fleet(release=None, *, bad=0, away=0):
    return [
        *devices("canary", 3, release=release, bad=bad),
        *devices("early", 5, release=release, away=away),
        *devices("all", 9, release=release),
    ]


def test_only_the_first_ring_has_it_at_the_start(desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())

    assert desk.digests(*RINGS) == [new.digest, old.digest, old.digest]
    state = desk.kept.read()
    assert (state.phase, state.release, [ring.known for ring in state.rings]) == (
        "running",
        new.manifest.release,
        [3, 5, 9],
    )


def test_it_goes_from_ring_to_ring_and_is_done(desk, clock, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    release = new.manifest.release
    seen = []
    for _ in range(20):
        state = desk.rollout.go_on(desk.rollout.look(fleet(release)))
        seen.append(sum(found == new.digest for found in desk.digests(*RINGS)))
        if state.phase != "running":
            break
        clock.pass_by(300)

    assert state.phase == "done"
    assert seen == sorted(seen)
    assert [seen.count(number) for number in (1, 2, 3)] == [2, 3, 4]  # each is held for 600 s
    assert desk.digests(*RINGS) == [new.digest] * 3
    assert [step.what.split(":")[0] for step in state.steps] == [
        "started",
        "canary has reached its share",
        "early has it",
        "early has reached its share",
        "all has it",
        "all has reached its share",
        "done",
    ]


def test_another_workstation_goes_on_where_the_first_has_ended(make_desk, desk, clock, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))
    clock.pass_by(600)

    other = make_desk(who="job@ci")
    state = other.rollout.go_on(other.rollout.look(fleet(new.manifest.release)))

    assert state.current.name == "early"
    assert [step.by for step in state.steps] == ["me@desk", "me@desk", "job@ci"]


def test_it_stops_by_itself_and_nobody_else_takes_it(desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    state = desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release, bad=1)))

    assert state.phase == "stopped"
    assert "1 of 3 devices have failed" in state.why
    assert desk.digests(*RINGS) == [old.digest] * 3


def test_a_device_that_looks_after_a_stop_goes_on_serving_what_it_had(registry, root, desk, old, new):
    device = PullingDevice(root, registry.reference("stable-canary"), registry.certificates.ca, LOGIN)
    device.pull()
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")

    assert device.pull().outcome.result == "unchanged"
    assert device.current == old.manifest.release


def test_a_ring_that_had_nothing_has_nothing_again_after_a_stop(registry, root, desk, new):
    desk.rollout.start(new, ("lab",), RULES, devices("lab", 1))
    assert desk.release_of("lab") == new.manifest.release
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")

    device = PullingDevice(root, registry.reference("stable-lab"), registry.certificates.ca, LOGIN)
    outcome = device.pull().outcome
    assert (outcome.code, outcome.exit_code) == ("registry.missing", 12)
    assert "a rollout was stopped" in outcome.problem
    again = published(registry, desk, root.bundle("newer", sequence=3))
    desk.rollout.start(again, ("lab",), RULES, devices("lab", 1))
    assert device.pull().outcome.result == "committed"


def test_a_device_takes_what_its_ring_is_given_byte_for_byte(registry, root, desk, old, new):
    device = PullingDevice(root, registry.reference("stable-canary"), registry.certificates.ca, LOGIN)
    device.pull()
    desk.rollout.start(new, RINGS, RULES, fleet())

    assert device.pull().outcome.result == "committed"
    assert (device.current, device.record.digest) == (new.manifest.release, new.digest)


def test_what_broke_off_between_writing_and_moving_is_moved_by_whoever_comes_next(make_desk, desk, clock, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))
    clock.pass_by(600)
    broken = make_desk()
    broken.tags.give = None  # it dies before it moves a tag
    with pytest.raises(TypeError):
        broken.rollout.go_on(broken.rollout.look(fleet(new.manifest.release)))
    assert desk.digests(*RINGS) == [new.digest, old.digest, old.digest]

    desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))

    assert desk.digests(*RINGS)[:2] == [new.digest, new.digest]


def test_a_stop_that_broke_off_is_finished_by_whoever_stops_again(make_desk, desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    broken = make_desk()
    broken.tags.give = None
    with pytest.raises(TypeError):
        broken.rollout.stop(broken.rollout.kept_state(), "by hand")
    look = desk.rollout.look(fleet(new.manifest.release))
    assert (look.state.phase, look.decision) == ("stopped", None)  # nobody goes on with it

    desk.rollout.stop(desk.rollout.kept_state(), "by hand")
    assert desk.digests(*RINGS) == [old.digest] * 3


def test_a_step_by_hand_that_broke_off_is_finished_alone_by_the_same_command(make_desk, desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    for reached in (2, 3):
        broken = make_desk()
        broken.tags.give = None
        with pytest.raises(TypeError):
            broken.rollout.advance(broken.rollout.kept_state(), "by hand")

        state = desk.rollout.advance(desk.rollout.kept_state(), "by hand")

        assert (state.phase, len(state.begun)) == ("running", reached)
        assert [found == new.digest for found in desk.digests(*RINGS)].count(True) == reached
    assert desk.rollout.advance(state, "by hand").phase == "done"


def test_a_stop_goes_on_to_the_other_rings_where_one_cannot_be_given_back(desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.advance(desk.rollout.kept_state(), "by hand")
    give = desk.tags.give

    def fails(channel, ring, digest):
        if ring == "canary":
            raise DeployError("registry.missing", "it was cleaned away", hint="")
        give(channel, ring, digest)

    desk.tags.give = fails
    with pytest.raises(DeployError, match="cleaned away"):
        desk.rollout.stop(desk.rollout.kept_state(), "by hand")

    assert desk.digests(*RINGS) == [new.digest, old.digest, old.digest]


def test_a_tag_that_is_moved_late_after_a_stop_is_given_back_by_the_next_look(desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")
    desk.tags.give("stable", "canary", new.digest)  # what the registry had not answered in time

    state = desk.rollout.go_on(desk.rollout.look(fleet()))

    assert state.phase == "stopped"
    assert desk.digests("canary") == [old.digest]


def test_what_a_ring_named_before_outlives_a_stop_that_broke_off_and_a_new_start(make_desk, desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    broken = make_desk()
    broken.tags.give = None
    with pytest.raises(TypeError):
        broken.rollout.stop(broken.rollout.kept_state(), "by hand")
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")
    assert desk.digests(*RINGS) == [old.digest] * 3


def test_somebody_who_publishes_to_a_ring_meanwhile_is_not_overruled(registry, root, desk, clock, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    other = root.bundle("other", sequence=3)
    theirs = publish(other, registry.reference("stable-early"), login=LOGIN, ca=registry.certificates.ca)
    desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))
    clock.pass_by(600)

    with pytest.raises(DeployError, match="names another artifact") as refused:
        desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))

    assert refused.value.code == "request.ring"
    assert desk.kept.read().current.name == "canary"
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")
    assert desk.digests(*RINGS) == [old.digest, theirs.digest, old.digest]


def test_a_second_rollout_of_the_channel_waits_for_the_end_of_the_first(registry, root, desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    newer = published(registry, desk, root.bundle("newer", sequence=3))

    with pytest.raises(DeployError, match="is being rolled out since") as refused:
        desk.rollout.start(newer, RINGS, RULES, fleet())

    assert (refused.value.code, refused.value.exit_code) == ("lock.rings", 5)
    desk.rollout.stop(desk.rollout.kept_state(), "by hand")
    desk.rollout.start(newer, RINGS, RULES, fleet())
    assert desk.digests(*RINGS) == [newer.digest, old.digest, old.digest]


def test_a_ring_without_a_device_is_refused_before_anything_is_moved(desk, old, new):
    with pytest.raises(
        DeployError, match=r"no device of canery .* knows all \(9\), canary \(3\), early \(5\)"
    ) as refused:
        desk.rollout.start(new, ("canery", "all"), RULES, fleet())

    assert (refused.value.code, refused.value.exit_code) == ("request.ring", 2)
    assert desk.kept.read() is None
    assert desk.digests("canary", "all") == [old.digest, old.digest]


def test_a_release_that_is_older_than_what_a_ring_has_is_refused(registry, root, desk, old, new):
    published(registry, desk, root.bundle("newest", sequence=9), "all")
    with pytest.raises(DeployError, match="sequence 9") as refused:
        desk.rollout.start(new, RINGS, RULES, fleet())
    assert refused.value.code == "request.release"
    assert desk.kept.read() is None


def test_who_is_silent_since_when_is_known_to_every_workstation(make_desk, desk, clock, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet(away=2))
    clock.pass_by(3600)

    look = make_desk().rollout.look(fleet(away=2))

    early = look.tallies[1].devices
    assert [standing.value for standing, _ in early.values()] == ["waiting"] * 3 + ["silent"] * 2
    assert {f"{at:%H:%M}" for at in look.state.silent.values()} == {"12:00"}


def test_a_silence_is_measured_from_its_first_look_also_between_two_notes(desk, clock, old, new):
    desk.rollout.start(new, RINGS, Rules(lost_after_s=60), fleet())
    clock.pass_by(1)
    desk.rollout.go_on(desk.rollout.look(devices("canary", 3, away=1)))  # noted
    for away in (2, 2, 2):  # so soon after, not noted
        clock.pass_by(40)
        look = desk.rollout.look(devices("canary", 3, away=away))
    assert [standing.value for standing, _ in look.tallies[0].devices.values()] == ["waiting", "lost", "lost"]


def test_two_who_go_on_at_once_do_so_once(make_desk, clock, desk, old, new):
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))
    clock.pass_by(600)
    desks = [make_desk(who=f"{number}@desk", settle_s=5.0, pause=time.sleep) for number in range(4)]
    ended: list[object] = []

    def go_on(one):
        try:
            ended.append(one.rollout.go_on(one.rollout.look(fleet(new.manifest.release))))
        except DeployError as error:
            ended.append(error.code)

    threads = [threading.Thread(target=go_on, args=(one,)) for one in desks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    state = desk.kept.read()
    assert state.current.name == "early"
    assert sum(step.what.startswith("early has it") for step in state.steps) == 1
    assert [one for one in ended if isinstance(one, str)] == ["lock.rings"] * 3
    assert desk.digests(*RINGS) == [new.digest, new.digest, old.digest]


@pytest.mark.parametrize("order", [("stop", "advance"), ("advance", "stop")])
def test_a_stop_and_a_step_at_once_end_with_tags_as_the_state_says(make_desk, clock, desk, old, new, order):
    desk.rollout.start(new, RINGS, RULES, fleet())
    desk.rollout.go_on(desk.rollout.look(fleet(new.manifest.release)))
    clock.pass_by(600)
    look = desk.rollout.look(fleet(new.manifest.release))

    def act(what, **options):
        one = make_desk(**options)
        try:
            if what == "stop":
                one.rollout.stop(look.state, "by hand")
            else:
                one.rollout.go_on(look)
        except DeployError as error:
            return error.code
        return "done"

    # The second one begins, and ends, while the first waits whether somebody else has written.
    later: list[str] = []
    first = act(order[0], pause=lambda seconds: later.append(act(order[1])))

    state = desk.kept.read()
    assert (first, later) == ("lock.rings", ["lock.rings"]) or "done" in (first, *later)
    wanted = old.digest if state.phase == "stopped" else new.digest
    assert desk.digests("canary") == [wanted]
    assert desk.digests("early") == [
        new.digest if state.current.name == "early" and state.phase == "running" else old.digest
    ]


def test_a_registry_that_takes_longer_than_others_wait_is_told_and_nothing_moved(make_desk, desk, old, new):
    slow = make_desk(settle_s=0.0)
    with pytest.raises(DeployError, match="nobody can tell who came first") as refused:
        slow.rollout.start(new, RINGS, RULES, fleet())
    assert refused.value.code == "lock.rings"
    assert desk.digests(*RINGS) == [old.digest] * 3


def test_something_else_under_the_tag_of_the_rollout_is_told(registry, root, desk, old, new):
    publish(root.bundle("odd", sequence=4), registry.reference(desk.kept.tag), login=LOGIN, ca=registry.certificates.ca)
    with pytest.raises(DeployError, match="it is something else") as refused:
        desk.rollout.look(fleet())
    assert refused.value.code == "registry.artifact"


def test_nothing_to_look_at_is_told(desk):
    with pytest.raises(DeployError, match="nothing has been rolled out") as refused:
        desk.rollout.look([])
    assert (refused.value.code, refused.value.exit_code) == ("request.rollout", 2)
