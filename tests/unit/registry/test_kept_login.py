"""Logins as docker and podman keep them, with helpers that are there, are not, or fail."""

import json
import os

import pytest

from edge.deploy.publish import kept_login
from edge.errors import DeployError
from edge.registry.login import Login
from edge.registry.reference import Reference
from tests.support.raised import error_of

HERE = Reference("registry.example", "farms/gates", "stable-all")
EDGE, OPS = "ZWRnZTpzZWNyZXQ=", "b3BzOnNlY3JldA=="  # edge:secret, ops:secret
FOUND = Login("edge", "secret")
ASKS = {"credHelpers": {"registry.example": "lab"}}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home without logins, a folder of helpers before all others, and what writes docker's file."""
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    (tmp_path / ".docker").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path


def write(home, told) -> None:
    (home / ".docker/config.json").write_text(told if isinstance(told, str) else json.dumps(told))


def helper(home, script: str) -> None:
    path = home / "bin/docker-credential-lab"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("auths", "expected"),
    [
        ({"registry.example": {"auth": EDGE}}, FOUND),
        ({"registry.example/farms": {"auth": EDGE}, "registry.example": {"auth": OPS}}, FOUND),
        ({"registry.example/farms/gates": {"auth": EDGE}, "registry.example/farms": {"auth": OPS}}, FOUND),
        ({"registry.example/farm": {"auth": OPS}, "https://registry.example/v1/": {"auth": EDGE}}, FOUND),
        ({"registry.example:5000": {"auth": OPS}, "example": {"auth": OPS}}, None),
        ({"registry.example": {}}, None),
        ({}, None),
    ],
)
def test_the_nearest_login_counts(home, auths, expected):
    write(home, {"auths": auths})

    assert kept_login(HERE) == expected


def test_podman_s_file_is_looked_into_first_and_not_mixed_with_docker_s(home):
    (home / ".config/containers").mkdir(parents=True)
    (home / ".config/containers/auth.json").write_text(json.dumps({"auths": {"registry.example": {"auth": EDGE}}}))
    write(home, {"auths": {"registry.example/farms/gates": {"auth": OPS}}})

    assert kept_login(HERE) == FOUND


@pytest.mark.parametrize("where", [ASKS, {"credsStore": "lab"}])
def test_a_helper_is_asked_for_the_host(home, where):
    helper(home, """read host; echo "{\\"Username\\": \\"$host\\", \\"Secret\\": \\"s\\"}" """)
    write(home, where)

    assert kept_login(HERE) == Login("registry.example", "s")


def test_a_store_that_has_nothing_or_is_not_there_is_none(home):
    write(home, {"credsStore": "absent"})
    assert kept_login(HERE) is None
    helper(home, "echo credentials not found in native keychain; exit 1")
    write(home, {"credsStore": "lab", "auths": {"registry.example": {}}})
    assert kept_login(HERE) is None


@pytest.mark.parametrize(
    ("told", "script", "said"),
    [
        ({"credHelpers": {"registry.example": "absent"}}, "", "docker-credential-absent: No such file"),
        ({"credsStore": "absent", "auths": {"registry.example": {}}}, "", "docker-credential-absent: No such file"),
        (ASKS, "echo secret >&2; exit 3", "docker-credential-lab has failed (3)"),
        (ASKS, "echo secret", "gives no user and password"),
        (ASKS, "exec sleep 600", "has not answered within 1 s"),
        ({"credHelpers": {"registry.example": ["lab"]}}, "", "No such file"),
        ({"auths": {"registry.example": {"auth": "secret%"}}}, "", "is not user:password in base64"),
        ({"auths": {"registry.example": {"auth": 5}}}, "", "is not user:password in base64"),
        ({"auths": ["secret"]}, "", "expected objects under auths"),
        ("secret", "", "it is no JSON object"),
        ("[" * 100_000, "", "it is no JSON object"),
    ],
)
def test_what_is_no_login_is_named_without_what_is_in_it(home, monkeypatch, told, script, said):
    monkeypatch.setattr("edge.deploy.publish._HELPER_S", 1.0)
    helper(home, script)
    write(home, told)

    error = error_of(kept_login, HERE)

    assert error.code == "registry.login"
    assert said in error.problem
    assert "config.json" in error.problem
    assert "secret" not in str(error)


def test_a_fifo_in_the_place_of_a_file_is_no_wait(home):
    os.mkfifo(home / ".docker/config.json")

    with pytest.raises(DeployError, match="got a FIFO"):
        kept_login(HERE)


@pytest.mark.parametrize("name", ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"])
def test_a_variable_that_is_set_but_empty_names_no_folder(home, monkeypatch, name):
    """Neither docker nor podman take it for the folder that a person happens to stand in."""
    write(home, {"auths": {"registry.example": {"auth": EDGE}}})
    (home / "here/containers").mkdir(parents=True)
    for other in ("config.json", "containers/auth.json"):
        (home / "here" / other).write_text(json.dumps({"auths": {"registry.example": {"auth": OPS}}}))
    monkeypatch.chdir(home / "here")
    monkeypatch.setenv(name, "")

    assert kept_login(HERE) == FOUND
