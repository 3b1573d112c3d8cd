"""What both commands do at their edges: a standard output that takes nothing, and -v wherever it stands."""

import errno
import logging
import os
import signal
import subprocess
import sys

import click
import pytest

from edge.cli.edge_deploy import edge_deploy
from edge.cli.lazy import LazyCommand, LazyGroup
from edge.cli.run_command import run_command
from edge.cli.runtime_commands import edge_runtime
from edge.errors import DeployError, EdgeError, MissingDependencyError
from tests.support import models
from tests.support.command_line import command
from tests.support.systemd import NotifySocket
from tests.support.wait import wait_until

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


def test_a_full_standard_error_costs_no_result(tmp_path):
    model = models.yolov8(tmp_path / "m.onnx")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edge.cli.edge_deploy", "roofline", model, "--machine", "agx-orin-64gb"],
            stdout=subprocess.PIPE, stderr=full, text=True, timeout=60, check=False,
        )  # fmt: skip

    assert done.returncode == 0
    assert "GB/s" in done.stdout


def test_a_line_is_said_once_where_ctrl_c_comes_while_it_is_written():
    code = (
        "import sys; import click; from edge.stdout import lenient_stderr\n"
        "def interrupt(frame, event, arg):\n"
        "    if event == 'return' and frame.f_code.co_name == 'write' and frame.f_locals['data']:\n"
        "        sys.settrace(None); raise KeyboardInterrupt\n"
        "    return interrupt\n"
        "lenient_stderr()\n"
        "try: sys.settrace(interrupt); click.echo('looking', err=True)\n"
        "except KeyboardInterrupt: click.echo('interrupted', err=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr.split()) == (0, ["looking", "interrupted"])


def test_a_path_that_the_user_may_not_enter_is_told_as_one(tmp_path):
    done = command("edge-deploy", "evaluate", models.yolov8(tmp_path / "m.onnx"), "--images", f"/{'a' * 300}",
                   "--labels", "x", expected=2)  # fmt: skip

    assert f"/{'a' * 300}: File name too long" in done.stderr


@pytest.mark.parametrize(
    "words",
    [["calibrate", "--help"], ["inspect", "MODEL"], ["table", "show", "calib_cache/traffic.calib.json"]],
    ids=str,
)
def test_a_reader_that_goes_is_no_error(tmp_path, words):
    model = models.yolov8(tmp_path / "m.onnx")
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as gone:
        done = started("edge_deploy", *[model if word == "MODEL" else word for word in words], stdout=gone)

    assert (done.returncode, done.stderr) == (0, "")


@click.command()
def broken():
    raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_pipe_that_breaks_elsewhere_is_an_error(ended):
    group = LazyGroup(
        "edge-deploy",
        lazy={"broken": LazyCommand(__name__, "broken", "")},
        other=LazyCommand("edge.cli.runtime_commands", "edge_runtime", "edge-runtime"),
    )

    code, said = ended(group, "broken")
    assert code == 1
    assert "BrokenPipeError" in said


ENDED = """
import sys, time, click
from edge.cli.run_command import run_command
@click.command()
def waits():
    print("waits", flush=True)
    time.sleep(600)
sys.argv = ["waits"]
run_command(waits, is_service={is_service})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_service", [False, True])
def test_a_time_limit_or_a_closed_terminal_ends_a_command_as_ctrl_c_does(number, is_service):
    # Not as nohup leaves them to what it starts, such as these tests.
    words = ["env", "--default-signal=HUP,TERM", sys.executable, "-c", ENDED.format(is_service=is_service)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(number)
        told = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, told.strip()) == ((-number, "") if is_service else (130, "interrupted"))


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- <&- 2>&-"])
def test_a_descriptor_that_was_closed_at_the_start_is_no_error(tmp_path, closed):
    model = models.yolov8(tmp_path / "m.onnx")
    done = subprocess.run(
        f"{sys.executable} -m edge.cli.edge_deploy inspect {model} {closed}",
        shell=True, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_file_says_cannot_move_the_cursor(tmp_path):
    names = ["\x1b[31mred\x1b]0;title\x07", "a\nb", "c\rd"]
    path = models.yolov8(tmp_path / "m.onnx", metadata={"names": repr(names)})
    (shown,) = [
        line for line in command("edge-deploy", "inspect", path).stdout.splitlines() if line.startswith("labels")
    ]

    assert shown.isprintable()
    assert shown.endswith("3: ?[31mred?]0;title?, a b, c d")


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


def test_a_service_that_ends_by_an_error_tells_systemd_which(tmp_path, monkeypatch):
    with NotifySocket(tmp_path / "notify") as systemd:
        for name, value in systemd.environ.items():
            monkeypatch.setenv(name, value)
        absent = tmp_path / "absent.yaml"
        command("edge-runtime", "run", "--pipeline", absent, expected=2)
        wait_until(lambda: any(line.startswith("STATUS=error: ") for line in systemd.lines), what="the error")
    assert str(absent) in systemd.lines[-1]


@pytest.fixture
def ended(capsys, monkeypatch):
    """Run a command to the end of its process; return its exit code, and what it has said."""

    def ended(command, *words):
        monkeypatch.setattr(sys, "argv", ["edge-deploy", *words])
        monkeypatch.setattr("edge.cli.run_command.end_as_interrupted", lambda: None)  # of the process of the tests
        with pytest.raises(SystemExit) as found:
            run_command(command)
        return found.value.code, capsys.readouterr().err

    return ended


def test_ctrl_c_while_a_library_is_imported_is_no_missing_library(ended):
    """An extension module whose import is interrupted raises ImportError from KeyboardInterrupt."""

    @click.command()
    def interrupted():
        try:
            raise ImportError("initialization failed") from KeyboardInterrupt()
        except ImportError as error:
            raise MissingDependencyError("a library is not importable", hint="pip install it") from error

    code, said = ended(interrupted)
    assert (code, "not importable" in said) == (130, False)


def test_a_library_that_stumbles_while_ctrl_c_ends_it_is_no_internal_error(ended):
    """Dask closes what it has not opened yet."""

    @click.command()
    def interrupted():
        try:
            raise KeyboardInterrupt
        finally:
            None.cancel()

    assert ended(interrupted) == (130, "interrupted\n")


def test_errors_that_are_each_other_s_cause_are_told(ended):
    @click.command()
    def circular():
        first, second = EdgeError("the first"), EdgeError("the second")
        first.__cause__, second.__cause__ = second, first
        raise first

    code, said = ended(circular)
    assert code not in (0, 130)
    assert "the first" in said


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)])
def test_a_full_disk_says_what_to_do(ended, number, says):
    @click.command()
    def writes():
        raise OSError(number, os.strerror(number), "/tmp/edge-demo-x/labels/camera-4-110.txt")

    code, said = ended(writes)
    assert (code, "camera-4-110.txt" in said) == (2, True)
    assert ("make room" in said, "TMPDIR" in said) == (says, says)


def test_numbers_of_a_device_s_error_stand_below_it_one_in_a_line(ended):
    @click.command()
    def refused():
        evidence = {"path": "m\x1b[2J.onnx", "missing": ["nvv4l2decoder"], "free\x07": 3}
        raise DeployError("preflight.disk", "no room", hint="remove files", evidence=evidence)

    first, *numbers = ended(refused)[1].splitlines()
    assert "no room" in first
    assert first.endswith("(preflight.disk)")
    assert numbers == [r'  path: "m\u001b[2J.onnx"', '  missing: ["nvv4l2decoder"]', r"  free\u0007: 3"]
