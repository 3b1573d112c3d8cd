"""References, logins and settings, as people write them."""

import pytest

from edge.errors import DeployError
from edge.registry.login import read_challenge, read_login
from edge.registry.pull_settings import PullSettings, decode_pull_settings, encode_pull_settings
from edge.registry.reference import Reference, parse_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("registry.example/farms/gates", Reference("registry.example", "farms/gates")),
        ("registry.example/gates:stable-all", Reference("registry.example", "gates", "stable-all")),
        ("10.0.0.7:5000/a/b__c/d-e.f:X_1", Reference("10.0.0.7:5000", "a/b__c/d-e.f", "X_1")),
        ("localhost/gates", Reference("localhost", "gates")),
        ("[fe80::1]:5000/gates", Reference("[fe80::1]:5000", "gates")),
    ],
)
def test_a_reference_is_read_and_written_alike(text, expected):
    assert parse_reference(text, where="here") == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "gates", "gates:tag", "registry.example", "registry.example/", "registry.example/Gates"),
        *("https://registry.example/gates", "registry.example/gates:", "registry.example/gates:a/b", "farms/gates"),
        *("registry.example/gates@sha256:00", "registry.example//gates", "registry.example/../gates", "-a.b/gates"),
        *("registry.example/gates:" + "t" * 129, "registry.example/" + "g" * 256, "a.b/gates\n", "user@a.b/gates"),
    ],
)
def test_what_names_no_artifact_is_refused_with_what_was_given(text):
    with pytest.raises(DeployError) as failed:
        parse_reference(text, where="pull.toml:1")

    assert failed.value.code == "request.registry"
    assert "pull.toml:1" in str(failed.value)


def test_a_challenge_is_read():
    bearer = read_challenge('Bearer realm="https://auth.example/token",service="r",scope="repository:a/b:pull"')

    assert bearer is not None
    assert bearer.url == "https://auth.example/token?service=r&scope=repository%3Aa%2Fb%3Apull"
    assert read_challenge('Basic realm="x"').is_bearer is False
    assert read_challenge("Negotiate") is None
    assert read_challenge("") is None


def test_a_login_is_read_and_never_shown(tmp_path):
    (tmp_path / "login").write_text("edge:pass:word\n")

    login = read_login(tmp_path / "login")

    assert (login.user, login.password) == ("edge", "pass:word")
    assert "pass:word" not in repr(login)
    assert login.header == "Basic ZWRnZTpwYXNzOndvcmQ="


@pytest.mark.parametrize("content", [b"", b"edge", b"edge:", b":secret", b"edge:secret\nmore", b"\xff:\xff", None])
def test_a_login_that_is_none_is_refused_without_its_content(tmp_path, content):
    if content is not None:
        (tmp_path / "login").write_bytes(content)

    with pytest.raises(DeployError) as failed:
        read_login(tmp_path / "login")

    assert failed.value.code == "registry.login"
    assert "secret" not in str(failed.value)


def test_settings_are_written_and_read_alike():
    settings = PullSettings(repository="registry.example/farms/gates", channel="stable", ring="canary")

    assert decode_pull_settings(encode_pull_settings(settings), origin="x") == settings
    assert str(settings.reference) == "registry.example/farms/gates:stable-canary"
    assert decode_pull_settings('# a\n\nrepository = "a.b/c"  # d\n', origin="x") == PullSettings(repository="a.b/c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "repository is missing"),
        ('repository = "a.b/c"\nrepository = "a.b/c"', "x:2: repository is stated twice"),
        ('repository = "a.b/c"\ncolour = "red"', "x:2: colour is not known"),
        ("repository = a.b/c", 'x:1: expected key = "text"'),
        ('repository = "a.b/c"\nring = "ALL"', "ring: expected a-z"),
        ('repository = "a.b/c:tag"', "expected no tag"),
        ('repository = "nothing"', "names no artifact"),
    ],
)
def test_settings_that_are_none_are_named_by_line(text, said):
    with pytest.raises(DeployError) as failed:
        decode_pull_settings(text, origin="x")

    assert said in str(failed.value)
