"""Logins by name: one that is kept keeps what it holds, and what cannot be kept is refused without being told."""

import pytest

from edge.config.credentials import Credential, line_from_credential, read_credential
from edge.deploy.new.new import Secrets
from edge.errors import ConfigError

ONE, OTHER = Credential(user="me", password="one"), Credential(user="me", password="other")


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    folder = tmp_path / "edge-deploy" / "credentials"
    folder.mkdir(parents=True)
    (folder / "gate").write_text("me:one\n")
    (folder / "gate").chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_the_same_login_keeps_its_name_and_is_not_written_again_and_another_gets_one_of_its_own():
    secrets = Secrets(replaces=False)

    assert (secrets.use(ONE, wanted="gate"), secrets.new) == ("gate", {})
    assert [secrets.use(OTHER, wanted="gate") for _ in range(2)] == ["gate-2"] * 2
    assert secrets.new == {"gate-2": OTHER}


def test_a_secret_is_replaced_when_that_is_asked_for_and_it_serves_nobody_else_here():
    secrets = Secrets(replaces=True)

    assert secrets.use(OTHER, wanted="gate") == "gate"
    assert secrets.use(ONE, wanted="gate") == "gate-2"
    assert secrets.new == {"gate": OTHER, "gate-2": ONE}


def test_a_secret_that_others_can_read_is_an_error_and_not_none(tmp_path):
    (tmp_path / "edge-deploy" / "credentials" / "gate").chmod(0o644)

    with pytest.raises(ConfigError, match="others can read"):
        Secrets(replaces=False).kept("gate")


@pytest.mark.parametrize(
    "login",
    [
        Credential(user="a\\", password="s3cret"),
        Credential(user="me", password="s3cret "),
        Credential(user="me", password="s3\ncret"),
    ],
)
def test_what_one_line_cannot_hold_is_refused_and_not_told(login):
    with pytest.raises(ConfigError, match="gate: expected no blanks") as refused:
        line_from_credential(login, where="gate")

    assert "cret" not in str(refused.value)


def test_what_is_written_is_what_is_read(tmp_path):
    login = Credential(user="vhost:b\\ob", password="p@ss\\: wörd/1")
    path = tmp_path / "edge-deploy" / "credentials" / "new"
    path.touch(mode=0o600)
    path.write_bytes(line_from_credential(login, where="new"))

    assert read_credential("new") == login
