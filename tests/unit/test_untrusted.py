"""What is left of a text that somebody else wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.untrusted import cleaned


@given(st.text())
def test_whatever_comes_is_one_line_of_as_many_characters_that_all_have_a_shape(text):
    assert cleaned(text).isprintable()
    assert len(cleaned(text)) == len(text)
    assert cleaned(cleaned(text)) == cleaned(text)


@pytest.mark.parametrize("text", ["", "gate-01 serves", "Grüße, 世界", "50 %", "a\u00e9\u0301"])
def test_what_a_person_writes_stays_as_it_is(text):
    assert cleaned(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b]52;c;eA==\x07", "?]52;c;eA==?"),
        ("\x9b31mred", "?31mred"),
        ("\u202egpj.exe", "?gpj.exe"),
        ("done\rfailed", "done failed"),
        ("one\ntwo\tthree", "one two three"),
        ("\u2066a\u2069\u200b\u2028\x00\ud800", "?a?????"),
    ],
)
def test_what_moves_turns_or_hides_is_shown_as_a_question_mark(text, left):
    assert cleaned(text) == left
