"""What wheels need on a device of another Python and architecture: markers are the device's, not this machine's."""

import functools

import pytest

from edge.deploy.provision.wheels import unmet_requirements
from edge.errors import DeployError
from tests.support.little_wheels import little_wheel


@pytest.fixture
def wheel(tmp_path):
    return functools.partial(little_wheel, tmp_path)


def unmet(wheels, python=(3, 10), architecture="aarch64", **more):
    return unmet_requirements(wheels, python=python, architecture=architecture, **more)


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

    assert unmet(wheels) == ["tomli>=2", "of-jetson"]
    assert unmet(wheels, python=(3, 12), architecture="x86_64") == ["of-newer>=1"]


def test_a_wheel_that_is_there_has_to_be_of_a_version_that_will_do(wheel):
    needs = wheel("edge-deploy", "0.1.0", "NumPy>=1.24", "type.extensions>=4")
    old, right = wheel("numpy", "1.20"), wheel("type-extensions", "4.1")

    assert unmet([needs, old, right]) == ["NumPy>=1.24"]


def test_what_an_extra_needs_counts_where_the_extra_is_asked_for(wheel):
    library = wheel("library", "2.0", "fast>=1; extra == 'speed'", "slow>=1; extra == 'other'")
    needs = wheel("edge-deploy", "0.1.0", "library[speed]", "boards>=1; extra == 'jetson'")

    assert unmet([needs, library]) == ["fast>=1"]
    assert unmet([library]) == []
    assert unmet([needs, library], extra="jetson") == ["boards>=1", "fast>=1"]


def test_a_file_that_is_no_wheel_is_named(tmp_path):
    (tmp_path / "a-1.0-py3-none-any.whl").write_bytes(b"nothing")

    with pytest.raises(DeployError, match=r"a-1\.0-py3-none-any\.whl is no wheel") as caught:
        unmet([tmp_path / "a-1.0-py3-none-any.whl"])
    assert caught.value.code == "request.wheels"
