"""Builds of one engine that meet: two at once, and one that was killed on its last step."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet

import pytest

from edge.device.engines import read_record
from edge.runtime.build.engine import make_in_workshop
from edge.runtime.trial.soundness import problem_of_release
from tests.support.raised import code_of
from tests.support.runs import build_for_release, builder, engine_folders
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_two_builds_of_one_engine_are_made_one_after_the_other", reason="further services over real models"
)

# A worker that says that it has begun, and begins when it is told to.
GATED = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from edge.runtime.build.worker import main\n"
    "Path({begun!r}).touch()\n"
    "while not Path({go!r}).exists():\n"
    "    time.sleep(0.01)\n"
    "sys.exit(main(sys.argv[1]))"
)


def test_two_builds_of_one_engine_are_made_one_after_the_other(device, release, tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make_in_workshop, builder(device, GATED.format(begun=str(begun), go=str(go))), release)
        wait_until(begun.exists, what="the first build has begun")
        second = pool.submit(build_for_release, builder(device), release)
        with pytest.raises(NotYet):
            second.result(timeout=3)
        go.touch()
        built = [first.result(timeout=120), second.result(timeout=120)]

    assert engine_folders(device) == [built[0].key] == [built[1].key]
    assert problem_of_release(device, release) is None


@pytest.mark.parametrize("ends", ["deadline", "stop"])
def test_a_build_that_waits_for_another_one_ends_at_its_deadline_and_when_it_is_told_to(
    device, release, tmp_path, ends
):
    begun, go, stop = tmp_path / "begun", tmp_path / "go", threading.Event()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(build_for_release, builder(device, GATED.format(begun=str(begun), go=str(go))), release)
        wait_until(begun.exists, what="the first build has begun")
        if ends == "stop":
            stop.set()
        code = code_of(make_in_workshop, builder(device, deadline_s=0.5, stop=stop), release)
        go.touch()
        assert not first.result(timeout=120).reused

    assert code == {"deadline": "build.timeout", "stop": "build.stopped"}[ends]
    assert problem_of_release(device, release) is None


KILLED = """
import os, signal, sys
from pathlib import Path
from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.durable import Files
from tests.support.runs import build_for_release, builder

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

Files.{call} = die
build_for_release(builder(Device(Layout(Path(sys.argv[1])))), sys.argv[2])
"""


@pytest.mark.parametrize("call", ["rename", "symlink"])
def test_a_builder_that_is_killed_on_its_last_step_leaves_nothing_that_counts_and_the_next_one_builds(
    device, release, call
):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED.format(call=call), str(device.layout.root), release], check=False, timeout=120
    )

    assert ran.returncode == -signal.SIGKILL
    assert device.releases.engine_key(release) is None
    assert problem_of_release(device, release).code == "device.engine.missing"
    left = engine_folders(device)
    assert len(left) == 1
    assert left[0].startswith(".") == (call == "rename")

    built = build_for_release(builder(device), release)

    assert built.reused == (call == "symlink")  # that one was whole, and proven
    assert engine_folders(device) == [built.key]
    assert read_record(device.engines, built.key).plan_bytes > 0
    assert problem_of_release(device, release) is None
