"""A Jetson gets pycuda, which nobody publishes as a wheel: found where it was made, or said how to make it."""

import dataclasses
import os
from pathlib import Path

import pytest

from edge.bundle.manifest import encode_manifest
from edge.delivery.outcome import Report
from edge.deploy.provision import wheels as gathering
from edge.deploy.provision.admin import StepsAnswer
from edge.deploy.provision.facts import FACTS_SCRIPT
from edge.deploy.provision.provision import provision
from edge.deploy.provision.wanted import DEVICE_TOML, Wanted
from edge.deploy.provision.wheels import WheelSource, gather_wheels
from edge.transport.ssh import SshAddress
from tests.support.manifests import manifest
from tests.support.raised import code_of
from tests.support.wheels import device_facts, facts_told, little_lock, little_wheel

JETSON = device_facts(l4t="36.4.3")
# As NVIDIA writes it, with what follows on the line.
L4T = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2025\n"


@pytest.fixture
def index(standing_in, monkeypatch):
    """An index with what pycuda needs, which is the extra of our own wheel."""
    index = standing_in("pycuda>=2026.1; extra == 'jetson'", extras=("jetson",), pytools="2026.1", mako="1.3")
    lock = little_lock(index.glob("*.whl"), jetson=("pytools", "mako"))
    monkeypatch.setattr(gathering, "read_lock", lambda: lock)
    return index


@pytest.fixture
def make(index, tmp_path):
    """Make a wheel of pycuda as `make pycuda-wheels` does."""
    folder = tmp_path / "cache/edge-deploy/pycuda"
    folder.mkdir(parents=True)

    def make(python, version="2026.1", *more):
        tag = f"{python}-{python}-linux_aarch64"
        return little_wheel(folder, "pycuda", version, "pytools>=2011.2", "mako", *more, tag=tag)

    return make


@pytest.mark.parametrize(("python", "tag"), [((3, 10), "cp310"), ((3, 12), "cp312")])
def test_a_jetson_gets_the_pycuda_of_its_python_with_what_that_needs(make, python, tag):
    make("cp310")
    make("cp312")
    facts = device_facts(python=python, l4t="36.4.3")

    gathered = gather_wheels(facts)

    assert f"pycuda-2026.1-{tag}-{tag}-linux_aarch64.whl" in gathered.digests
    assert sum(name.startswith("pycuda") for name in gathered.digests) == 1
    assert {"pytools-2026.1-py3-none-any.whl", "mako-1.3-py3-none-any.whl"} <= set(gathered.digests)
    assert gathered.made_here == (f"pycuda-2026.1-{tag}-{tag}-linux_aarch64.whl",)
    assert "pycuda==2026.1 --hash=sha256:" in gathered.requirements
    assert gather_wheels(facts) == gathered
    make(tag, "2026.1", "mako>=1")  # anew
    assert gather_wheels(facts).digests != gathered.digests


@pytest.mark.parametrize(
    ("facts", "there"),
    [
        (JETSON, []),
        (JETSON, ["cp312"]),
        (device_facts(), ["cp310"]),
        (device_facts(architecture="x86_64", python=(3, 12)), ["cp310"]),
        (device_facts(python=(3, 11), l4t="36.4.3"), ["cp310"]),  # TensorRT's bindings are for the system's own Python
    ],
)
def test_a_jetson_for_whose_python_none_was_made_and_other_devices_go_without(make, facts, there):
    for python in there:
        make(python)

    gathered = gather_wheels(facts)

    assert sorted(gathered.digests) == ["edge_deploy-0.1.0-py3-none-any.whl", "pip-26.0-py3-none-any.whl"]
    assert "pycuda" not in gathered.requirements


def test_a_fleet_of_a_jetson_and_others_gives_each_its_own(make):
    make("cp310")
    source = WheelSource()

    asked = (JETSON, device_facts(), JETSON)

    assert ["pycuda" in source.wheels(facts).requirements for facts in asked] == [True, False, True]


@pytest.mark.parametrize(("content", "l4t"), [(L4T, "36.4.3"), (None, None), ("", None), ("# nonsense\n", None)])
def test_the_facts_tell_a_jetson_by_its_l4t(tmp_path, content, l4t):
    """The script is the real one, but for where the file lies and for tools that this machine may lack."""
    release = tmp_path / "nv_tegra_release"
    if content is not None:
        release.write_text(content)
    script = FACTS_SCRIPT.replace("/etc/nv_tegra_release", str(release))

    assert facts_told(script).l4t == l4t


class Shell:
    """A device that says what it is, and would change whatever it is asked to."""

    address = SshAddress(host="gate-01")

    def __init__(self, facts, change="install edge-deploy"):
        self.facts = lambda: facts
        self.asked, self.change = [], change

    def steps(self, request):
        self.asked.append(request)
        return StepsAnswer(conflicts=(), failed=None, changes=(self.change,), applied=False)


def planned(facts, **asked):
    """Return the steps that a provision of such a device plans, and what it tells."""
    shell, events = Shell(dataclasses.replace(facts, has_key=True, has_signer=True), **asked), []
    wanted = Wanted(name="gate-01", compatible=("any",), networks=None, keys=[], signers=[])
    software = WheelSource()
    provision(shell, wanted, software=software, is_plan=True, report=Report("gate-01", events.append))
    return shell.asked[0]["steps"], events


@pytest.mark.parametrize(("change", "is_later"), [(f"replace {DEVICE_TOML}", True), (f"write {DEVICE_TOML}", False)])
def test_a_change_of_the_settings_says_when_a_new_name_takes_effect(make, change, is_later):
    make("cp310")

    _, events = planned(device_facts(), change=change)

    (told,) = (event.hint for event in events if (event.phase, event.event) == ("plan", "note"))
    assert (told.startswith(change), "starts again" in told, "trial" in told) == (True, is_later, is_later)


def test_a_plan_to_install_says_that_there_is_no_room(make):
    make("cp310")
    full = dataclasses.replace(device_facts(), free_bytes=60_000_000)

    assert code_of(planned, full) == "preflight.space"
    assert planned(full, change="write /etc/edge-deploy/device.toml")


@pytest.mark.parametrize(
    ("made_by", "is_told"), [("edge-deploy 0.10.0", True), ("edge-deploy 0.1.0", False), ("x", False)]
)
def test_a_release_that_was_made_with_a_later_edge_deploy_than_is_installed_is_told(make, tmp_path, made_by, is_told):
    make("cp310")
    (tmp_path / "manifest.json").write_bytes(encode_manifest(manifest(made_by=made_by)))
    script = FACTS_SCRIPT.replace("/var/lib/edge-deploy/current", str(tmp_path))

    _, events = planned(dataclasses.replace(device_facts(), made_with=facts_told(script).made_with))

    assert any("0.10.0" in (event.hint or "") for event in events if event.phase == "facts") == is_told


@pytest.mark.parametrize(
    ("facts", "is_made", "has_pycuda"),
    [(JETSON, True, True), (JETSON, False, False), (device_facts(), True, False)],
)
def test_what_a_device_is_told_to_install(make, facts, is_made, has_pycuda):
    if is_made:
        make("cp310")

    steps, events = planned(facts)

    (step,) = [step for step in steps if step["kind"] == "Software"]
    assert ("pycuda==2026.1" in step["requirements"]) == has_pycuda
    assert any(name.startswith("pycuda") for name in step["wheels"]) == has_pycuda
    told = [event.hint or "" for event in events if event.phase == "wheels"]
    assert any("made on this side, so no lock names it: SHA-256" in hint for hint in told) == has_pycuda
    assert any("no wheel of pycuda" in hint for hint in told) == (facts is JETSON and not is_made)


def files_of(facts):
    """Return what provision would write below /etc/systemd, by path."""
    return {one["path"]: one for one in planned(facts)[0] if one["kind"] == "File"}


def test_units_wait_for_the_nodes_that_a_board_has_and_for_its_daemon_of_cameras(make):
    board, other = files_of(JETSON), files_of(device_facts())
    units = "/etc/systemd/system"

    for unit in ("edge-runtime", "edge-build"):
        content = str(board[f"{units}/{unit}.service.d/10-jetson.conf"])
        assert "Wants=dev-nvmap.device dev-dri-renderD128.device" in content
    csi = str(board[f"{units}/edge-runtime.service.d/15-csi.conf"])
    assert "PrivateTmp=no" in csi
    assert "nvargus-daemon.service" in csi
    assert not [path for path in other if "jetson" in path or "csi" in path]


@pytest.mark.parametrize(("nodes", "code"), [(["nvmap", "dri/renderD128"], 0), (["dri/renderD128"], 1), ([], 1)])
def test_the_facts_tell_nodes_and_the_daemon_of_cameras(tmp_path, monkeypatch, nodes, code):
    for node in nodes:
        (tmp_path / "dev" / node).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / node).touch()
    (tmp_path / "systemctl").write_text(
        f"#!/bin/sh\ntest \"$1 $2\" = 'cat nvargus-daemon.service' || exit 0\nexit {code}\n"
    )
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = FACTS_SCRIPT.replace("/dev/$node", f"{tmp_path}/dev/$node")

    facts = facts_told(script)

    assert facts.gpu_nodes == tuple(nodes)
    assert facts.has_argus == (code == 0)


@pytest.mark.parametrize("unit", ["edge-runtime", "edge-build"])
def test_a_unit_may_open_what_cuda_and_a_dla_core_open(unit):
    """Of JetPack 7 and workstations, NVIDIA's own driver; of Orin, nvgpu and the cores for deep learning."""
    lines = (Path(__file__).parents[3] / f"systemd/{unit}.service").read_text().splitlines()
    allowed = {line.removeprefix("DeviceAllow=") for line in lines if line.startswith("DeviceAllow=")}
    nvidia = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    orin = ("nvmap", "host1x-fence", "nvgpu/igpu0/ctrl", "nvhost-ctrl-nvdla0", "nvhost-ctrl-nvdla1")

    assert {f"/dev/{node} rw" for node in (*nvidia, *orin)} <= allowed
