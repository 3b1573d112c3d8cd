"""A Jetson gets pycuda, which nobody publishes as a wheel: found where it was made, or said how to make it."""

import dataclasses
import subprocess

import pytest

from edge.delivery.report import Report
from edge.deploy.provision import wheels as gathering
from edge.deploy.provision.admin import StepsAnswer
from edge.deploy.provision.facts import FACTS_SCRIPT, facts_from_text
from edge.deploy.provision.gatherer import Gatherer
from edge.deploy.provision.jetson import extra_of
from edge.deploy.provision.provision import WheelSource, provision
from edge.deploy.provision.wanted import Wanted
from edge.deploy.provision.wheels import gather_wheels, read_wheels
from edge.errors import DeployError
from edge.transport.ssh_command import SshAddress
from tests.support.little_wheels import device_facts, little_lock, little_wheel

JETSON = device_facts(l4t="36.4.3")
# As NVIDIA writes it, with what follows on the line.
L4T = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2025\n"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Stand in for the package index with a folder, and for our own wheel with one that has the extra."""
    index, own = tmp_path / "index", tmp_path / "own"
    index.mkdir()
    own.mkdir()
    ours = little_wheel(
        own, "edge-deploy", "0.1.0", "pycuda>=2026.1; extra == 'jetson'", extras=("jetson",)
    ).read_bytes()
    for one in (("pip", "26.0"), ("pytools", "2026.1"), ("mako", "1.3")):
        little_wheel(index, *one)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gathering, "own_wheel", lambda: ours)
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

    gathered = gather_wheels(facts, extra=extra_of(facts))

    assert f"pycuda-2026.1-{tag}-{tag}-linux_aarch64.whl" in gathered.digests
    assert sum(name.startswith("pycuda") for name in gathered.digests) == 1
    assert {"pytools-2026.1-py3-none-any.whl", "mako-1.3-py3-none-any.whl"} <= set(gathered.digests)
    assert gathered.made_here == (f"pycuda-2026.1-{tag}-{tag}-linux_aarch64.whl",)
    assert "pycuda==2026.1 --hash=sha256:" in gathered.requirements
    assert gather_wheels(facts, extra=extra_of(facts)) == gathered


def test_a_wheel_that_was_made_anew_is_taken(make):
    make("cp310")
    before = gather_wheels(JETSON, extra="jetson")
    make("cp310", "2026.1", "mako>=1")

    assert gather_wheels(JETSON, extra="jetson").digests != before.digests


def test_a_jetson_that_is_to_serve_by_its_cpu_gets_none_also_where_one_was_gathered(make):
    make("cp310")
    gather_wheels(JETSON, extra="jetson")

    gathered = gather_wheels(JETSON)

    assert not any(name.startswith("pycuda") for name in gathered.digests)


def test_without_a_wheel_it_is_said_how_to_make_one_before_anything_is_gathered(index, tmp_path):
    with pytest.raises(DeployError, match=r"no wheel of pycuda for Python 3\.10 on aarch64") as caught:
        gather_wheels(JETSON, extra=extra_of(JETSON))

    assert caught.value.code == "request.pycuda"
    assert "make pycuda-wheels" in caught.value.hint
    assert "--cpu-only" in caught.value.hint
    assert not (tmp_path / "cache/edge-deploy/wheels").exists()


def test_a_wheel_for_another_python_is_no_wheel(make):
    make("cp312")

    with pytest.raises(DeployError, match=r"no wheel of pycuda for Python 3\.10"):
        gather_wheels(JETSON, extra=extra_of(JETSON))


@pytest.mark.parametrize(
    "facts",
    [
        device_facts(),
        device_facts(architecture="x86_64", python=(3, 12)),
        device_facts(python=(3, 11), l4t="36.4.3"),  # TensorRT's bindings are for the system's own Python
    ],
)
def test_other_devices_need_nothing_of_it(make, facts):
    make("cp310")
    assert extra_of(facts) is None

    gathered = gather_wheels(facts, extra=extra_of(facts))

    assert sorted(gathered.digests) == ["edge_deploy-0.1.0-py3-none-any.whl", "pip-26.0-py3-none-any.whl"]
    assert "pycuda" not in gathered.requirements


def test_a_folder_given_for_a_jetson_has_to_hold_it_too(index):
    with pytest.raises(DeployError) as caught:
        read_wheels(index, JETSON, extra="jetson")
    assert caught.value.code == "request.pycuda"
    assert "pycuda" not in read_wheels(index, JETSON).requirements
    little_wheel(index, "pycuda", "2026.1", tag="cp310-cp310-linux_aarch64")
    assert "pycuda==2026.1" in read_wheels(index, JETSON, extra="jetson").requirements


@pytest.mark.parametrize(("content", "l4t"), [(L4T, "36.4.3"), (None, None), ("", None), ("# nonsense\n", None)])
def test_the_facts_tell_a_jetson_by_its_l4t(tmp_path, content, l4t):
    """The script is the real one, but for where the file lies and for tools that this machine may lack."""
    release = tmp_path / "nv_tegra_release"
    if content is not None:
        release.write_text(content)
    script = FACTS_SCRIPT.replace("/etc/nv_tegra_release", str(release))
    told = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True)
    lines = [line for line in told.stdout.splitlines() if not line.startswith(("missing=", "systemd="))]

    facts = facts_from_text("\n".join([*lines, "systemd=249"]), target="gate-01")

    assert facts.l4t == l4t
    assert told.stderr == ""


class Shell:
    """A device that says what it is, and would change whatever it is asked to."""

    address = SshAddress(host="gate-01")

    def __init__(self, facts):
        self.facts = lambda: facts
        self.asked = []

    def steps(self, request):
        self.asked.append(request)
        return StepsAnswer(conflicts=(), failed=None, changes=("install edge-deploy",), applied=False)


@pytest.mark.parametrize(
    ("facts", "is_cpu_only", "has_pycuda"),
    [(JETSON, False, True), (JETSON, True, False), (device_facts(), False, False)],
)
def test_what_a_device_is_told_to_install(make, facts, is_cpu_only, has_pycuda):
    make("cp310")
    shell = Shell(dataclasses.replace(facts, has_key=True, has_signer=True))
    wanted = Wanted(name="gate-01", compatible=("any",), is_setting_stated=False, networks=None, keys=[], signers=[])

    events = []
    software = WheelSource(gatherer=Gatherer(), is_cpu_only=is_cpu_only)
    provision(shell, wanted, software=software, is_plan=True, report=Report("gate-01", events.append))

    (step,) = [step for step in shell.asked[0]["steps"] if step["kind"] == "Software"]
    assert ("pycuda==2026.1" in step["requirements"]) == has_pycuda
    assert any(name.startswith("pycuda") for name in step["wheels"]) == has_pycuda
    told = [event.hint or "" for event in events if event.phase == "wheels"]
    assert any("made on this side, so no lock names it: SHA-256" in hint for hint in told) == has_pycuda
