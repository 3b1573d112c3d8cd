"""The commands that a push and the boot start: without any library, in no time, with typed errors."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge.device.switch import refuse
from edge.runtime.entry import COMMANDS
from tests.support.device_releases import attach_engine, make_device, put_on_trial, serving, stage

ROOT = Path(__file__).parents[3]

# -S leaves site-packages out, -I the environment; and what is not of the standard library or ours cannot be imported.
BARE = """
import sys
sys.path.insert(0, {root!r})
class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "edge" and top not in sys.stdlib_module_names:
            raise ImportError(name + " is not of the standard library")
sys.meta_path.insert(0, Only())
from edge.cli.edge_runtime import main
sys.argv[0] = "edge-runtime"
main()
"""


def bare(*arguments, expected=0):
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BARE.format(root=str(ROOT)), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def device(tmp_path):
    return make_device(tmp_path)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_nothing_and_shows_an_example(name):
    told = bare(name, "--help").stdout

    assert f"usage: edge-runtime {name}" in told
    assert f"  edge-runtime {name}" in told.split("examples:")[1]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "agent"])
def test_an_unknown_option_is_a_usage_error(name):
    assert f"usage: edge-runtime {name}" in bare(name, "--nonsense", expected=2).stderr


def test_facts_are_json(device):
    assert json.loads(bare("facts", "--root", device.layout.root).stdout)["name"] == "gate-01"


def test_facts_of_a_machine_that_is_no_device_are_a_typed_error(tmp_path):
    assert "(device.settings)" in bare("facts", "--root", tmp_path, expected=1).stderr


def test_health_ends_with_1_until_something_serves(device):
    path = device.layout.health
    assert "no health file" in bare("health", "--root", device.layout.root, expected=1).stderr

    path.parent.mkdir(parents=True, exist_ok=True)
    now = {"at_boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME)}
    values = {"release": "", "invocation": "1", "is_ready": True, "batches": 1, "infer_p95_ms": 2.5, "streams": {}}
    path.write_text(json.dumps({**values, **now, "age_p95_ms": None, "mqtt_connected": None, "mqtt_acknowledged": 0}))

    assert json.loads(bare("health", "--max-age", 60, "--root", device.layout.root).stdout)["batches"] == 1


def test_recovery_keeps_what_serves(device):
    release = serving(device)

    assert release in bare("recover", "--boot", "--root", device.layout.root).stderr


def test_recovery_of_a_device_that_was_never_pushed_to_is_no_error(device):
    assert "no release: nothing to do" in bare("recover", "--boot", "--root", device.layout.root).stderr


def test_a_trial_without_a_release_on_trial_ends_at_once(device):
    serving(device)

    bare("trial", "--root", device.layout.root)


@pytest.fixture
def refused(device):
    """An old release, and one whose trial has refused it: that has failed, whatever systemd of this machine says."""
    old = serving(device, sequence=1)
    new = stage(device, sequence=2)
    attach_engine(device, new)
    put_on_trial(device, new)
    refuse(device, "east gives no frames")
    return old, new


def test_a_rollback_of_a_trial_that_refused_goes_back(device, refused):
    old, _ = refused

    told = bare("rollback", "--reason", "unit-failed", "--root", device.layout.root).stderr

    assert device.releases.current() == old
    assert f"{old}: went back: east gives no frames" in told


def test_asking_whether_a_rollback_is_needed_changes_nothing(device, refused):
    state = device.layout.state.read_bytes()

    bare("rollback", "--reason", "unit-failed", "--is-needed", "--root", device.layout.root)

    assert (device.releases.current(), device.layout.state.read_bytes()) == (refused[1], state)


def test_a_rollback_without_anything_to_go_back_to_ends_with_9(device, refused):
    for release in refused:
        (device.layout.release(release) / "model.onnx").unlink()

    told = bare("rollback", "--reason", "unit-failed", "--root", device.layout.root, expected=9).stderr

    assert "(person.failed)" in told


def test_the_group_lists_them_and_starts_them_behind_its_own_options(device):
    def group(*arguments):
        command = [sys.executable, "-m", "edge.cli.edge_runtime", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ, check=True)

    told = group("--help").stdout
    assert all(f"  {name} " in told for name in COMMANDS)
    assert json.loads(group("-v", "facts", "--root", device.layout.root).stdout)["name"] == "gate-01"
