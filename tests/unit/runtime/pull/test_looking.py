"""Whose look it is, by how those before have ended."""

import json

import pytest

from edge.runtime.pull import entry, looking
from edge.runtime.pull.looking import LOOKS, look_in_turn
from edge.runtime.pull.memory import OWN_RECORD, Memory, lay_aside
from edge.runtime.pull.record import PullRecord, Settled, read_pull_record, write_record

NAME = "a" * 64
REFERENCE = "registry.example/farms/gates:stable-all"


def record(number, **values):
    known = {"reference": REFERENCE, "result": "unchanged", "at": f"2026-11-25T00:00:{number:02d}Z"}
    return PullRecord(**{**known, **values})


class Looks:
    """Looks at a registry of a device in a folder; `ends` are what those of what was brought do, and end with."""

    def __init__(self, root, monkeypatch):
        self.root, self.ends, self.count = root, [], 0
        self.state = root / "var/lib/edge-pull"
        self.state.mkdir(parents=True)
        (root / "var/lib/edge-software" / NAME).mkdir(parents=True)
        monkeypatch.delenv("STATE_DIRECTORY", raising=False)
        monkeypatch.setattr(looking, "_program", lambda device: f"/var/lib/edge-software/{NAME}/edge-runtime")
        monkeypatch.setattr(looking, "_run", self.run)
        self.by = []

    def run(self, command, environment):
        self.count += 1
        self.by.append((self.root / "run/edge-pull/by").read_text())
        end = self.ends.pop(0) if self.ends else "well"
        if end == "well" or (isinstance(end, int) and end > 0):  # of what ended otherwise there is a record, too
            write_record(self.state / "pull.json", record(self.count % 60, problem=str(self.count)))
        elif end == "forges":
            for name in ("pull.json", OWN_RECORD):
                write_record(self.state / name, record(30, settled=SETTLED))
        elif isinstance(end, bytes):
            (self.state / "pull.json").write_bytes(end)
        return end if isinstance(end, int) else 0

    def look(self):
        """Look once; return how that of what was brought has ended, or None."""
        status = look_in_turn(["pull", "--root", str(self.root)])
        if status is None:
            Memory(self.state).write(record(0))
        return status


@pytest.fixture
def looks(tmp_path, monkeypatch):
    return Looks(tmp_path, monkeypatch)


def test_where_all_is_well_each_sixteenth_look_is_provisions(looks):
    turns = [looks.look() for _ in range(2 * (LOOKS + 1))]

    assert turns == [None, *[0] * LOOKS] * 2
    assert set(looks.by) == {NAME}
    assert not (looks.root / "run/edge-pull/by").exists()


@pytest.mark.parametrize("end", [1, 3, 12, 6, 130, -9, -15])
def test_what_does_not_end_well_has_every_second_look_at_most(looks, end):
    looks.ends = [end] * 3

    assert [looks.look() for _ in range(6)] == [None, end if end > 0 else 128 - end] * 3


@pytest.mark.parametrize("end", [0, b"", b"{}", b"[" * 100_000], ids=["no-word", "empty", "no-record", "deep"])
def test_a_look_that_ends_without_a_record_is_not_well(looks, end):
    looks.ends = [end] * 2

    assert [looks.look() for _ in range(4)] == [None, 0] * 2


def test_the_first_look_after_a_boot_is_provisions(looks):
    assert [looks.look(), looks.look()] == [None, 0]
    (looks.root / "run/edge-pull/turn").unlink()

    assert [looks.look(), looks.look()] == [None, 0]


def test_where_no_release_has_brought_anything_no_agent_is_asked(looks, monkeypatch):
    looks.look()
    (looks.root / "var/lib/edge-software" / NAME).rmdir()
    monkeypatch.setattr(looking, "_program", lambda device: 1 / 0)

    assert [looks.look(), looks.look()] == [None, None]


def test_nobody_else_looks_before_what_is_installed_has_a_record_of_its_own(looks):
    looks.look()
    (looks.state / OWN_RECORD).unlink()

    assert looks.look() is None


def test_a_fault_in_the_choice_is_no_end_of_what_is_installed(looks, monkeypatch, capsys):
    looks.look()
    monkeypatch.setattr(looking, "_program", lambda device: 1 / 0)

    assert [looks.look(), looks.look()] == [None, None]
    assert "cannot look: ZeroDivisionError" in capsys.readouterr().err


def test_what_a_killed_look_has_left_says_nothing_of_the_next(looks, monkeypatch):
    looks.look()
    by = looks.root / "run/edge-pull/by"
    by.write_text(NAME)
    seen = []
    monkeypatch.setattr(looking, "_program", lambda device: seen.append(by.exists()))

    assert looks.look() is None
    assert seen == [False]


def test_a_look_by_root_is_provisions_and_touches_nothing(looks, monkeypatch):
    monkeypatch.setattr(looking, "value_of", lambda *_: None)
    monkeypatch.setattr(looking.os, "geteuid", lambda: 0)
    monkeypatch.setattr(looking, "Turns", lambda path: 1 / 0)

    assert look_in_turn(["pull"]) is None


SETTLED = Settled(digest="sha256:aa", release="0123456789ab", result="committed")


def test_what_another_software_has_written_is_hearsay_until_it_is_found_out_anew(tmp_path):
    first = record(1, settled=SETTLED)
    assert not Memory(tmp_path).is_hearsay
    Memory(tmp_path).write(first)
    assert not Memory(tmp_path).is_hearsay
    theirs = record(2, settled=Settled(digest="sha256:bb", release="0123456789ab", result="unchanged"))
    write_record(tmp_path / "pull.json", theirs)
    assert Memory(tmp_path).is_hearsay

    Memory(tmp_path).write(record(3, settled=theirs.settled, result="failed"))  # a look that came to nothing
    assert Memory(tmp_path).is_hearsay
    assert read_pull_record(tmp_path / OWN_RECORD) == first

    Memory(tmp_path).write(record(4, settled=SETTLED))
    assert not Memory(tmp_path).is_hearsay


def test_what_was_written_before_there_were_turns_is_its_own(tmp_path):
    write_record(tmp_path / "pull.json", record(1, settled=SETTLED))

    assert not Memory(tmp_path).is_hearsay


@pytest.mark.parametrize("content", [b"", b"{", json.dumps({"format": 2}).encode()])
def test_an_own_record_that_cannot_be_read_vouches_for_nothing(tmp_path, content):
    Memory(tmp_path).write(record(1, settled=SETTLED))
    (tmp_path / OWN_RECORD).write_bytes(content)

    assert Memory(tmp_path).is_hearsay


def test_software_that_was_brought_writes_nothing_that_vouches(tmp_path, monkeypatch):
    Memory(tmp_path).write(record(1))
    monkeypatch.setattr("edge.runtime.pull.memory.running", lambda: NAME)
    brought = Memory(tmp_path)
    brought.write(record(2))
    assert not brought.is_hearsay
    monkeypatch.undo()

    assert Memory(tmp_path).is_hearsay


def test_what_was_brought_cannot_vouch_for_itself_by_the_record_of_what_is_installed(looks):
    looks.look()
    own = (looks.state / OWN_RECORD).read_bytes()
    looks.ends = ["forges"]

    assert looks.look() == 0
    assert (looks.state / OWN_RECORD).read_bytes() == own
    assert Memory(looks.state).is_hearsay
    assert {path.name for path in looks.state.iterdir()} == {"pull.json", OWN_RECORD}


def test_nor_where_its_look_was_killed_together_with_who_judges_it(tmp_path):
    Memory(tmp_path).write(record(1, settled=SETTLED))
    lay_aside(tmp_path)
    forged = record(2, settled=Settled(digest="sha256:bb", release="0123456789ab", result="unchanged"))
    for name in ("pull.json", OWN_RECORD):
        write_record(tmp_path / name, forged)

    assert Memory(tmp_path).is_hearsay


def test_a_look_of_what_was_brought_needs_a_disk_that_takes_a_rename(looks, monkeypatch, capsys):
    looks.look()
    monkeypatch.setattr(
        looking, "lay_aside", lambda folder: (_ for _ in ()).throw(OSError(30, "Read-only file system"))
    )

    assert [looks.look(), looks.look()] == [None, None]
    assert looks.by == []
    assert "cannot look: OSError" in capsys.readouterr().err


def test_the_state_folder_is_that_of_the_unit(tmp_path, monkeypatch):
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/elsewhere")

    assert str(entry.state_folder(tmp_path)) == "/var/lib/elsewhere"
