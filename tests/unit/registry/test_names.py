"""References, logins and settings, as people write them."""

from pathlib import Path

import pytest

from edge.errors import DeployError
from edge.registry.client import tags_in
from edge.registry.login import Login, read_challenge, read_login
from edge.registry.reference import PullSettings, Reference, decode_pull_settings, encode_pull_settings, parse_reference
from tests.support.raised import error_of


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
        *("registry.example/gates:" + "t" * 129, "registry.example/" + "g" * 256, "a.b/gates\n", "me:hush@a.b/gates"),
        *("https://me:hush@a.b/gates", "me:hush@gates"),
    ],
)
def test_what_names_no_artifact_is_refused_with_what_was_given(text):
    error = error_of(parse_reference, text, where="pull.toml:1")

    assert error.code == "request.registry"
    assert "pull.toml:1" in str(error)
    assert "hush" not in str(error)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"tags": "text"}', b'{"tags": {"a": 1}}', b'{"tags": ["a", 5]}', b"{}"]
)
def test_what_is_no_list_of_tags_is_named_by_its_place(content):
    with pytest.raises(DeployError, match=r"^here: ") as failed:
        tags_in(content, where="here")
    assert failed.value.code == "registry.answer"
    assert tags_in(b'{"tags": null}', where="here") == []


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
    (tmp_path / "login").write_text("edge:pass:word\nrealm=auth.example:8443\n")
    assert read_login(tmp_path / "login") == Login("edge", "pass:word", "auth.example:8443")


@pytest.mark.parametrize(
    ("realm", "url", "is_sent"),
    [
        (None, "https://registry.example/token", True),
        (None, "https://Registry.Example:5001/token", True),  # another port of the same machine
        (None, "https://auth.example/token", False),
        (None, "https://registry.example.evil/token", False),
        ("auth.example", "https://auth.example:443/token", True),
        ("auth.example", "https://auth.example:8443/token", False),
        ("auth.example", "https://registry.example/token", False),
    ],
)
def test_a_login_goes_to_the_realm_that_it_was_stored_for(realm, url, is_sent):
    login = Login("edge", "secret", realm)

    if is_sent:
        assert login.header_for(url, "registry.example:5000") == login.header
        return
    error = error_of(login.header_for, url, "registry.example:5000")
    assert error.code == "registry.login"
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"edge",
        b"edge:",
        b":secret",
        b"edge:secret\nmore",
        b"edge:secret\nrealm=a/b",
        b"edge:secret\nrealm=a\nmore",
        b"edge:se\x00cret",
        b"\xff:\xff",
        None,
    ],
)
def test_a_login_that_is_none_is_refused_without_its_content(tmp_path, content):
    if content is not None:
        (tmp_path / "login").write_bytes(content)

    error = error_of(read_login, tmp_path / "login")

    assert error.code == "registry.login"
    assert "secret" not in str(error)


def test_a_login_in_the_place_of_its_file_is_not_told(tmp_path):
    assert "hush" not in str(error_of(read_login, Path("me:hu/hush")))


def test_settings_are_written_and_read_alike():
    settings = PullSettings(repository="registry.example/farms/gates", channel="stable", ring="canary")

    assert decode_pull_settings(encode_pull_settings(settings), origin="x") == settings
    assert str(settings.reference) == "registry.example/farms/gates:stable-canary"
    alone = PullSettings(repository="a.b/c", authorities="registry-ca")
    assert decode_pull_settings(encode_pull_settings(alone), origin="x") == alone
    assert decode_pull_settings('# a\n\nrepository = "a.b/c"  # d\n', origin="x") == PullSettings(repository="a.b/c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x: repository: expected a text"),
        ('repository = "a.b/c"\nrepository = "a.b/c"', "x:2: repository is stated twice"),
        ('repository = "a.b/c"\ncolour = "red"', "x:2: unknown key 'colour'"),
        ("repository = a.b/c", 'x:1: expected a number, a text in "'),
        ('repository = "a.b/c"\nring = "ALL"', "x:2: ring: expected a-z"),
        ('repository = "a.b/c:tag"', "expected no tag"),
        ('repository = "nothing"', "names no artifact"),
        ('repository = "a.b/c"\nauthorities = "none"', "authorities: expected system or"),
    ],
)
def test_settings_that_are_none_are_named_by_line(text, said):
    error = error_of(decode_pull_settings, text, origin="x")

    assert said in str(error)
