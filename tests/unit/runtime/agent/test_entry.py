"""The agent as a command: frames on its stdin and stdout and nothing else there, as the user whose state it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.runtime.entry import main
from edge.transport.channel import Message, encode_frame
from tests.support.people import ids, needs_root

REPOSITORY = Path(__file__).parents[4]
AGENT = """
import os, pathlib, sys
from edge.runtime.agent.serve import main
main(pathlib.Path(sys.argv[1]), is_for_pull=False, units=object())
print("uid", os.geteuid(), file=sys.stderr)
"""
CARELESS = """
import os
from edge.runtime.agent.serve import own_stdio
from edge.transport.channel import Message
channel = own_stdio()
print("prose", flush=True)
channel.send(Message("read", {"by others": os.read(0, 100).decode()}))
"""


def run(program, *arguments, stdin=b""):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        command, input=stdin, capture_output=True, cwd=REPOSITORY, env=environment, timeout=60, check=True
    )


def test_a_wrong_command_line_is_told_how_it_is_used(capfd):
    with pytest.raises(SystemExit) as ended:
        main("agent", ["--for-push"])
    out, err = capfd.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("usage: edge-runtime agent ")


def test_a_client_is_greeted_and_its_end_is_that_of_the_agent(root):
    done = run(AGENT, root.root)
    assert b'"verb":"hello"' in done.stdout
    assert done.stderr.startswith(b"uid ")


def test_what_others_print_is_no_frame_and_they_read_none():
    done = run(CARELESS, stdin=b"a frame")
    assert done.stdout == encode_frame(Message("read", {"by others": ""}))
    assert done.stderr == b"prose\n"


@needs_root
def test_run_by_root_it_is_the_user_to_whom_the_state_belongs(root):
    uid, gid = ids()
    for path in (root.layout.var, root.layout.run):
        os.chown(path, uid, gid)

    assert run(AGENT, root.root).stderr.split()[-1] == str(uid).encode()
