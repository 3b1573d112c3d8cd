"""The lock that is shipped: whole, within what setup.cfg allows, and fit for each kind of device."""

import configparser
import json
from pathlib import Path

import pytest
from packaging.tags import cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from edge.deploy.provision.facts import ENVIRONMENTS, read_lock
from edge.errors import DeployError
from tools.lock.__main__ import text_of
from tools.lock.choose import LockError, license_of, locked_from, supplier_of
from tools.lock.needs import Package, needs_of
from tools.pycuda.recipe import PYCUDA, PYCUDA_NEEDS

ROOT = Path(__file__).parents[3]
LOCK = read_lock()
JETPACKS = [one for one in ENVIRONMENTS if one.architecture == "aarch64" and one.python in ((3, 10), (3, 12))]


def our_requirements() -> Package:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extra = setup["options.extras_require"]["jetson"].split()
    stated = [line for line in setup["options"]["install_requires"].splitlines() if line]
    return Package(version="0.1.0", requires=[*stated, *(f'{one}; extra == "jetson"' for one in extra)])


def test_it_names_every_python_of_every_device_that_we_support():
    assert set(LOCK.environments) == set(ENVIRONMENTS)
    assert len(ENVIRONMENTS) == 10


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_all_that_is_needed_is_locked_in_a_version_that_will_do(environment):
    packages = {one.name: Package(version=one.version, requires=one.requires) for one in LOCK.environments[environment]}
    packages["edge-deploy"] = our_requirements()
    packages["pycuda"] = Package(version=PYCUDA[0].partition("==")[2], requires=PYCUDA_NEEDS)
    asked = [("edge-deploy", ""), *([("edge-deploy", "jetson")] if environment in JETPACKS else [])]

    needs = needs_of(packages, asked, architecture=environment.architecture, python=environment.python)

    assert needs.unmet == ()
    assert packages.keys() - needs.edges.keys() - {"pycuda"} == {"pip"}  # and nothing else lies there


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_every_wheel_runs_on_such_a_device(environment):
    tags = {f"manylinux_2_{minor}_{environment.architecture}" for minor in range(17, 36)}
    tags |= {f"manylinux2014_{environment.architecture}", "any"}
    usable = {str(tag) for tag in cpython_tags(environment.python, platforms=sorted(tags))}
    usable |= {"py3-none-any", "py2-none-any"}
    usable |= {f"py3-none-{one}" for one in tags}
    for one in LOCK.environments[environment]:
        name, version, _, wheel_tags = parse_wheel_filename(one.wheel)

        assert (name, version) == (canonicalize_name(one.name), Version(one.version))
        assert usable & set(map(str, wheel_tags)), f"{one.wheel} does not run on {environment}"


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_each_is_there_once_and_says_who_made_it_and_under_which_license(environment):
    wheels = LOCK.environments[environment]

    assert [one.name for one in wheels] == sorted({one.name for one in wheels})
    assert [one.name for one in wheels if one.supplier is None or one.license is None] == []
    assert [one.name for one in wheels if one.use == "install"] == ["pip"]
    assert any(one.use == "jetson" for one in wheels) == (environment in JETPACKS)


def test_it_names_no_index_and_no_wheel_of_ours_or_of_pycuda():
    text = (ROOT / "edge/deploy/provision/lock.json").read_text(encoding="utf-8")
    names = {one.name for wheels in LOCK.environments.values() for one in wheels}

    assert "://" not in text
    assert names & {"edge-deploy", "pycuda"} == set()


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values.update(format="edge.lock/2"),
        lambda values: values.pop("made_at"),
        lambda values: values["environments"].update({"riscv64-cp310": []}),
        lambda values: values["environments"]["aarch64-cp310"][0].update(sha256="abc"),
        lambda values: values["environments"]["aarch64-cp310"][0].update(wheel="../../etc/passwd"),
        lambda values: values["environments"]["aarch64-cp310"][0].update(surprise=1),
        lambda values: values["environments"].update({"aarch64-cp310": 7}),
    ],
)
def test_a_lock_that_is_not_as_it_has_to_be_is_refused(change):
    values = json.loads((ROOT / "edge/deploy/provision/lock.json").read_text(encoding="utf-8"))
    change(values)

    with pytest.raises(DeployError, match="the lock of wheels cannot be used") as caught:
        read_lock(json.dumps(values).encode())
    assert caught.value.code == "request.wheels"


def test_the_file_is_as_make_lock_writes_it():
    assert text_of(LOCK) == (ROOT / "edge/deploy/provision/lock.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("metadata", "supplier", "license_text"),
    [
        ({"author": "Ana", "author_email": "ana@site", "license_expression": "MIT"}, "Ana", "MIT"),
        ({"author_email": '"Team, The" <team@site>', "license": "BSD"}, "Team, The", "BSD"),
        ({"maintainer_email": "mina@site", "license": "text\nof many lines"}, "mina@site", None),
        ({"classifier": ["License :: OSI Approved :: Apache Software License"]}, None, "Apache Software License"),
        ({}, None, None),
    ],
)
def test_supplier_and_license_are_what_the_package_states(metadata, supplier, license_text):
    assert (supplier_of(metadata), license_of(metadata)) == (supplier, license_text)


@pytest.mark.parametrize(
    "info",
    [
        {"url": "file:///opt/a-1.0-py3-none-any.whl", "archive_info": {"hashes": {"sha256": "a" * 64}}},
        {"url": "https://index/a-1.0-py3-none-any.whl", "archive_info": {}},
        {"url": "https://index/a-1.0-py3-none-any.whl", "archive_info": {"hashes": {"md5": "a" * 32}}},
    ],
)
def test_a_wheel_of_a_folder_or_without_a_sha256_is_not_locked(info):
    with pytest.raises(LockError, match="a: the index states no SHA-256, or is not asked over TLS"):
        locked_from("a", {"metadata": {"version": "1.0"}, "download_info": info}, (), "serve")


def unmet(python=(3, 10), architecture="aarch64", extra="", **packages):
    found = {name.replace("_", "-"): Package(version=one[0], requires=one[1:]) for name, one in packages.items()}
    asked = [(name, "") for name in found] + ([("edge-deploy", extra)] if extra else [])
    return list(needs_of(found, asked, architecture=architecture, python=python).unmet)


def test_markers_are_evaluated_for_the_device_and_not_for_this_machine():
    """Whichever Python runs this, it is one of the two only."""
    ours = (
        "0.1.0",
        "tomli>=2; python_version < '3.11'",
        "of-newer>=1; python_version >= '3.11'",
        "of-jetson; platform_machine == 'aarch64'",
        "of-windows; sys_platform == 'win32'",
    )

    assert unmet(edge_deploy=ours) == ["tomli>=2", "of-jetson"]
    assert unmet(edge_deploy=ours, python=(3, 12), architecture="x86_64") == ["of-newer>=1"]


def test_a_package_that_is_there_has_to_be_of_a_version_that_will_do():
    ours = ("0.1.0", "NumPy>=1.24", "type.extensions>=4")

    assert unmet(edge_deploy=ours, numpy=("1.20",), type_extensions=("4.1",)) == ["NumPy>=1.24"]


def test_what_an_extra_needs_counts_where_the_extra_is_asked_for():
    library = ("2.0", "fast>=1; extra == 'speed'", "slow>=1; extra == 'other'")
    ours = ("0.1.0", "library[speed]", "boards>=1; extra == 'jetson'")

    assert unmet(edge_deploy=ours, library=library) == ["fast>=1"]
    assert unmet(library=library) == []
    assert sorted(unmet(edge_deploy=ours, library=library, extra="jetson")) == ["boards>=1", "fast>=1"]
