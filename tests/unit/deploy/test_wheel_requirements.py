"""What wheels need on a device of another Python and architecture: markers are the device's, not this machine's."""

import functools
import shutil

import pytest

from edge.deploy.provision import wheels as gathering
from edge.deploy.provision.requirements import unmet_requirements
from edge.deploy.provision.wheels import gather_wheels, read_wheels
from edge.errors import DeployError
from tests.support.little_wheels import device_facts as facts
from tests.support.little_wheels import little_wheel


@pytest.fixture
def wheel(tmp_path):
    return functools.partial(little_wheel, tmp_path)


def test_markers_are_evaluated_for_the_device(wheel):
    """Whichever Python runs this, it is one of the two only."""
    wheels = [
        wheel(
            "edge-deploy",
            "0.1.0",
            "tomli>=2; python_version < '3.11'",
            "of-newer>=1; python_version >= '3.11'",
            "of-jetson; platform_machine == 'aarch64'",
            "of-windows; sys_platform == 'win32'",
        )
    ]

    assert unmet_requirements(wheels, facts()) == ["tomli>=2", "of-jetson"]
    assert unmet_requirements(wheels, facts(python=(3, 12), architecture="x86_64")) == ["of-newer>=1"]


def test_a_wheel_that_is_there_has_to_be_of_a_version_that_will_do(wheel):
    needs = wheel("edge-deploy", "0.1.0", "NumPy>=1.24", "type.extensions>=4")
    old, right = wheel("numpy", "1.20"), wheel("type-extensions", "4.1")

    assert unmet_requirements([needs, old, right], facts()) == ["NumPy>=1.24"]


def test_what_an_extra_needs_counts_where_the_extra_is_asked_for(wheel):
    library = wheel("library", "2.0", "fast>=1; extra == 'speed'", "slow>=1; extra == 'other'")
    needs = wheel("edge-deploy", "0.1.0", "library[speed]")

    assert unmet_requirements([needs, library], facts()) == ["fast>=1"]
    assert unmet_requirements([library], facts()) == []


def test_a_folder_without_what_the_device_needs_is_refused_before_anything_is_sent(wheel, tmp_path):
    wheel("edge-deploy", "0.1.0", "tomli>=2; python_version < '3.11'")
    wheel("pip", "26.0")

    with pytest.raises(DeployError, match=r"needs: tomli>=2") as caught:
        read_wheels(tmp_path, facts())
    assert caught.value.code == "request.wheels"
    assert read_wheels(tmp_path, facts(python=(3, 11))).version == "0.1.0"


@pytest.mark.parametrize(("python", "name"), [((3, 10), "tomli-2.1"), ((3, 12), "of_newer-1.0")])
def test_what_only_the_device_needs_is_gathered_with_all_that_needs(wheel, tmp_path, monkeypatch, python, name):
    """Whichever Python runs this, pip by itself passes over one of the two."""
    ours = wheel("edge-deploy", "0.1.0", "tomli>=2; python_version < '3.11'", "of-newer; python_version >= '3.11'")
    for one in (("pip", "26.0"), ("tomli", "2.1", "deeper"), ("of-newer", "1.0", "deeper"), ("deeper", "3.0")):
        wheel(*one)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gathering, "_own_wheel", lambda folder: shutil.copy2(ours, folder / ours.name))

    gathered = gather_wheels(facts(python=python))

    needed = {f"{one}-py3-none-any.whl" for one in ("deeper-3.0", "edge_deploy-0.1.0", name, "pip-26.0")}
    assert needed <= set(gathered.digests)  # and perhaps what this machine would need: pip takes that, too
    assert gather_wheels(facts(python=python)) == gathered
