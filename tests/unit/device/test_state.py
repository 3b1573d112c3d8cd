"""The small files: state, counters, failed releases, audit log."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.device.device import Audit, Kind
from edge.device.durable import Durable, Files
from edge.device.layout import Layout
from edge.device.state import (
    BadRelease,
    Counters,
    Phase,
    State,
    Verdict,
    decode_state,
    encode_state,
    forget_bad,
    mark_bad,
    raise_counters,
    read_bad,
    read_counters,
    read_state,
    write_state,
)
from edge.errors import DeployError
from edge.reports import LastSwitch
from tests.support.audit import audit_lines
from tests.support.cut_files import CutFiles
from tests.support.pushes import device_over
from tests.support.raised import code_of
from tests.support.scenarios import BARE

TRIAL = State(
    phase=Phase.TRIAL,
    target="b" * 12,
    fallback="a" * 12,
    boots=1,
    attempts=2,
    attempts_this_boot=1,
    boot_id="x",
    started_at="2026-01-01T00:00:00Z",
    started_boottime_ns=5,
    confirm=True,
    baseline={"streams": {"gate-east": 14.9}},
    reason=None,
    last=LastSwitch(release="a" * 12, before=None, result="committed", reason=None, at="2026-01-01T00:00:00Z"),
)


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    layout.var.mkdir(parents=True)
    return layout


def test_a_state_comes_back_as_it_was(layout):
    assert read_state(layout, Files()) == State()
    write_state(layout, Durable(), TRIAL)
    assert read_state(layout, Files()) == TRIAL


@given(position=st.integers(0, len(encode_state(TRIAL)) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_state_is_noticed(position, bit):
    content = bytearray(encode_state(TRIAL))
    content[position] ^= 1 << bit
    try:
        found = decode_state(bytes(content))
    except ValueError:
        return
    assert found == TRIAL, "white space between values may change; a value may not"


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_torn_state_is_damage_with_a_way_out(layout, length):
    layout.state.write_bytes(encode_state(TRIAL)[:length])
    with pytest.raises(DeployError, match=r"state\.json: expected a sealed state.*edge-runtime recover") as failure:
        read_state(layout, Files())
    assert failure.value.code == "device.state"


def test_a_state_of_another_format_or_with_other_types_is_damage():
    from edge.device.state import open_sealed, seal

    values = open_sealed(encode_state(TRIAL))
    for wrong in (
        {"format": "edge.device-state/2"},
        {"boots": "1"},
        {"phase": "asleep"},
        {"more": 1},
        {"target": None},
        {"last": {"release": "a" * 12}},
        {"last": []},
    ):
        with pytest.raises(ValueError, match=r".+"):
            decode_state(seal({**values, **wrong}))


def test_f13_counters_only_rise(layout):
    assert read_counters(layout, Files()) == Counters()
    raise_counters(layout, Durable(), Counters(sequences={"main": 7}, newest_created_at="2026-03-01T00:00:00Z"))
    raised = raise_counters(
        layout, Durable(), Counters(sequences={"main": 3, "beta": 1}, newest_created_at="2026-02-01T00:00:00Z")
    )
    expected = Counters(sequences={"main": 7, "beta": 1}, newest_created_at="2026-03-01T00:00:00Z")
    assert raised == read_counters(layout, Files()) == expected


def test_f13_damaged_counters_are_never_taken_for_those_of_a_new_device(layout):
    raise_counters(layout, Durable(), Counters(sequences={"main": 7}))
    layout.counters.write_bytes(layout.counters.read_bytes().replace(b"7", b"1"))
    assert code_of(raise_counters, layout, Durable(), Counters(sequences={"main": 2})) == "device.counters"


def test_failed_releases_are_remembered_until_they_are_forgotten(layout):
    suspect = BadRelease(verdict=Verdict.SUSPECT, reason="power", at="2026-01-01T00:00:00Z")
    bad = BadRelease(verdict=Verdict.BAD, reason="no frames", at="2026-01-02T00:00:00Z")
    mark_bad(layout, Durable(), "a" * 12, suspect)
    mark_bad(layout, Durable(), "b" * 12, bad)
    assert read_bad(layout, Files()) == {"a" * 12: suspect, "b" * 12: bad}
    forget_bad(layout, Durable(), "a" * 12)
    forget_bad(layout, Durable(), "c" * 12)
    assert read_bad(layout, Files()) == {"b" * 12: bad}


def test_a_list_that_a_killed_process_left_is_durable_once_somebody_has_relied_on_it():
    files = CutFiles(BARE)
    device = device_over(files)
    bad = BadRelease(verdict=Verdict.BAD, reason="r", at="t")
    with killed_before_sync_of(files, device.layout.bad.parent):
        mark_bad(device.layout, device.durable, "a" * 12, bad)
    assert "a" * 12 in read_bad(device.layout, files)

    forget_bad(device.layout, device.durable, "b" * 12)

    assert all(str(device.layout.bad) in dict(tree) for tree in files.trees_after_cut())


def test_counters_that_a_killed_process_left_are_durable_once_somebody_has_relied_on_them():
    files = CutFiles(BARE)
    device = device_over(files)
    seen = Counters(sequences={"main": 3}, newest_created_at="2026-01-01T00:00:00Z")
    with killed_before_sync_of(files, device.layout.counters.parent):
        raise_counters(device.layout, device.durable, seen)

    assert raise_counters(device.layout, device.durable, seen) == seen

    assert all(str(device.layout.counters) in dict(tree) for tree in files.trees_after_cut())


@contextlib.contextmanager
def killed_before_sync_of(files, folder):
    class Killed(BaseException):
        pass

    def kill(path):
        if path == folder:
            raise Killed
        CutFiles.sync_dir(files, path)

    files.sync_dir = kill
    with contextlib.suppress(Killed):
        yield
        raise AssertionError("no sync came")
    del files.sync_dir


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"releases": {"a": 1}}', b"\xff"])
def test_a_damaged_list_of_failed_releases_stops_nothing(layout, content):
    layout.bad.write_bytes(content)
    assert read_bad(layout, Files()) == {}
    mark_bad(layout, Durable(), "b" * 12, BadRelease(verdict=Verdict.BAD, reason="r", at="t"))
    assert list(read_bad(layout, Files())) == ["b" * 12]


def write_line(audit, number, **values):
    line = {"at": "t", "who": "mina", "origin": "192.0.2.7", "what": "push", "result": f"ok {number}"}
    audit.write(**{**line, **values})


def test_the_audit_log_keeps_a_bounded_number_of_lines(layout):
    audit = Audit(layout, Durable(), max_bytes=1000)
    for number in range(100):
        write_line(audit, number, release="a" * 12)
    assert sum(path.stat().st_size for path in layout.var.glob("audit.jsonl*")) < 2500
    results = [line["result"] for line in audit_lines(layout, 5)]
    assert results == [f"ok {number}" for number in range(95, 100)]


def test_no_power_cut_takes_a_line_of_the_audit_log_while_a_new_file_is_begun():
    files = CutFiles(BARE)
    device = device_over(files)
    audit = Audit(device.layout, device.durable, max_bytes=200, hold=lambda _: contextlib.nullcontext())
    on_disk = set()

    def look(files):
        for tree in files.trees_after_cut():
            assert on_disk <= {line for path, text in tree if "audit" in path for line in text.splitlines()}

    files.on_step = look
    for number in range(4):
        write_line(audit, number)
        on_disk = {line for path, text in files.tree() if "audit" in path for line in text.splitlines()}
    assert len(on_disk) == 4
    assert sum("audit" in path for path, _ in files.tree()) == 2


def test_a_torn_or_foreign_audit_line_is_left_out_and_long_texts_are_cut(layout):
    layout.audit.write_bytes(b'{"result": "fir')
    audit = Audit(layout, Durable())
    write_line(audit, 1, who="x" * 10_000 + "\n")
    assert [line["result"] for line in audit_lines(layout)] == ["ok 1"]
    assert max(len(line) for line in layout.audit.read_bytes().splitlines()) < 800
    assert json.loads(layout.audit.read_bytes().splitlines()[-1])["from"] == "192.0.2.7"


def test_refusals_without_end_do_not_push_out_what_was_done(layout):
    audit = Audit(layout, Durable(), max_bytes=2000)
    said = {"who": "mina", "origin": "10.0.0.7"}
    audit.write(at="2026-01-01T00:00:00Z", what="switch", result="ok", **said)
    for second in range(200):
        at = f"2026-01-02T00:00:{second % 60:02d}Z"
        audit.write(at=at, what="nonsense", result="request.verb: " + "x" * 400, kind=Kind.REFUSED, **said)
    lines = audit_lines(layout)
    assert lines[0]["what"] == "switch"
    assert 1 < len(lines) < 20
