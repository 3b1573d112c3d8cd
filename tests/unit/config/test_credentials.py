import pytest

from edge.config.credentials import Credential, own_path, read_credential
from edge.errors import ConfigError, LackingError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "edge-deploy" / "credentials"
    folder.mkdir(parents=True)
    return folder


def write(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)


def test_a_folder_for_settings_that_is_not_absolute_is_none(tmp_path, monkeypatch):
    """As the XDG base directory specification has it; from another folder the secret would be another one."""
    monkeypatch.setenv("HOME", str(tmp_path))

    monkeypatch.setenv("XDG_CONFIG_HOME", "here")

    assert own_path("broker") == tmp_path / ".config/edge-deploy/credentials/broker"


def test_a_colon_in_the_user_is_written_with_a_backslash(home):
    write(home / "broker", "vhost\\:me:pass\\:word\n")

    assert read_credential("broker") == Credential(user="vhost:me", password="pass\\:word")


def test_systemd_comes_first(home, tmp_path, monkeypatch):
    write(home / "broker", "me:old")
    write(tmp_path / "broker", "me:new", mode=0o644)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    assert read_credential("broker").password == "new"


def test_systemd_that_names_no_folder_does_not_mean_the_current_one(home, tmp_path, monkeypatch):
    write(home / "broker", "me:mine")
    write(tmp_path / "broker", "me:strange")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "")

    assert read_credential("broker").password == "mine"


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("me:secret", 0o644, "others can read"),
        ("secret", 0o600, "one line, user:password"),
        ("me\\:secret", 0o600, "one line, user:password"),
        ("me:secret\nmore", 0o600, "one line, user:password"),
        ("# camera\nme:secret", 0o600, "one line, user:password"),
    ],
)
def test_a_bad_file_is_refused_and_its_content_not_told(home, text, mode, expected):
    write(home / "broker", text, mode)

    with pytest.raises(ConfigError, match=expected) as caught:
        read_credential("broker")
    assert "secret" not in str(caught.value)


def test_the_command_that_shuts_a_file_can_be_typed_as_it_is(tmp_path, monkeypatch):
    own = tmp_path / "my config/edge-deploy/credentials/broker"
    own.parent.mkdir(parents=True)
    write(own, "me:secret", 0o644)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))

    with pytest.raises(LackingError, match=f"chmod 600 '{own}'"):
        read_credential("broker")


def test_a_file_in_another_encoding_is_to_be_saved_again(home):
    write(home / "broker", "")
    (home / "broker").write_bytes("me:secret".encode("utf-16"))

    with pytest.raises(ConfigError, match=f"{home}/broker is not UTF-8"):
        read_credential("broker")


def test_an_absent_name_says_what_to_do():
    with pytest.raises(LackingError, match="credential 'absent' is not here; write user:password to"):
        read_credential("absent")


@pytest.mark.parametrize("name", ["../secret", ".secret", "me:secret", "", "secret\n", "secret" * 50])
def test_what_is_no_name_may_be_the_secret_and_is_not_told(tmp_path, name):
    with pytest.raises(ConfigError, match="expected the name of a secret, not the secret itself") as caught:
        read_credential(name)
    assert not isinstance(caught.value, LackingError)
    assert "me:" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ["gate-east", "Gate_East.2", "gate@east", "gate east", "10-0-0-7"])
def test_names_of_files_are_names_of_secrets(home, name):
    write(home / name, "me:pw")

    assert read_credential(name).user == "me"


def test_the_password_is_not_in_the_repr():
    assert "hush" not in repr(Credential(user="me", password="hush"))


def test_on_a_device_it_says_where_a_device_keeps_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")

    with pytest.raises(ConfigError) as caught:
        read_credential("gate-east")
    assert caught.value.hint is not None
    assert "/etc/edge-deploy/credentials/gate-east" in caught.value.hint
    assert "edge-deploy provision" in caught.value.hint
    assert str(tmp_path) not in caught.value.hint
