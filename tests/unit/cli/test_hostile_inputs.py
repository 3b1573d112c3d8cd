"""The table of hostile inputs, each row as it is typed, in this process: exit code, message, and nothing left."""

import sys

import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.run_command import exit_code_of
from edge.cli.runtime_commands import edge_runtime
from tests.hostile.files import make_files
from tests.hostile.rows import rows
from tests.support.command_line import command

PROGRAMS = {"edge-deploy": edge_deploy, "edge-runtime": edge_runtime}
ROWS = list(rows())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("hostile")
    make_files(made)
    return made


def test_a_ring_that_would_wait_for_itself_is_refused_before_the_registry_is_asked():
    refused = command("edge-deploy", "promote", "a.b/gates:1", "all", "--when", "9% of all", expected=2)
    assert "name the ring before it" in refused.stderr


def contents(folder):
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("typed", "code", "words"), ROWS, ids=[typed for typed, _, _ in ROWS])
@pytest.mark.promised(reason="errors say what to do; one row waits for a scheduler that is not there")
def test_a_hostile_input_is_refused_in_words(folder, monkeypatch, capfd, typed, code, words):
    program, *arguments = typed.split()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    before = contents(folder)

    found = exit_code_of(PROGRAMS[program], is_service=False)

    told = capfd.readouterr().err
    assert (found, words in told) == (code, True), told
    assert "internal error" not in told
    assert "Traceback" not in told
    assert contents(folder) == before
