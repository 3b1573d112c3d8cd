"""Releases that bring the software that builds, serves and answers for them: each unit's own command, as a process."""

import json
import subprocess
from pathlib import Path

import pytest

from edge.bundle.manifest import GoldenFrames, HealthLimits, Role
from edge.device.engines import read_record
from edge.device.health import read_health
from edge.device.software import Installation
from edge.model.inspect import inspect_model
from edge.runtime.software.binding import installed
from edge.transport.pipe import LocalChannel
from tests.support import models
from tests.support.broken_software import NEXT, broken
from tests.support.clips import write_clip
from tests.support.deployable import golden_files
from tests.support.real_units import COMMAND, REPOSITORY, SOFTWARE_IS_ENDING, RealUnits
from tests.support.wheels import key_of, own_with, software_files

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow_but(
        "test_a_release_is_built_and_served_by_what_it_brings_and_the_next_by_what_that_brings",
        reason="further pushes over real agents",
    ),
]


@pytest.fixture
def real(device):
    yield device
    RealUnits(device.root).stop()


class Shop:
    """Makes releases of one pipeline, which differ in the software that they bring."""

    def __init__(self, device):
        self.device, self.sequence = device, 0
        self.folder = device.directory / "source"
        self.folder.mkdir()
        self.clip = write_clip(self.folder / "clip.mp4", count=30)

    def release(self, changes=None, *, seed=0):
        self.sequence += 1
        model = models.yolov8(self.folder / f"model-{seed}.onnx", seed=seed)
        pipeline = {
            "version": 1,
            "device": "gate-01",
            "model": {"onnx": "model.onnx", "precision": "fp32"},
            "publish": {"mode": "all", "jsonl": str(self.folder / f"{self.sequence}.jsonl")},
            "streams": [{"id": "a", "uri": "clips/clip.mp4", "loop": True, "realtime": True}],
            "batch": {"max_frames": 2},
        }
        software = {} if changes is None else software_files(own_with({**NEXT, **changes}))
        files = {
            "model.onnx": (Role.MODEL, model.read_bytes()),
            "clips/clip.mp4": (Role.CLIP, self.clip.read_bytes()),
            "pipeline.yaml": (Role.PIPELINE, json.dumps(pipeline).encode()),
            **golden_files(inspect_model(model)),
            **software,
        }
        limits = HealthLimits(hold_s=2.0, deadline_s=20.0, min_rate_share=0.1, max_slowdown=100, min_available_bytes=0)
        bundle = self.device.bundle_of(
            files, "gates", sequence=self.sequence, health=limits, golden_frames=GoldenFrames.OUTSIDE
        )
        return bundle, key_of(software) if software else None

    def push(self, bundle):
        return self.device.push(bundle, lambda: LocalChannel([*self.device.command, "real"]))


def serving_command(device):
    """Return the words of the process that serves."""
    pid = json.loads((device.root / "unit.json").read_text())["pid"]
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def installed_by(device, key):
    return str(device.layout.software / Installation(key=key, beside=installed()).name / "edge-runtime")


def builder_of(device, bundle):
    """Return the version of the edge-deploy that has built the engine of a release."""
    return read_record(device.device.engines, device.device.releases.engine_key(bundle.manifest.release)).software


def test_a_release_is_built_and_served_by_what_it_brings_and_the_next_by_what_that_brings(real):
    shop = Shop(real)
    first, _ = shop.release()
    assert (outcome := shop.push(first)).result == "committed", outcome
    second, key = shop.release({}, seed=1)

    outcome = shop.push(second)

    assert outcome.result == "committed", outcome
    assert installed_by(real, key) in serving_command(real)
    assert read_health(real.layout.health).release == second.manifest.release
    assert builder_of(real, second) == "0.2.0"
    third, _ = shop.release(seed=3)  # brings none
    assert (outcome := shop.push(third)).result == "committed", outcome
    change = (
        f"it will be run by what provision has installed (0.1.0); what serves is run by software 0.1.0 ({key[:12]})"
    )
    assert [event for event in real.events if change in str(event)]
    assert not [word for word in serving_command(real) if "edge-software" in word]
    assert builder_of(real, third) == "0.1.0"


def test_a_release_that_comes_while_edge_software_is_ending_is_built_all_the_same(real):
    shop = Shop(real)
    release, key = shop.release({})
    (real.root / SOFTWARE_IS_ENDING).touch()

    outcome = shop.push(release)

    assert outcome.result == "committed", outcome
    assert not (real.root / SOFTWARE_IS_ENDING).exists()
    assert installed_by(real, key) in serving_command(real)


def test_the_same_release_again_brings_its_software_back(real):
    shop = Shop(real)
    release, key = shop.release({})
    assert (outcome := shop.push(release)).result == "committed", outcome
    real.device.software.remove(Installation(key=key, beside=installed()).name)

    outcome = shop.push(release)

    assert outcome.exit_code == 0, outcome
    assert Path(installed_by(real, key)).exists(), outcome


@pytest.mark.parametrize(
    ("what", "exit_code", "code", "told"),
    [
        ("edge/runtime/serve/engine.py", 8, "trial.refused", ""),
        ("edge/runtime/build/worker.py", 7, "build.failed", "this worker is broken"),
        ("edge/runtime/serve/parts.py", 7, "build.software", "it cannot be imported (ImportError: this software"),
    ],
    ids=["cannot-serve", "cannot-build", "cannot-start"],
)
def test_software_that_is_broken_is_left_and_the_release_before_serves_with_its_own(real, what, exit_code, code, told):
    shop = Shop(real)
    first, good = shop.release({})
    assert (outcome := shop.push(first)).result == "committed", outcome
    bad, _ = shop.release({what: broken(what)})  # of the same model: its engine is here, and its frames were passed

    outcome = shop.push(bad)

    assert (outcome.exit_code, outcome.code) == (exit_code, code), outcome
    assert told in outcome.problem, outcome
    assert real.device.releases.current() == first.manifest.release
    assert installed_by(real, good) in serving_command(real)
    assert read_health(real.layout.health).release == first.manifest.release


def test_software_whose_agent_is_broken_serves_and_the_device_takes_the_next_release(real):
    shop = Shop(real)
    deaf, key = shop.release({"edge/runtime/agent/serve.py": broken("edge/runtime/agent/serve.py")})

    outcome = shop.push(deaf)

    assert outcome.result == "committed", outcome
    assert installed_by(real, key) in serving_command(real)
    after, good = shop.release({}, seed=1)
    assert (outcome := shop.push(after)).result == "committed", outcome
    assert installed_by(real, good) in serving_command(real)


def test_software_that_was_lost_is_installed_again_on_the_way_back(real):
    from edge.device.facts import this_moment
    from edge.device.units import BUILD_UNIT, RUNTIME_UNIT
    from edge.runtime.build.handover import take_over
    from edge.runtime.trial.rollback import go_back

    shop = Shop(real)
    release, key = shop.release({})
    assert (outcome := shop.push(release)).result == "committed", outcome
    units = RealUnits(real.root)
    units.stop()
    real.device.software.remove(Installation(key=key, beside=installed()).name)
    done = subprocess.run(
        [*COMMAND, "run", "--release", str(real.layout.current)],
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "INVOCATION_ID": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78
    assert f"software 0.1.0 ({key[:12]}) is not here (device.software.missing)" in done.stderr

    way = go_back(real.device, units, "unit-failed", moment=this_moment())
    units.start(BUILD_UNIT, wait=True, timeout_s=120)
    take_over(real.device)
    units.restart(RUNTIME_UNIT)

    assert way.release == release.manifest.release
    assert installed_by(real, key) in serving_command(real)
    units.stop()
