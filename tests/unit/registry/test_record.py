"""What a pull remembers: whole, or as if there were nothing."""

from dataclasses import replace

import pytest

from edge.runtime.pull.record import PullRecord, read_pull_record, settled_by, write_record


def ended(result):
    """Return the record of a first pull that ended so."""
    plain = PullRecord(
        reference="a.b/c:stable-all", digest="sha256:" + "0" * 64, release="1" * 12, result=result, at="2026-11-23"
    )
    return replace(plain, settled=settled_by(plain, before=None))


RECORD = ended("committed")


def test_a_record_is_read_as_it_was_written(tmp_path):
    write_record(tmp_path / "pull.json", RECORD)

    assert read_pull_record(tmp_path / "pull.json") == RECORD


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"format": 2}', b'{"format": 1}', b'{"format": 1, "colour": "red"}']
)
def test_a_record_that_is_none_is_as_none(tmp_path, content):
    (tmp_path / "pull.json").write_bytes(content)

    assert read_pull_record(tmp_path / "pull.json") is None
    assert read_pull_record(tmp_path / "nothing") is None


def test_only_the_same_artifact_at_the_same_place_is_judged():
    assert RECORD.is_judged(RECORD.reference, digest=RECORD.digest)
    assert not RECORD.is_judged("a.b/c:stable-canary", digest=RECORD.digest)
    assert not RECORD.is_judged(RECORD.reference, digest="sha256:" + "1" * 64)


def test_a_release_is_known_in_another_wrapping_too():
    assert RECORD.is_judged(RECORD.reference, release="1" * 12)
    assert not RECORD.is_judged(RECORD.reference, release="2" * 12)
    assert not RECORD.is_judged("a.b/c:stable-canary", release="1" * 12)


@pytest.mark.parametrize("result", ["refused", "failed", "interrupted", "late"])
def test_what_had_no_verdict_is_asked_again_for_its_cause_may_be_gone(result):
    refused = ended(result)

    assert not refused.is_judged(RECORD.reference, digest=RECORD.digest)
