"""What rings run, stated at a real registry, and what a device that follows statements makes of it."""

import math
import time
from contextlib import closing
from datetime import datetime, timezone

import pytest

from edge.errors import DeployError
from edge.registry.artifact import with_statement
from edge.runtime.pull.entry import sentence_of
from tests.support.manifests import ssh_key
from tests.support.pulling import StatingDesk, beside, put
from tests.support.raised import code_of


def test_a_ring_runs_what_was_stated_and_takes_nothing_that_a_tag_alone_names(registry, root, desk, old, new, device):
    put(registry, root.bundle("new", sequence=2))
    assert (device.pull().outcome.code, device.current) == ("verify.ring.absent", None)

    desk.promoter.promote(new, "all")

    assert device.pull().outcome.result == "committed"
    assert device.current == new.manifest.release
    assert device.pull().outcome.result == "unchanged"


def test_who_holds_the_push_login_cannot_put_the_release_of_another_ring_there(registry, desk, old, new, device):
    desk.promoter.promote(old, "all")
    assert device.pull().outcome.result == "committed"
    desk.promoter.promote(new, "canary")
    canary, _ = desk.registry.manifest("stable-canary")
    everyone, _ = desk.registry.manifest("stable-all")

    desk.registry.tag(canary, "stable-all")
    assert device.pull().outcome.code == "verify.ring.other"

    statement = desk.desk.named_by("stable-all")  # that of canary
    assert statement.statement.ring == "canary"
    desk.registry.tag(with_statement(new.oci, *beside(everyone)), "stable-all")
    assert device.pull().outcome.code == "verify.ring.release"
    assert device.current == old.manifest.release


def test_who_holds_the_push_login_cannot_bring_back_what_was_withdrawn(desk, new, device):
    desk.promoter.promote(new, "all")
    before, _ = desk.registry.manifest("stable-all")
    assert device.pull().outcome.result == "committed"
    assert desk.promoter.withdraw(new.manifest.release, "stable", "overheats") == ["stable-all"]
    kept = device.pull()
    assert kept.outcome.result == "kept"
    assert f"{new.manifest.release} was withdrawn" in sentence_of(kept, kept.outcome)
    assert "None" not in sentence_of(kept, kept.outcome)

    desk.registry.tag(before, "stable-all")
    desk.desk.lift(new.manifest.release)

    assert device.pull().outcome.code == "verify.ring.serial"


def test_a_stranger_states_nothing(registry, make_desk, desk, root, new, device, tmp_path, clock):
    with closing(StatingDesk(registry, ssh_key(tmp_path, "stranger"), clock)) as stranger:
        stranger.promoter.promote(new, "all")
    assert device.pull().outcome.code == "verify.signature.signer"

    with closing(StatingDesk(registry, root.key, clock)) as signer:  # may sign releases, and promotes none
        signer.promoter.promote(new, "all")
    assert device.pull().outcome.code == "verify.signature.namespace"
    assert device.current is None


def test_a_statement_that_is_over_keeps_what_serves_and_is_told(make_desk, old, new, device, clock, root):
    clock.pass_by(-3600)
    make_desk(valid_s=86_400).promoter.promote(old, "all")
    device.pull()
    make_desk(valid_s=30).promoter.promote(new, "all")

    pulled = device.pull()

    assert (pulled.outcome.code, pulled.record.code) == ("verify.ring.expired", "verify.ring.expired")
    assert device.current == old.manifest.release


@pytest.mark.promised(reason="an expired statement is told")
def test_what_was_followed_once_is_told_as_over_at_each_look_until_it_is_stated_anew(
    make_desk, old, new, device, clock
):
    make_desk().promoter.promote(old, "all")
    began_s = time.monotonic()
    device.pull()
    valid_s = 6 + 3 * math.ceil(time.monotonic() - began_s)  # long enough for a pull on a machine as busy as this one
    clock.now = datetime.now(timezone.utc).replace(microsecond=0)
    make_desk(valid_s=valid_s).promoter.promote(new, "all")
    until_s = clock.now.timestamp() + valid_s
    assert device.pull().outcome.result == "committed"
    while time.time() < until_s:
        time.sleep(0.2)
    assert device.pull().outcome.code == "verify.ring.expired"
    assert device.current == new.manifest.release

    clock.pass_by(valid_s + 3)
    make_desk().promoter.promote(new, "all")

    assert device.pull().outcome.result == "unchanged"


def test_a_withdrawn_release_is_promoted_by_nobody_until_that_is_lifted(desk, old, new):
    desk.promoter.promote(new, "canary")

    assert desk.promoter.withdraw(new.manifest.release, "stable", "overheats") == ["stable-canary"]

    assert desk.stated("stable-canary")[1] is None
    with pytest.raises(DeployError, match="overheats") as refused:
        desk.promoter.promote(new, "all")
    assert refused.value.code == "request.withdrawn"
    desk.desk.lift(new.manifest.release)
    desk.promoter.promote(new, "all")
    assert desk.stated("stable-all")[1] == new.manifest.release


def test_a_stop_wins_over_one_who_slept_between_reading_and_writing(make_desk, desk, new, monkeypatch):
    sleeper = make_desk()
    state, withdrawn = sleeper.desk.state, []

    def after_a_sleep(stated):
        if not withdrawn:
            withdrawn.append(desk.promoter.withdraw(new.manifest.release, "stable", "overheats"))
        state(stated)

    monkeypatch.setattr(sleeper.desk, "state", after_a_sleep)
    assert code_of(sleeper.promoter.promote, new, "all") == "request.withdrawn"
    assert desk.stated("stable-all")[1] is None


@pytest.mark.slow_but(reason="two pulls more: the first row is quick")
@pytest.mark.parametrize("serves", [False, True])
def test_a_device_takes_nothing_withdrawn_whatever_its_ring_says(desk, old, new, device, serves):
    if serves:
        desk.promoter.promote(old, "all")
        device.pull()
    desk.promoter.promote(new, "all")
    before, _ = desk.registry.manifest("stable-all")
    desk.promoter.withdraw(new.manifest.release, "stable", "overheats")
    desk.registry.tag(before, "stable-all")  # as a sleeper leaves it that is killed before it looks again

    told = device.pull().outcome

    assert device.current == (old.manifest.release if serves else None)
    assert (told.result, told.code) == (("kept", None) if serves else ("failed", "registry.withdrawn"))
    desk.desk.lift(new.manifest.release)
    assert device.pull().outcome.result == "committed"


def test_of_two_at_once_the_higher_serial_stands_and_both_are_told(make_desk, desk, old, new, monkeypatch, clock):
    first = make_desk()
    state, made = first.desk.state, []

    def after_a_sleep(stated):
        if not made:
            clock.pass_by(1)
            made.append(desk.promoter.promote(new, "all"))
        state(stated)

    monkeypatch.setattr(first.desk, "state", after_a_sleep)
    assert code_of(first.promoter.promote, old, "all") == "lock.rings"
    assert desk.stated("stable-all") == (made[0].statement.serial, new.manifest.release)
    clock.pass_by(1)
    assert desk.promoter.promote(new, "all").beside == ()


def test_a_statement_is_found_among_more_tags_than_a_page_holds(desk, new, monkeypatch):
    monkeypatch.setattr("edge.registry.client._TAGS_A_PAGE", 2)
    for ring in ("a", "b", "canary", "d", "e"):
        desk.promoter.promote(new, ring)
    desk.promoter.promote(new, "canary")

    assert len(desk.desk.serials("stable-canary")) == 2
    assert desk.desk.rings("stable") == [f"stable-{ring}" for ring in ("a", "b", "canary", "d", "e")]


def test_a_release_older_than_what_the_ring_has_is_not_promoted(desk, old, new):
    desk.promoter.promote(new, "all")

    assert code_of(desk.promoter.promote, old, "all") == "request.release"
