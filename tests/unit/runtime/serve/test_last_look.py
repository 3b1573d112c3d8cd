"""From where a device fetches is told once, again when there is news, and never at the cost of the service."""

import pytest

from edge.device.layout import Layout
from edge.runtime.pull.record import PullRecord, write_record
from edge.runtime.serve.publishing import LastLook
from tests.support.logged import logged

SETTINGS = 'repository = "registry.example/farms/gates"\nchannel = "stable"\nring = "canary"\n'
TAG = "registry.example/farms/gates:stable-canary"


@pytest.fixture
def layout(tmp_path):
    made = Layout(tmp_path)
    made.etc.mkdir(parents=True)
    made.pull_record.parent.mkdir(parents=True)
    return made


@pytest.fixture
def last(layout, published):
    return LastLook(published, layout, device="gate-01")


def looked(layout, *, at="2026-11-23T12:00:00Z", reference=TAG, **values):
    record = PullRecord(reference=reference, at=at, **{"result": "committed", "release": "0123456789ab", **values})
    write_record(layout.pull_record, record)


def test_a_device_that_fetches_nothing_says_nothing(last, published):
    last.tick()
    assert published.all == []


def test_before_its_first_look_it_says_from_where(layout, last, published):
    layout.pull_toml.write_text(SETTINGS)
    last.tick()
    last.tick()
    (said,) = published.all
    assert (said["schema"], said["device"]) == ("edge.pull/1", "gate-01")
    assert (said["repository"], said["channel"], said["ring"]) == ("registry.example/farms/gates", "stable", "canary")
    assert (said["release"], said["result"], said["at"]) == (None, None, None)


def test_what_a_look_came_to_is_told_once_however_often_it_looks(layout, last, published):
    layout.pull_toml.write_text(SETTINGS)
    looked(layout)
    last.tick()
    looked(layout, at="2026-11-23T12:10:00Z")
    last.tick()
    looked(layout, at="2026-11-23T12:20:00Z", result="refused", code="preflight.disk", problem="no room")
    last.tick()

    said = [(one["result"], one["code"], one["reason"], one["at"]) for one in published.all]
    assert said == [
        ("committed", None, None, "2026-11-23T12:00:00Z"),
        ("refused", "preflight.disk", "no room", "2026-11-23T12:20:00Z"),
    ]


def test_when_the_registry_said_it_last_is_told_at_each_look_and_since_when_it_is_so_stays(layout, last, published):
    layout.pull_toml.write_text(SETTINGS)
    for at in ("2026-11-23T12:00:00Z", "2026-11-23T12:10:00Z"):
        looked(layout, at=at, looked_at=at)
        last.tick()
        last.tick()

    said = [(one["at"], one["looked_at"]) for one in published.all]
    assert said == [("2026-11-23T12:00:00Z", "2026-11-23T12:00:00Z"), ("2026-11-23T12:00:00Z", "2026-11-23T12:10:00Z")]


def test_a_look_at_where_it_fetched_before_is_not_told_of_where_it_fetches_now(layout, last, published):
    layout.pull_toml.write_text(SETTINGS)
    looked(layout, reference="registry.example/farms/gates:stable-all")
    last.tick()
    assert [one["result"] for one in published.all] == [None]


def test_who_fetches_no_longer_takes_its_word_back(layout, last, published):
    layout.pull_toml.write_text(SETTINGS)
    last.tick()
    layout.pull_toml.unlink()
    last.tick()
    last.tick()
    assert [one["ring"] for one in published.all] == ["canary", None]


def test_who_fetched_before_the_service_began_takes_that_back(layout, last, published):
    looked(layout)
    last.tick()
    assert [(one["ring"], one["result"]) for one in published.all] == [(None, None)]


@pytest.mark.parametrize("settings", ["ring = 7", "\xff", "", 'repository = "https://x"'])
def test_settings_that_cannot_be_used_are_told_in_the_journal(layout, last, published, caplog, settings):
    layout.pull_toml.write_text(settings)
    last.tick()
    last.tick()
    assert published.all == []
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", ["damaged", "closed"])
def test_a_record_that_cannot_be_read_is_none_and_told_in_the_journal(layout, last, published, caplog, kind):
    layout.pull_toml.write_text(SETTINGS)
    layout.pull_record.write_bytes(b"{") if kind == "damaged" else layout.pull_record.mkdir()
    last.tick()
    last.tick()
    assert [one["result"] for one in published.all] == [None]
    assert logged(caplog).split()[0::2] == ["pull-unreadable"]
