"""A command that is not there: the similar one, or the other program that has it."""

import click
import pytest
from click.testing import CliRunner

from edge.cli.commands.table import table
from edge.cli.commands.trust import trust
from edge.cli.edge_deploy import edge_deploy
from edge.cli.paths import Command, pipeline_argument
from edge.cli.runtime_commands import edge_runtime


@pytest.mark.parametrize(
    ("group", "program", "word", "meant"),
    [
        (edge_deploy, "edge-deploy", "calibrat", "edge-deploy calibrate"),
        (edge_deploy, "edge-deploy", "run", "edge-runtime run"),
        (edge_deploy, "edge-deploy", "bench", "edge-runtime bench"),
        (edge_deploy, "edge-deploy", "lint", "edge-deploy table lint"),
        (edge_deploy, "edge-deploy", "listn", "edge-deploy listen"),
        (edge_runtime, "edge-runtime", "push", "edge-deploy push"),
        (edge_runtime, "edge-runtime", "xyzzy", "edge-runtime --help"),
        (table, "edge-deploy table", "lnit", "edge-deploy table lint"),
        (trust, "edge-deploy trust", "xyzzy", "edge-deploy trust --help"),
        (edge_runtime, "edge-runtime", "rnu", "edge-runtime run"),
        (edge_deploy, "edge-deploy", "xyzzy", "edge-deploy --help"),
    ],
)
def test_the_command_that_is_meant_is_named(group, program, word, meant):
    ended = CliRunner().invoke(group, [word], prog_name=program)

    assert ended.exit_code == 2
    assert ended.output.splitlines()[-1].endswith(meant)


@pytest.mark.parametrize(("group", "other"), [(edge_deploy, "edge-runtime"), (edge_runtime, "edge-deploy")])
def test_the_help_of_either_program_is_one_screen_and_names_the_other(group, other):
    shown = CliRunner().invoke(group, ["--help"], terminal_width=80).output.splitlines()

    assert 24 <= len(shown) <= 40
    assert max(map(len, shown)) <= 80
    assert shown[-1].endswith(f"{other} --help")


@click.command(cls=Command)
@pipeline_argument("The pipeline file.")
def show(path):
    click.echo("none" if path is None else path)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["p.yaml"], 0), (["--pipeline", "p.yaml"], 0), ([], 0), (["p.yaml", "--pipeline", "p.yaml"], 2)],
)
def test_a_pipeline_is_an_argument_or_an_option_but_not_both(tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)

    ended = CliRunner().invoke(show, words)

    assert ended.exit_code == code
    assert code or ended.output.strip() == ("p.yaml" if words else "none")
