"""The wheels that `make pycuda-wheels` has made on this machine: what they ask for, and that provision takes them."""

import os

import pytest

from edge.deploy.provision.facts import cache, pycuda_folder
from edge.deploy.provision.wheels import gather_wheels
from tests.support.wheels import device_facts
from tools.pycuda.inspect import driver_functions, faults
from tools.pycuda.recipe import PYCUDA, PYTHONS


@pytest.fixture(params=PYTHONS, ids=lambda python: python.tag)
def made(request):
    """A Python of a JetPack, and the wheel for it."""
    found = list(pycuda_folder().glob(f"{PYCUDA[0].replace('==', '-')}-{request.param.tag}-*.whl"))
    if not found:
        pytest.skip("no wheel of pycuda: make pycuda-wheels")
    return request.param, found[0]


def test_it_is_pycudas_source_compiled_and_nothing_else(made):
    python, wheel = made
    source = cache() / "pycuda-build/downloads" / f"{PYCUDA[0].replace('==', '-')}.tar.gz"

    assert faults(wheel, source, python) == []
    assert {"cuInit", "cuMemHostAlloc", "cuLaunchKernel", "cuModuleLoadDataEx"} <= driver_functions(wheel)


@pytest.mark.skipif(os.environ.get("EDGE_REQUIRE_LAB") != "1", reason="asks the package index: make lab")
def test_provision_gathers_it_for_a_jetson_with_all_that_it_needs(made):
    python, wheel = made
    major, minor = map(int, python.series.split("."))
    facts = device_facts(python=(major, minor), l4t="36.4.3")

    gathered = gather_wheels(facts)

    names = {name.split("-")[0].lower() for name in gathered.digests}
    assert wheel.name in gathered.digests
    assert {"pytools", "mako", "markupsafe", "platformdirs", "numpy", "openvino"} <= names
    assert "pycuda==" in gathered.requirements
