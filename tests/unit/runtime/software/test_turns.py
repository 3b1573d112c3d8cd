"""Whose turn it is, by what is noted of the turns before."""

import os

import pytest

from edge.runtime.software.turns import ANY, Turns


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run/turn"


def test_without_a_note_as_after_a_boot_it_is_provisions_turn(path):
    assert Turns(path).take() is None


def test_after_a_turn_of_provisions_it_is_that_of_what_was_brought_once(path):
    turns = Turns(path)
    turns.begun()

    assert [turns.take(), turns.take()] == [1, None]


def test_a_turn_that_was_taken_is_gone_whatever_becomes_of_who_has_taken_it(path):
    Turns(path).begun()
    Turns(path).take()

    assert not path.exists()
    assert Turns(path).take() is None


def test_what_is_owed_is_paid_by_being_asked_that_and_by_nothing_else(path):
    turns = Turns(path)
    turns.owe("plan")
    turns.begun()
    turns.asked("status")
    assert (turns.take(), turns.owed) == (None, "plan")

    turns.asked("plan")

    assert (turns.owed, turns.take()) == (None, 1)


def test_however_much_else_is_asked_what_is_owed_stays_owed(path):
    turns = Turns(path)
    turns.owe("plan")
    for _ in range(50):
        turns.begun()
        turns.asked("status")

    assert (turns.take(), turns.owed) == (None, "plan")


def test_something_else_that_is_owed_keeps_no_push_from_what_was_brought(path):
    turns = Turns(path)
    turns.owe("status")
    taken = []
    for _ in range(3):
        turns.begun()
        taken.append(turns.take())
        for what in ("plan", "lock", "plan"):
            turns.asked(what)

    assert taken[:2] == [None, 1]


def test_one_that_ends_well_pays_nothing_that_another_has_come_to_owe_meanwhile(path):
    turns = Turns(path)
    turns.owe("plan")
    turns.end_well()
    assert (turns.take(), turns.owed) == (None, "plan")

    turns.asked("plan")
    turns.take()
    turns.end_well()

    assert turns.take() == 1


def test_a_push_that_is_owed_stays_owed_whatever_else_is_since(path):
    turns = Turns(path)
    turns.owe("plan")
    turns.owe("status")

    assert turns.owed == "plan"


def test_what_is_owed_is_let_go_after_eight_turns_in_which_nobody_asked_for_anything(path):
    turns = Turns(path)
    turns.owe("plan")
    taken = []
    for _ in range(8):
        turns.begun()
        taken.append(turns.take())

    assert taken == [None] * 7 + [1]


@pytest.mark.parametrize("what", [ANY, "", "PLAN", "p" * 41, "plän", "a b", "\n"])
def test_what_is_no_word_is_paid_by_any_turn_of_provisions(path, what):
    turns = Turns(path)
    turns.owe(what)
    assert turns.take() is None

    turns.begun()

    assert turns.take() == 1


def test_some_turns_are_counted_down_to_one_of_provisions(path):
    turns = Turns(path)
    turns.give(2)
    taken = []
    while (left := turns.take()) is not None:
        taken.append(left)
        turns.give(left - 1)

    assert taken == [2, 1]


@pytest.mark.parametrize(
    "content", [b"", b"left 0", b"owed 3", b"owed 0 plan", b"left -1", b"left 1\n", b"left 99999", b"\xff", b"l" * 5000]
)
def test_a_note_that_cannot_be_read_gives_no_turn_and_the_next_is_noted_over_it(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    assert Turns(path).take() is None

    Turns(path).begun()

    assert Turns(path).take() == 1


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_what_is_no_file_gives_no_turn(path, kind, tmp_path):
    path.parent.mkdir()
    (tmp_path / "elsewhere").write_text("left 1")
    {"folder": path.mkdir, "link": lambda: path.symlink_to(tmp_path / "elsewhere"), "fifo": lambda: os.mkfifo(path)}[
        kind
    ]()

    assert Turns(path).take() is None
    assert (tmp_path / "elsewhere").read_text() == "left 1"


def test_where_nothing_can_be_noted_it_is_provisions_turn(path, tmp_path):
    (tmp_path / "run").write_text("no folder")
    turns = Turns(path)
    turns.begun()
    turns.owe("plan")
    turns.asked("plan")

    assert turns.take() is None
