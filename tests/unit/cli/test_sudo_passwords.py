"""What a person is asked for, and which target gets what they type."""

import threading

import click
import pytest
from click.testing import CliRunner

from edge.cli.commands import provision as asking
from edge.cli.commands.provision import sudo_passwords
from edge.errors import DeployError


class Shell:
    """Takes one password; `asks` None: sudo asks nobody there."""

    def __init__(self, takes: str | None) -> None:
        self.takes, self.heard = takes, []

    def wants_password(self):
        return self.takes is not None

    def ask_password(self, ask):
        for is_again in (False, True):
            self.heard.append(ask(is_again))
            if self.heard[-1] == self.takes:
                return self.takes
        raise click.ClickException("wrong")


@pytest.fixture
def answer(monkeypatch):
    """Return what asks for the password of each shell while a person types these lines."""

    monkeypatch.setattr(asking, "_has_terminal", lambda: True)

    def answer(shells, typed):
        @click.command()
        def command():
            sudo_passwords({f"gate-{number}": shell for number, shell in enumerate(shells)})

        return CliRunner().invoke(command, input="".join(f"{line}\n" for line in typed)).output

    return answer


def test_each_target_gets_its_own(answer):
    shells = [Shell("one"), Shell("two")]
    answer(shells, ["one", "two"])
    assert [shell.heard for shell in shells] == [["one"], ["two"]]


def test_enter_sends_the_one_before_and_nothing_else_does(answer):
    shells = [Shell("one"), Shell(None), Shell("one")]
    told = answer(shells, ["one", ""])
    assert [shell.heard for shell in shells] == [["one"], [], ["one"]]
    assert "gate-1" not in told
    assert "Password for sudo on gate-2 (Enter: the same as before): " in told


def test_after_a_wrong_one_the_one_before_is_not_offered(answer):
    shells = [Shell("one"), Shell("two")]
    told = answer(shells, ["one", "", "two"])
    assert shells[1].heard == ["one", "two"]
    assert "sudo on gate-1 does not take it. Once more: " in told


def test_a_password_that_was_wrong_is_not_offered_to_the_next_target(answer):
    shells = [Shell("one"), Shell("two")]
    told = answer(shells, ["wrong", "one", "two"])
    assert [shell.heard for shell in shells] == [["wrong", "one"], ["two"]]
    assert "wrong" not in told


class Unreachable(Shell):
    """Fails once as many as `together` counts are being waited for at the same time."""

    def __init__(self, together: threading.Barrier) -> None:
        super().__init__(None)
        self.together = together

    def wants_password(self):
        self.together.wait(30)
        raise DeployError("transfer.ssh", "no route", hint="look at the network")


def test_targets_that_cannot_be_reached_are_waited_for_together():
    together = threading.Barrier(5)
    shells = {f"gate-{number}": Unreachable(together) for number in range(5)} | {"free": Shell(None)}
    known = sudo_passwords(shells)
    assert known.pop("free") is None
    assert [error.code for error in known.values()] == ["transfer.ssh"] * 5
