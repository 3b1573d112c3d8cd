"""Releases that bring the software that builds, serves and answers for them: each unit's own command, as a process."""

import json
import subprocess
from pathlib import Path

import pytest

from edge.device.engines import read_record
from edge.device.health import read_health
from edge.device.software import Installation
from edge.runtime.software.binding import installed
from tests.support.deployable import real_bundle
from tests.support.real_units import COMMAND, REPOSITORY, SOFTWARE_IS_ENDING, RealUnits
from tests.support.wheels import NEXT, broken, key_of, own_with, software_files

pytestmark = pytest.mark.slow_but(
    "test_a_release_is_built_and_served_by_what_it_brings_and_the_next_by_what_that_brings",
    reason="further pushes over real agents",
)


class Shop:
    """Makes releases of one pipeline, which differ in the software that they bring, and pushes them."""

    def __init__(self, device, push):
        self.device, self.push, self.sequence = device, push, 0

    def release(self, changes=None, *, seed=0):
        self.sequence += 1
        software = {} if changes is None else software_files(own_with({**NEXT, **changes}))
        limits = {"hold_s": 2.0, "deadline_s": 20.0}
        bundle = real_bundle(self.device, sequence=self.sequence, seed=seed, software=software, **limits)
        return bundle, key_of(software) if software else None


@pytest.fixture
def shop(device, push_real):
    return Shop(device, push_real)


def serving_command(device):
    """Return the words of the process that serves."""
    pid = json.loads((device.root / "unit.json").read_text())["pid"]
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def installed_by(device, key):
    return str(device.layout.software / Installation(key=key, beside=installed()).name / "edge-runtime")


def builder_of(device, bundle):
    """Return the version of the edge-deploy that has built the engine of a release."""
    return read_record(device.device.engines, device.device.releases.engine_key(bundle.manifest.release)).software


def test_a_release_is_built_and_served_by_what_it_brings_and_the_next_by_what_that_brings(shop, device):
    first, _ = shop.release()
    assert (outcome := shop.push(first)).result == "committed", outcome
    second, key = shop.release({}, seed=1)

    outcome = shop.push(second)

    assert outcome.result == "committed", outcome
    assert installed_by(device, key) in serving_command(device)
    assert read_health(device.layout.health).release == second.manifest.release
    assert builder_of(device, second) == "0.2.0"
    third, _ = shop.release(seed=3)  # brings none
    assert (outcome := shop.push(third)).result == "committed", outcome
    change = (
        f"it will be run by what provision has installed (0.1.0); what serves is run by software 0.1.0 ({key[:12]})"
    )
    assert [event for event in device.events if change in str(event)]
    assert not [word for word in serving_command(device) if "edge-software" in word]
    assert builder_of(device, third) == "0.1.0"


def test_a_release_that_comes_while_edge_software_is_ending_is_built_all_the_same(shop, device):
    release, key = shop.release({})
    (device.root / SOFTWARE_IS_ENDING).touch()

    outcome = shop.push(release)

    assert outcome.result == "committed", outcome
    assert not (device.root / SOFTWARE_IS_ENDING).exists()
    assert installed_by(device, key) in serving_command(device)


def test_the_same_release_again_brings_its_software_back(shop, device):
    release, key = shop.release({})
    assert (outcome := shop.push(release)).result == "committed", outcome
    device.device.software.remove(Installation(key=key, beside=installed()).name)

    outcome = shop.push(release)

    assert outcome.exit_code == 0, outcome
    assert Path(installed_by(device, key)).exists(), outcome


@pytest.mark.parametrize(
    ("what", "exit_code", "code", "told"),
    [
        ("edge/runtime/serve/engine.py", 8, "trial.refused", ""),
        ("edge/runtime/build/worker.py", 7, "build.failed", "this worker is broken"),
        ("edge/runtime/serve/parts.py", 7, "build.software", "it cannot be imported (ImportError: this software"),
    ],
    ids=["cannot-serve", "cannot-build", "cannot-start"],
)
def test_software_that_is_broken_is_left_and_the_release_before_serves_with_its_own(
    shop, device, what, exit_code, code, told
):
    first, good = shop.release({})
    assert (outcome := shop.push(first)).result == "committed", outcome
    bad, _ = shop.release({what: broken(what)})  # of the same model: its engine is here, and its frames were passed

    outcome = shop.push(bad)

    assert (outcome.exit_code, outcome.code) == (exit_code, code), outcome
    assert told in outcome.problem, outcome
    assert device.device.releases.current() == first.manifest.release
    assert installed_by(device, good) in serving_command(device)
    assert read_health(device.layout.health).release == first.manifest.release


def test_software_whose_agent_is_broken_serves_and_the_device_takes_the_next_release(shop, device):
    deaf, key = shop.release({"edge/runtime/agent/serve.py": broken("edge/runtime/agent/serve.py")})

    outcome = shop.push(deaf)

    assert outcome.result == "committed", outcome
    assert installed_by(device, key) in serving_command(device)
    after, good = shop.release({}, seed=1)
    assert (outcome := shop.push(after)).result == "committed", outcome
    assert installed_by(device, good) in serving_command(device)


def test_software_that_was_lost_is_installed_again_on_the_way_back(shop, device):
    from edge.device.facts import this_moment
    from edge.device.units import BUILD_UNIT, RUNTIME_UNIT
    from edge.runtime.build.handover import take_over
    from edge.runtime.trial.rollback import go_back

    release, key = shop.release({})
    assert (outcome := shop.push(release)).result == "committed", outcome
    units = RealUnits(device.root)
    units.stop()
    device.device.software.remove(Installation(key=key, beside=installed()).name)
    done = subprocess.run(
        [*COMMAND, "run", "--release", str(device.layout.current)],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "INVOCATION_ID": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78
    assert f"software 0.1.0 ({key[:12]}) is not here (device.software.missing)" in done.stderr

    way = go_back(device.device, units, "unit-failed", moment=this_moment())
    units.start(BUILD_UNIT, wait=True, timeout_s=120)
    take_over(device.device)
    units.restart(RUNTIME_UNIT)

    assert way.release == release.manifest.release
    assert installed_by(device, key) in serving_command(device)
    units.stop()
