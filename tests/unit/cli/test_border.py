"""What both commands do at their edges: a standard output that takes nothing, and -v wherever it stands."""

import logging
import subprocess
import sys

import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.runtime_commands import edge_runtime
from edge.errors import EdgeError
from edge.runtime import entry
from tests.support import models

FULL = "error: standard output cannot be written: No space left on device; redirect it to where there is room\n"


def started(module, *words, stdout):
    return subprocess.run(
        [sys.executable, "-m", f"edge.cli.{module}", *map(str, words)],
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("edge_deploy", ["--version"]),
        ("edge_deploy", ["calibrate", "--help"]),
        ("edge_deploy", ["inspect", "MODEL"]),
        ("edge_deploy", ["inspect", "MODEL", "--json"]),
        ("edge_runtime", ["doctor", "--json"]),
    ],
    ids=str,
)
def test_a_full_standard_output_is_said_in_one_line(tmp_path, module, words):
    model = models.yolov8(tmp_path / "m.onnx")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = started(module, *[model if word == "MODEL" else word for word in words], stdout=full)

    assert (done.returncode, done.stderr) == (2, FULL)


def test_so_it_is_by_the_light_commands():
    code = (
        "import sys; from edge.runtime import entry\n"
        "entry.COMMANDS = {'facts': ('', lambda words: entry.write_stdout('x'))}; sys.exit(entry.main('facts', []))"
    )
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, FULL)


def test_a_reader_that_goes_is_no_error(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m edge.cli.edge_deploy calibrate --help | head -c 1",
        shell=True, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("U", "")


@pytest.mark.parametrize("group", [edge_deploy, edge_runtime], ids=["edge-deploy", "edge-runtime"])
@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("{0} x", logging.WARNING),
        ("-v {0} x", logging.INFO),
        ("{0} -v x", logging.INFO),
        ("-vv {0} x", logging.DEBUG),
        ("-v {0} -vv x", logging.DEBUG),
        ("-vv {0} -v x", logging.DEBUG),
    ],
)
def test_v_counts_before_the_subcommand_too(tmp_path, group, words, level):
    command, place = ("table show", "") if group is edge_deploy else ("bench", "--pipeline=")
    with pytest.raises(EdgeError):
        group.main(words.format(command).replace(" x", f" {place}{tmp_path}/x").split(), standalone_mode=False)

    assert logging.getLogger("edge").level == level


def test_v_counts_between_a_group_and_its_subcommand(tmp_path):
    with pytest.raises(EdgeError):
        edge_deploy.main(["table", "-v", "show", str(tmp_path / "x")], standalone_mode=False)

    assert logging.getLogger("edge").level == logging.INFO


@pytest.mark.parametrize("name", entry.COMMANDS)
def test_each_light_command_is_there_behind_a_v(name, monkeypatch):
    called = []
    monkeypatch.setattr("edge.cli.commands.light.main", lambda *words: called.append(words))
    edge_runtime.main(["-v", name, "--root", "x"], standalone_mode=False)

    assert called == [(name, ("--root", "x"))]
