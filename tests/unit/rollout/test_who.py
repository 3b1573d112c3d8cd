"""Who takes a step is told wherever one is taken."""

import getpass

import pytest

from edge.deploy.rollout.kept import _overtaken
from edge.deploy.rollout.rollout import who_am_i
from edge.rollout.state import RolloutStep
from tests.unit.rollout.test_state import AT, made


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 12345"), OSError("No username set")])
def test_in_a_container_without_a_user_of_that_number_it_is_the_number(monkeypatch, error):
    def getuser():
        raise error

    monkeypatch.setattr(getpass, "getuser", getuser)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert who_am_i().startswith("12345@")


def test_a_name_that_is_no_text_is_made_one(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "j\udcffb")
    assert who_am_i().startswith("j?b@")


def test_what_somebody_else_wrote_moves_no_cursor():
    state = made(steps=(RolloutStep(at=AT, by="x\x1b[2Jy", what="a\nb"),))
    assert "x?[2Jy (a b, 2026-11-23T12:00:00Z)" in str(_overtaken("here", state))
