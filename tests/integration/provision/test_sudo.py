"""The password of an administrator reaches sudo and nobody else: real sshd, real sudo, a real account."""

import contextlib
import logging
import os
import secrets
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edge.deploy.provision.admin import AdminShell
from edge.transport.ssh import SshAddress
from tests.support.command_line import started_on_terminal
from tests.support.people import shared_folder
from tests.support.raised import code_of, error_of
from tests.support.sshd import Sshd

_NEEDED = ("sudo", "useradd", "userdel", "chpasswd", "visudo")
needs_accounts = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(name) is None for name in _NEEDED),
    reason=f"root is needed, to make an account, and {', '.join(_NEEDED)}",
)

NOBODY_ASKED, ASKED = "ALL=(ALL:ALL) NOPASSWD: ALL", "ALL=(ALL:ALL) ALL"
pytestmark = [
    needs_accounts,
    pytest.mark.slow_but(
        "test_a_password_is_not_run_by_the_shell_where_sudo_asks_nobody", reason="further first installations"
    ),
]


@dataclass(frozen=True)
class Administrator:
    """A local account with a password of its own; `address` is how it logs in over a real sshd."""

    name: str
    password: str
    address: SshAddress

    def may(self, *rules: str) -> None:
        """Write what sudoers says of the account; `Defaults` are its own, too."""
        path = Path("/etc/sudoers.d") / self.name
        lines = [rule.replace("Defaults", f"Defaults:{self.name}", 1) for rule in rules if rule.startswith("Defaults")]
        lines += [f"{self.name} {rule}" for rule in rules if not rule.startswith("Defaults")]
        partial = path.with_name(f"{self.name}.partial")  # sudo passes over names with a dot
        partial.write_text("".join(f"{line}\n" for line in lines))
        partial.chmod(0o440)
        subprocess.run(["visudo", "-cqf", str(partial)], check=True)
        partial.rename(path)


@pytest.fixture(scope="module")
def account():
    """An account that did not exist before and does not afterwards."""
    name, password = f"edge-test-{secrets.token_hex(4)}", f"pw-{secrets.token_hex(12)}"
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)
    try:
        subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, check=True)
        with shared_folder() as folder, Sshd(folder / "sshd", command=None) as sshd:
            (folder / "sshd/authorized_keys").chmod(0o644)  # sshd reads it as the account
            yield Administrator(name, password, replace(sshd.address(), user=name))
    finally:
        (Path("/etc/sudoers.d") / name).unlink(missing_ok=True)
        subprocess.run(["userdel", "--remove", name], capture_output=True)


def asked_twice(*answers: str):
    """Return what answers in a person's place, and what it was asked."""
    said: list[bool] = []

    def ask(is_again: bool) -> str:
        said.append(is_again)
        return answers[len(said) - 1]

    return ask, said


@contextlib.contextmanager
def watching(word: str):
    """Look at all processes of this machine without a pause within the block; yield where the word was seen."""
    seen: list[str] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                for each in (path, path.with_name("environ")):
                    try:
                        if word.encode() in each.read_bytes():
                            seen.append(str(each))
                    except OSError:  # it has ended
                        continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def test_a_password_is_not_run_by_the_shell_where_sudo_asks_nobody(account, tmp_path):
    account.may(NOBODY_ASKED)
    ran = tmp_path / "ran"

    AdminShell(address=account.address, sudo_password=f"touch {ran}").facts()

    assert not ran.exists()


def test_a_password_is_in_no_error_where_sudo_asks_nobody(account):
    account.may(NOBODY_ASKED)
    shell = AdminShell(address=account.address, sudo_password="Correct-Horse")

    assert shell.facts().architecture == os.uname().machine
    error = error_of(shell.steps, {"steps": "none of a kind that there is"})  # ends with an error in the program there

    assert "Correct-Horse" not in f"{error} {error.evidence}"


@pytest.mark.parametrize(("rule", "is_wanted"), [(NOBODY_ASKED, False), (ASKED, True)], ids=["asks nobody", "asks"])
def test_a_password_is_wanted_where_sudo_asks_for_one(account, rule, is_wanted):
    account.may(rule)
    assert AdminShell(address=account.address).wants_password() is is_wanted


@pytest.mark.parametrize("wrong", [[], ["wrong"]], ids=["right", "wrong-once"])
def test_a_password_is_asked_for_again_once_where_it_is_wrong(account, wrong):
    account.may(ASKED)
    ask, said = asked_twice(*wrong, account.password)

    password = AdminShell(address=account.address).ask_password(ask)

    assert (password, said) == (account.password, [False, True][: len(wrong) + 1])
    shell = AdminShell(address=account.address, sudo_password=password)
    assert shell.facts().architecture == os.uname().machine
    assert shell.steps({"is_undo": True, "is_plan": True, "purge": False, "steps": []}).failed == ""


def test_a_password_that_is_wrong_again_ends_it(account):
    account.may(ASKED)
    ask, said = asked_twice("wrong-one", "wrong-two")

    error = error_of(AdminShell(address=account.address).ask_password, ask)

    assert error.code == "request.sudo.password"
    assert said == [False, True]
    assert "wrong-" not in str(error)


@pytest.mark.parametrize("rule", ["Defaults passwd_tries=1", "Defaults passwd_tries=5", "Defaults use_pty", None])
def test_a_wrong_password_is_tried_once_and_nothing_else_is_tried_as_one(account, rule, tmp_path):
    log = tmp_path / "sudo.log"
    account.may(*([rule] if rule else []), f"Defaults logfile={log}", "Defaults loglinelen=0", ASKED)

    assert code_of(AdminShell(address=account.address, sudo_password="wrong").facts) == "request.sudo.password"
    assert "1 incorrect password attempt ;" in log.read_text()


def test_a_password_with_a_second_line_is_refused_before_anybody_is_called(account):
    account.may(ASKED)

    error = error_of(AdminShell(address=account.address, sudo_password=f"{account.password}\nid").facts)

    assert error.code == "request.sudo.password"
    assert account.password not in str(error)


def test_who_may_not_use_sudo_at_all_is_not_asked_twice(account):
    account.may("ALL=(ALL:ALL) /usr/bin/true-of-nowhere")
    ask, said = asked_twice(account.password, account.password)

    assert code_of(AdminShell(address=account.address).ask_password, ask) == "request.sudo"
    assert len(said) <= 1


@pytest.mark.parametrize("rule", [NOBODY_ASKED, ASKED], ids=["nobody asked", "asked"])
def test_no_list_of_processes_no_log_and_no_repr_shows_a_password(account, rule, caplog):
    account.may(rule)
    caplog.set_level(logging.DEBUG)
    shell = AdminShell(address=account.address, sudo_password=account.password)

    with watching(account.password) as seen:
        shell.facts()

    assert seen == []
    assert account.password not in caplog.text + repr(shell)


def test_what_was_typed_for_one_call_does_not_open_another(account):
    account.may("Defaults timestamp_type=global", ASKED)
    AdminShell(address=account.address, sudo_password=account.password).facts()

    error = error_of(AdminShell(address=account.address).facts)

    assert error.code == "request.sudo"
    assert "sudo refuses" in str(error)
    assert "--ask-sudo-password" in str(error)


def test_a_profile_that_prints_is_not_taken_for_an_answer(account):
    account.may(ASKED)
    profile = Path(f"~{account.name}/.profile").expanduser()
    before = profile.read_text() if profile.exists() else ""
    profile.write_text("echo architecture=none; echo Password:\n")
    try:
        told = AdminShell(address=account.address, sudo_password=account.password).facts()
    finally:
        profile.write_text(before)

    assert told.architecture == os.uname().machine


def undo(account) -> list[str]:
    command = [sys.executable, "-m", "edge.cli.edge_deploy", "provision", "device", "--admin", account.name]
    return [*command, "--ssh-config", str(account.address.config), "--undo", "--plan", "--ask-sudo-password"]


@pytest.mark.parametrize(("rule", "code"), [(ASKED, 2), (NOBODY_ASKED, 0)], ids=["asks", "asks nobody"])
def test_a_password_is_not_asked_for_where_there_is_no_terminal(account, rule, code):
    account.may(rule)

    done = subprocess.run(
        undo(account), stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, timeout=60
    )

    assert done.returncode == code, done.stderr
    assert ("--ask-sudo-password" in done.stderr and "terminal" in done.stderr) == (code == 2)
    assert "Password" not in done.stderr


def undone_at_a_terminal(account, *answers: str) -> tuple[int, str]:
    """Plan an undo at a terminal of its own, answering each question for a password; return code and screen."""
    child, terminal = started_on_terminal(*undo(account))
    screen, told = b"", 0
    with contextlib.suppress(OSError):  # EIO: nobody is at the other end any more
        while part := os.read(terminal, 4096):
            screen += part
            if screen.endswith(b": ") and told < len(answers):
                os.write(terminal, f"{answers[told]}\n".encode())
                told += 1
    os.close(terminal)
    return child.wait(60), screen.decode()


def test_a_person_is_asked_by_name_again_once_and_sees_no_password(account):
    account.may(ASKED)

    code, screen = undone_at_a_terminal(account, "not-that-one", account.password)

    assert code == 0, screen
    assert screen.count("Password for sudo on device: ") == 1
    assert screen.count("sudo on device does not take it. Once more: ") == 1
    assert account.password not in screen
    assert "not-that-one" not in screen


def test_a_person_is_asked_nothing_where_sudo_asks_nobody(account):
    account.may(NOBODY_ASKED)

    code, screen = undone_at_a_terminal(account)

    assert code == 0, screen
    assert "Password" not in screen
